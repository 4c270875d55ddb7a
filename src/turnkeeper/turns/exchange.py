"""One signed exchange with a Guardian: a step or a hello goes out, an answer that holds comes back, or nothing does.

Answers for fresh time, nonce and signature at every send, for binding each answer to its request, and for the words in
which a failed exchange is logged. Must never turn a fault into a decision; when to send again is the governor's.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

import orjson
import structlog

from turnkeeper.acs import (
    HANDSHAKE_METHOD,
    Answer,
    AnswerRejected,
    Keyring,
    ObservedSession,
    Refusal,
    ServerHello,
    Verdict,
    build_client_hello,
    hook_spec,
)
from turnkeeper.clock import Clock, render_time
from turnkeeper.ids import IdSource, uuid_of
from turnkeeper.turns.mcp_messages import PROTOCOL_VERSIONS
from turnkeeper.turns.model import Step
from turnkeeper.turns.payloads import METHODS_IMPLEMENTED, PROFILES, PROVENANCE_PRODUCER
from turnkeeper.turns.ports import GuardianLink, GuardianUnreachable
from turnkeeper.turns.timing import Waiter, within

MAX_REMEMBERED_TERMS: Final = 10_000
ALREADY_GREETED: Final = "renegotiation_not_supported"

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Party:
    """Whose step it is: a session and its agent, as the platform names them, and the subagent where it is one's."""

    session_id: str
    agent_id: str
    thread_id: str | None = None

    @property
    def chain_id(self) -> str:
        """The session as the Guardian has it: a subagent has one of its own."""
        return self.thread_id or self.session_id


class Exchange:
    """The platform's side of the wire, for every session."""

    def __init__(
        self,
        link: GuardianLink,
        keyring: Keyring,
        key_id: str,
        *,
        clock: Clock,
        ids: IdSource,
        waiter: Waiter,
        transports: tuple[str, ...] = ("http",),
    ) -> None:
        self._link = link
        self._keyring = keyring
        self._key_id = key_id
        self._clock = clock
        self._ids = ids
        self._waiter = waiter
        self._hello = build_client_hello(
            methods=METHODS_IMPLEMENTED,
            transports=transports,
            profiles=PROFILES,
            provenance_producer=PROVENANCE_PRODUCER,
            mcp_versions=PROTOCOL_VERSIONS,
        )
        self._terms: OrderedDict[str, ServerHello] = OrderedDict()

    @property
    def ids(self) -> IdSource:
        """Where the ids of what is sent come from."""
        return self._ids

    def terms(self, chain_id: str) -> ServerHello | None:
        """What was negotiated for a chain, as far as this process knows."""
        return self._terms.get(chain_id)

    async def step(self, party: Party, step: Step, *, timeout_ms: int) -> Verdict | Refusal | None:
        """One send of a persisted step; None where nothing came back that may be believed."""
        payload = cast("Mapping[str, object]", orjson.loads(step.payload_json or "{}"))
        spec = hook_spec(step.method)
        turn_id = step.turn_id if spec is not None and (spec.in_turn or step.in_window) else None
        answer = await self._exchange(
            party, step.method, payload, request_id=step.request_id, turn_id=turn_id, timeout_ms=timeout_ms
        )
        return None if isinstance(answer, ServerHello) else answer

    async def hello(self, party: Party, *, timeout_ms: int) -> ServerHello | Refusal | None:
        """One handshake. The same hello after a restart brings back the saved terms (ledger CORE-HS-12)."""
        answer = await self._exchange(
            party, HANDSHAKE_METHOD, self._hello, request_id=self._ids.uuid(), turn_id=None, timeout_ms=timeout_ms
        )
        if isinstance(answer, ServerHello):
            self._remember(party.chain_id, answer)
        return None if isinstance(answer, Verdict) else answer

    async def _exchange(
        self,
        party: Party,
        method: str,
        payload: Mapping[str, object],
        *,
        request_id: str,
        turn_id: str | None,
        timeout_ms: int,
    ) -> Answer | None:
        observed = ObservedSession.open(
            agent_id=party.agent_id,
            session_id=uuid_of(party.chain_id),
            keyring=self._keyring,
            key_id=self._key_id,
        )
        body = observed.request(
            method,
            payload,
            request_id=request_id,
            timestamp=render_time(self._clock.now()),
            nonce=self._ids.uuid(),
            turn_id=turn_id,
        )
        try:
            sent = self._link.exchange(body, timeout_ms=timeout_ms)
            return observed.answer(await within(self._waiter, sent, timeout_ms=timeout_ms), request_id=request_id)
        except (GuardianUnreachable, AnswerRejected) as error:
            _log.warning("guardian_exchange_failed", method=method, request_id=request_id, error=str(error))
        except TimeoutError:
            _log.warning("guardian_exchange_failed", method=method, request_id=request_id, error="no answer in time")
        return None

    def _remember(self, chain_id: str, terms: ServerHello) -> None:
        self._terms[chain_id] = terms
        self._terms.move_to_end(chain_id)
        if len(self._terms) > MAX_REMEMBERED_TERMS:
            self._terms.popitem(last=False)
