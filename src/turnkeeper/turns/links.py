"""A wire to a Guardian over HTTP: signed bytes out, bytes back.

Answers for one POST per exchange and for bounds on what comes back. Never looks into an answer, never retries: what an
answer means, and whether a step may be sent again, is the governor's business.
"""

from typing import Final

import httpx

from turnkeeper.turns.ports import GuardianUnreachable

MAX_ANSWER_BYTES: Final = 1 << 20


class HttpGuardianLink:
    """A Guardian at the end of an HTTP connection.

    Status codes are not looked at: an answer is what its signature proves, whatever a proxy says around it.
    """

    def __init__(self, url: str, client: httpx.AsyncClient, *, max_answer_bytes: int = MAX_ANSWER_BYTES) -> None:
        self._url = url
        self._client = client
        self._max_answer_bytes = max_answer_bytes

    async def exchange(self, body: bytes, *, timeout_ms: int) -> bytes:
        """One request and its answer. Raises `GuardianUnreachable`."""
        try:
            async with self._client.stream(
                "POST",
                self._url,
                content=body,
                headers={"content-type": "application/json"},
                timeout=timeout_ms / 1000,
            ) as response:
                return await self._bounded(response)
        except httpx.HTTPError as error:
            raise GuardianUnreachable(f"no answer from the Guardian: {type(error).__name__}") from error

    async def _bounded(self, response: httpx.Response) -> bytes:
        answer = bytearray()
        async for chunk in response.aiter_bytes():
            answer += chunk
            if len(answer) > self._max_answer_bytes:
                raise GuardianUnreachable(f"the Guardian's answer is over {self._max_answer_bytes} bytes")
        return bytes(answer)
