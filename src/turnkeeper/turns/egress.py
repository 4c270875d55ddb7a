"""What a turn's tool box may reach, as far as the turn decides it (contract 2.1, 10.4; ACS 8 `network.egress`).

Answers for the lists that bind a box, for asking the Guardian once about each destination, and for saying which were
refused without letting a program write our log for us. An answer other than a plain ALLOW is a no: a connection cannot
wait for a person, and a destination that was changed is not the one that the program dialed. Silence is a no as well,
unless the operator's posture says otherwise, and is asked again at the next try.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import structlog

from turnkeeper.errors import TurnkeeperError
from turnkeeper.events import catalogue
from turnkeeper.events.envelope import NewEvent
from turnkeeper.turns import payloads
from turnkeeper.turns.box_ports import NetworkOrder, NetworkSecret
from turnkeeper.turns.exchange import Party
from turnkeeper.turns.model import Claim, Draft, Fence, Turn
from turnkeeper.turns.rulings import Ruling
from turnkeeper.turns.workbench import Workbench

PLACEHOLDER_PREFIX: Final = "tkp_"
TELL_EVERY_MS: Final = 60_000
MAX_TOLD_HOSTS: Final = 100
"""A box that tries one name after the other fills the log of its process and not the turn's events."""

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Refusals:
    """Refusals of one host: when it was last told of, and how many are not told yet."""

    port: int
    told_ms: int
    untold: int = 0


class Egress:
    """`box_ports.EgressGate` for one turn. `sandbox_id` is set before anything runs in the box.

    `party` is who is at work in it: the turn's agent, or its subagent. `is_waiting` says whether the turn waits for
    somebody: nothing is asked about then.
    """

    def __init__(
        self,
        bench: Workbench,
        claim: Claim,
        turn: Turn,
        fence: Callable[[], Fence],
    ) -> None:
        self._bench = bench
        self._turn = turn
        self._fence = fence
        self.is_waiting: Callable[[], bool] = _never
        self._project_id = claim.session.project_id
        self.party = Party(turn.session_id, turn.agent_id)
        self._lists = _lists(claim)
        self._one = asyncio.Lock()
        self._answers: dict[tuple[str, int], str | None] = {}
        self._refusals: dict[str, _Refusals] = {}
        self._wanted = claim.session.secrets
        self._masks: dict[str, str] = {}
        self.sandbox_id = ""

    async def order(self) -> NetworkOrder | None:
        """What is asked of whoever makes the box; `None` for a box without a network."""
        if not all(self._lists):
            return None
        secrets = await self._opened()
        self._masks |= {secret.value: secret.placeholder for secret in secrets}
        return NetworkOrder(self._lists, self, secrets)

    def masked(self, text: str) -> str:
        """A text from the box with the placeholders in place of the secrets that are known to the turn.

        No box has them; a host that was given one can have told it in another shape than the proxy looks for.
        """
        for value in sorted(self._masks, key=len, reverse=True):
            text = text.replace(value, self._masks[value])
        return text

    async def ask(self, host: str, port: int, via: str) -> str | None:
        """Why not; `None` where the box may."""
        async with self._one:
            if (host, port) in self._answers:
                return self._answers[host, port]
            if self.is_waiting():
                return "the turn is waiting"
            if len(self._answers) >= self._bench.settings.max_destinations:
                return f"a turn reaches at most {self._bench.settings.max_destinations} destinations"
            try:
                ruling = await self._bench.governor.ask(self.party, self._step(host, port, via), self._fence())
            except TurnkeeperError as error:
                _log.warning("egress_not_asked", turn_id=self._turn.id, host=host, port=port, error=str(error))
                return "it could not be asked about"
            reason = _reason(ruling)
            if ruling.decision is not None:
                self._answers[host, port] = reason
            return reason

    async def refused(self, host: str, port: int) -> None:
        """The box wanted to reach a host that it may not. Told at once, and then at most once in a minute."""
        now_ms = self._bench.clock.monotonic_ms()
        known = self._refusals.get(host)
        if known is None:
            if len(self._refusals) >= MAX_TOLD_HOSTS:
                _log.warning("egress_denied", turn_id=self._turn.id, host=host, port=port)
                return
            known = self._refusals[host] = _Refusals(port, now_ms - TELL_EVERY_MS)
        known.port = port
        known.untold += 1
        if now_ms - known.told_ms < TELL_EVERY_MS:
            return
        event = self._denied(host, known)
        known.told_ms, known.untold = now_ms, 0
        try:
            await self._bench.store.record(self._fence(), [event])
        except TurnkeeperError as error:
            _log.warning("egress_denial_not_told", turn_id=self._turn.id, host=host, error=str(error))

    def untold(self) -> list[NewEvent]:
        """What is to be said when the box is gone."""
        events = [self._denied(host, known) for host, known in self._refusals.items() if known.untold]
        self._refusals.clear()
        return events

    async def _opened(self) -> tuple[NetworkSecret, ...]:
        vault = self._bench.vault
        if vault is None or not self._wanted:
            return ()
        opened = await vault.opened(self._project_id, {wanted.ref for wanted in self._wanted})
        missing = [wanted.ref for wanted in self._wanted if wanted.ref not in opened]
        if missing:
            _log.warning("secrets_missing", turn_id=self._turn.id, secrets=missing)
        return tuple(
            NetworkSecret(
                wanted.name,
                f"{PLACEHOLDER_PREFIX}{self._bench.ids.uuid().replace('-', '')}",
                opened[wanted.ref].hosts,
                opened[wanted.ref].value,
            )
            for wanted in self._wanted
            if wanted.ref in opened
        )

    def _denied(self, host: str, known: _Refusals) -> NewEvent:
        denied = catalogue.sandbox_egress_denied(
            turn_id=self._turn.id,
            sandbox_id=self.sandbox_id,
            host=host,
            port=known.port,
            count=known.untold,
        )
        return replace(denied, thread_id=self.party.thread_id)

    def _step(self, host: str, port: int, via: str) -> Draft:
        return Draft(
            self._bench.ids.uuid(),
            payloads.TOOL_CALL_REQUEST,
            lambda marks: payloads.egress_request(marks, host, port, via),
            in_window=True,
            turn_id=self._turn.id,
            thread_id=self.party.thread_id,
        )


def _never() -> bool:
    return False


def _lists(claim: Claim) -> tuple[tuple[str, ...], ...]:
    """The agent's list, and the session's where it has one: it narrows, and never adds."""
    agent, session = claim.agent.network, claim.session.network
    return (agent.allow,) if session is None else (agent.allow, session.allow)


def _reason(ruling: Ruling) -> str | None:
    if ruling.changed is not None:
        return "the Guardian would have it changed, which a connection cannot be"
    return None if ruling.allowed else "; ".join(ruling.reasons) or "denied"
