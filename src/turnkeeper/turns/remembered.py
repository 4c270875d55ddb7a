"""What was asked before and what was answered for the rest of the session (contract 2.5, `remember: session`).

Answers for using a remembered yes only for the very input it was given for, and no longer than it stands: it is looked
up again each time it would be used.
"""

from turnkeeper.turns import payloads
from turnkeeper.turns.approvals import ApprovalOrigin, ApprovalRule, PendingCall
from turnkeeper.turns.model import Step, Turn
from turnkeeper.turns.ports import TurnStore


class Remembered:
    """The remembered answers of one turn's session."""

    def __init__(self, store: TurnStore, turn: Turn) -> None:
        self._store = store
        self._turn = turn
        self._rules: tuple[ApprovalRule, ...] | None = None

    def forget(self) -> None:
        """There may be new ones."""
        self._rules = None

    async def rule(self, call: PendingCall, origin: ApprovalOrigin) -> ApprovalRule | None:
        """A remembered yes to this tool with this input."""
        if self._rules is None:
            self._rules = await self._store.approval_rules(self._turn.session_id)
        if _matching(self._rules, call, origin) is None:
            return None
        self._rules = await self._store.approval_rules(self._turn.session_id)
        return _matching(self._rules, call, origin)

    async def granted(self, call: PendingCall) -> str | None:
        """The step that was granted for the session, as it is sent again; None where there is no such grant.

        What it says of where its values came from is of its own time. So it is sent only where the call itself, with
        what is known now, was answered with the question that was granted.
        """
        rule = await self.rule(call, "guardian")
        if rule is None or rule.request_id is None:
            return None
        payload_json = _payload(await self._store.steps(self._turn.session_id), rule.request_id)
        return None if payload_json is None else payloads.referring_to(payload_json, rule.request_id)

    async def asked_payload(self, call: PendingCall) -> str | None:
        """The payload exactly as it was asked about, for a grant is bound to it; None where none is kept."""
        if call.request_id is None:
            return None
        return _payload(await self._store.steps(self._turn.session_id, turn_id=self._turn.id), call.request_id)


def _matching(rules: tuple[ApprovalRule, ...], call: PendingCall, origin: ApprovalOrigin) -> ApprovalRule | None:
    wanted = (call.name, call.input_hash, origin)
    return next((rule for rule in rules if (rule.tool, rule.input_hash, rule.origin) == wanted), None)


def _payload(steps: tuple[Step, ...], request_id: str) -> str | None:
    found = next((step for step in steps if step.request_id == request_id), None)
    return None if found is None or found.payload_json is None else payloads.without_reference(found.payload_json)
