"""An app that does not give up: every call is repeated until it is answered, posts under an idempotency key."""

import asyncio
import time
from typing import Any, Final, cast

import httpx
from tests.acceptance.server import Json

PATIENCE_S: Final = 500
PAUSE_S: Final = 0.2
TIMEOUT: Final = httpx.Timeout(8, connect=3)
BUSY: Final = frozenset({429, 500, 502, 503, 504})


class Refused(Exception):
    """An answer that says no for good."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(f"{status} {text}")
        self.status, self.code = status, code


class App:
    """The turn API as an app sees it. `troubles` counts what was repeated, by its reason."""

    def __init__(self, url: str, api_key: str) -> None:
        headers = {"Authorization": f"Bearer {api_key}"}
        limits = httpx.Limits(max_connections=100)
        self.http = httpx.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUT, trust_env=False, limits=limits)
        self.troubles: dict[str, int] = {}

    async def get(self, path: str) -> Json:
        """What a GET answers."""
        return await self._asked("GET", path)

    async def post(self, path: str, body: Json, *, key: str | None = None) -> Json:
        """What a POST answers; without a `key` it may have happened more than once."""
        return await self._asked("POST", path, body, {"Idempotency-Key": key} if key else {})

    async def all(self, path: str) -> list[Json]:
        """Every element of a list."""
        found: list[Json] = []
        joint = "&" if "?" in path else "?"
        page = await self.get(f"{path}{joint}limit=100")
        found.extend(page["data"])
        while page["has_more"]:
            page = await self.get(f"{path}{joint}limit=100&after={page['next_cursor']}")
            found.extend(page["data"])
        return found

    async def events(self, session_id: str) -> list[Json]:
        """All stored events of a session, oldest first."""
        found: list[Json] = []
        while True:
            after = found[-1]["sequence"] if found else 0
            page = await self.get(f"/v1/sessions/{session_id}/events?after={after}&limit=1000")
            found.extend(page["data"])
            if not page["has_more"]:
                return found

    async def _asked(self, method: str, path: str, body: Any = None, headers: Any = None) -> Json:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                answer = await self.http.request(method, path, json=body, headers=headers)
            except httpx.TransportError as error:
                trouble = type(error).__name__
            else:
                trouble = _trouble(answer)
                if trouble is None:
                    return cast(Json, answer.json())
            self.troubles[trouble] = self.troubles.get(trouble, 0) + 1
            assert time.monotonic() < deadline, f"{method} {path}: {trouble} for {PATIENCE_S} s"
            await asyncio.sleep(PAUSE_S)


def _trouble(answer: httpx.Response) -> str | None:
    """Why to ask again; None for an answer. Raises `Refused`."""
    if answer.status_code < 300:
        return None
    code = str(answer.json().get("code", "")) if "json" in answer.headers.get("content-type", "") else ""
    if answer.status_code in BUSY or code == "idempotency_in_progress":
        return f"{answer.status_code} {code}"
    raise Refused(answer.status_code, code, answer.text)
