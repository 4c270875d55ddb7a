"""Who may read a stream: an API key in the header, or a stream token in the URL (contract 1 and 2.4).

Answers for a token that opens streams of its own session alone, and none once its key was revoked or has expired. A
header wins over a token.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Request

from turnkeeper.api.auth import admit, authenticate
from turnkeeper.api.deps import Deps
from turnkeeper.api.problems import RequestRefused
from turnkeeper.events.stream_tokens import StreamTokenInvalid, verify_stream_token
from turnkeeper.turns.model import ApiKey
from turnkeeper.turns.ports import NotFound

STREAM_TOKEN: Final = "stream_token"  # noqa: S105  the name of a query value


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads: a key, and the one session that its token is for where a token was shown."""

    key: ApiKey
    session_id: str | None = None

    def check(self, session_id: str) -> None:
        """Raises `StreamTokenInvalid` for a session that the token is not for."""
        if self.session_id is not None and self.session_id != session_id:
            raise StreamTokenInvalid("the stream_token is for another session")


async def reader_of(request: Request, deps: Deps) -> Reader:
    """Who reads this stream. Raises `RequestRefused`, `StreamTokenInvalid`, and what `authenticate` raises."""
    shown = request.query_params.getlist(STREAM_TOKEN)
    if not shown or "Authorization" in request.headers:
        return Reader(await authenticate(request, deps))
    if len(shown) > 1:
        raise RequestRefused("invalid_field", "stream_token is given twice.", param=STREAM_TOKEN)
    token = verify_stream_token(shown[0], deps.cursor_secret, deps.clock.now())
    try:
        key = await deps.access.key(token.key_id)
    except NotFound as error:
        raise StreamTokenInvalid("the key of this stream_token is gone") from error
    return Reader(await admit(request, deps, key.secret_sha256), token.session_id)


StreamReader = Annotated[Reader, Depends(reader_of)]
