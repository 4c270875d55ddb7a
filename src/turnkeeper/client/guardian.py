"""The Guardian as an agent sees it (ACS 4, ledger sections 3, 7, 9, 10): sessions over one wire.

Answers for what all sessions of an agent share: its identity, its settings, its audit log and its wire. Must never be
shared between event loops; agents that do not await have `turnkeeper.client.SyncGuardianClient`.
"""

from types import TracebackType
from uuid import UUID
from weakref import WeakValueDictionary

from turnkeeper.acs import Verdict
from turnkeeper.client import steps
from turnkeeper.client.asking import Asker, Core
from turnkeeper.client.audit import Auditor, AuditSink, log_audit
from turnkeeper.client.errors import StepInvalid
from turnkeeper.client.exchange import Exchange
from turnkeeper.client.identity import Identity
from turnkeeper.client.outcomes import Allowed, Denied, Pending
from turnkeeper.client.posture import Failure
from turnkeeper.client.sessions import GuardedSession
from turnkeeper.client.settings import ClientSettings
from turnkeeper.client.steps import Payload, PolicyMode
from turnkeeper.client.terms import MemoryTerms, TermsStore
from turnkeeper.client.timing import SystemTime, Time
from turnkeeper.client.transports import Transport
from turnkeeper.ids import IdSource, RandomIds


class GuardianClient:
    """An agent's Guardian: `async with GuardianClient(HttpTransport(url), identity) as guardian`."""

    def __init__(
        self,
        transport: Transport,
        identity: Identity,
        *,
        settings: ClientSettings | None = None,
        audit: AuditSink = log_audit,
        terms: TermsStore | None = None,
        time: Time | None = None,
        ids: IdSource | None = None,
    ) -> None:
        """`audit` takes every record before the step it is about goes on; `terms` keeps signed ServerHellos."""
        clock = time or SystemTime()
        source = ids or RandomIds(clock)
        chosen = settings or ClientSettings()
        self._transport = transport
        self._live: WeakValueDictionary[str, Asker] = WeakValueDictionary()
        self._core = Core(
            identity=identity,
            exchange=Exchange(transport, chosen, time=clock, ids=source),
            transport_name=transport.name,
            settings=chosen,
            auditor=Auditor(audit, clock),
            saved=terms or MemoryTerms(),
            time=clock,
            ids=source,
        )

    def session(
        self,
        *,
        session_id: str | None = None,
        policy_mode: PolicyMode | None = None,
        intent: Payload | None = None,
        user_identity: Payload | None = None,
        platform_context: Payload | None = None,
    ) -> GuardedSession:
        """A new session, not begun yet. Raises `StepInvalid` for an id that is no UUID."""
        start = steps.session_start(
            policy_mode=policy_mode, intent=intent, user_identity=user_identity, platform_context=platform_context
        )
        return GuardedSession(self._asker(session_id), start)

    async def attach(self, session_id: str) -> GuardedSession:
        """A session that was begun elsewhere, under its saved terms where their signature still holds (CORE-HS-20).

        For agents whose hooks are processes of their own. Sends no sessionStart and no sessionEnd. Without saved terms
        it shakes hands. Raises `SessionRefused`, `SessionNotStarted`, `StepInvalid`.
        """
        asker = self._live.get(session_id) or self._asker(session_id)
        if not asker.greeted:
            await asker.greet(saved=True)
        return GuardedSession(asker, None)

    async def resolve(self, pending: Pending) -> Allowed | Denied:
        """Waits until a step that an ASK or DEFER holds up is decided or its time is over, in whatever session."""
        session = await self.attach(pending.session_id)
        return await session.resolve(pending)

    async def ping(self, *, timeout_ms: int = 5_000, echo: str | None = None) -> Verdict | Failure:
        """Whether the Guardian lives (ledger section 15). Says nothing about enforcement (CORE-PING-05)."""
        observed = self._core.identity.observed(self._core.ids.uuid())
        return await self._core.exchange.ping(observed, timeout_ms=timeout_ms, echo=echo)

    async def close(self) -> None:
        """Stops listening for late answers and lets go of the wire; idempotent."""
        await self._core.exchange.close()
        await self._transport.close()

    async def __aenter__(self) -> "GuardianClient":
        """Nothing is sent yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes."""
        await self.close()

    def _asker(self, session_id: str | None) -> Asker:
        wanted = self._core.ids.uuid() if session_id is None else session_id
        try:
            UUID(wanted)
        except ValueError:
            raise StepInvalid("a session id is no UUID, which the wire requires") from None
        asker = Asker(self._core, wanted)
        self._live[wanted] = asker
        return asker
