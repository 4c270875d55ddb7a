"""Honest traffic of every kind, for a fuzzer to break: hooks, provenance, the agent's parts, wrapped MCP, questions.

Nothing here is hostile. What it says fits together often enough that broken traffic meets sessions with open turns,
waiting calls, grants, skills and lineage, and not only empty ones.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import uuid4

from tests.unit.guardian.kit import Agent, House
from tests.unit.guardian.samples import AGBOM, DIGEST, HASH, PAYLOADS, provenance, result, said, summary

from turnkeeper.acs import ServerHello
from turnkeeper.clock import epoch_ms
from turnkeeper.guardian.approvals import ApprovalAnswer, ApprovalRefused, ApprovalStatus, Approver
from turnkeeper.guardian.calls import OFFERED_METHODS
from turnkeeper.store.guardian_desk import SqliteGuardianDesk

POLICY: Final = b"""
version: 1
name: fuzzed
default: allow
rules:
  - id: ask
    hooks: [toolCallRequest]
    tools: [delete]
    decision: ask
    reasoning: A person decides.
    ask:
      question: "Delete it?"
      timeout_seconds: 60
      approver: {type: human, id: operators}
      intent_extension: {scope: session, capabilities: [{tool: mail}]}
  - id: wait
    hooks: [toolCallRequest]
    tools: [wait]
    decision: defer
    reasoning: A person decides.
    defer: {reason: low_confidence, resolution_method: human_approval, resolution_timeout_ms: 60000}
  - id: hide
    hooks: [toolCallRequest]
    when: has(args.api_key)
    decision: modify
    reasoning: Keys are not passed on.
    modify: {redactions: [{path: /arguments/api_key/value, replacement: "[REDACTED]"}]}
  - id: tainted
    hooks: [toolCallRequest]
    tools: [send]
    scope: session
    when: scope.tainted
    decision: deny
    reasoning: The session has read what anybody may have written.
"""
OPERATOR: Final = Approver("key_1", "ana", "human", frozenset({"operators"}))
WRAPPED: Final = (
    "protocols/MCP/tools/call",
    "wrapped:mcp-2025-06-18/tools/call",
    "protocols/MCP/resources/read",
    "protocols/MCP/a/method/nobody/knows",
)
TOOLS: Final = ("shell", "delete", "wait", "send", "fetch", "mail", "\u00fc")
ORIGINS: Final = ("user_input", "tool_output", "knowledge_retrieval", "agent_generated", "system")
PROVEN: Final[Mapping[str, object]] = {
    "provenance_producer": "deterministic",
    "profiles_supported": ["acs-core", "acs-audit", "acs-provenance"],
}
WRAPS: Final[Mapping[str, object]] = {"wrapped_protocols": [{"protocol": "MCP", "version": "2025-06-18"}]}
NO_TOOLS: Final[Mapping[str, list[str]]] = {"tools": []}
SERVER: Final[Mapping[str, object]] = {
    "id": "k",
    "type": "mcp_server",
    "name": "n",
    "version": "1",
    "endpoint": "https://example.org",
    "mcp_server_fields": NO_TOOLS,
}
REMEMBERED: Final = 12

Step = tuple[str, Mapping[str, object]]


@dataclass
class Talk:
    """One agent with what it has said so far, which later steps refer to."""

    agent: Agent
    source: random.Random
    proven: bool
    turn: int = 0
    requests: list[str] = field(default_factory=list[str])
    data: list[str] = field(default_factory=list[str])

    async def begin(self) -> bool:
        """Shakes hands; whether there is a session now."""
        claims = {**WRAPS, **(PROVEN if self.proven else {})}
        answer = await self.agent.hello(methods=[*sorted(OFFERED_METHODS), *WRAPPED], claims=claims)
        return isinstance(answer, ServerHello)

    def step(self) -> Step:
        """Something that this agent might say now."""
        made = self.source.choice((self._tool, self._result, self._message, self._wrapped, self._turn, self._other))()
        if self.source.random() < 0.1 and self.requests:
            return made[0], {**made[1], "request_id_ref": self.source.choice(self.requests)}
        return made

    def turn_id(self) -> str | None:
        """The turn that a step says it belongs to."""
        return self.source.choice([None, f"t{self.turn}", f"t{self.turn}", f"t{self.turn - 1}"])

    def request_id(self) -> str:
        """A new id, which later steps may refer to; now and then an old one."""
        if self.requests and self.source.random() < 0.05:
            return self.source.choice(self.requests)
        made = str(uuid4())
        self.requests = [*self.requests[-REMEMBERED:], made]
        return made

    def _datum(self) -> dict[str, object]:
        name = f"d{self.source.randrange(1_000)}"
        parents = self.source.sample(self.data, min(len(self.data), self.source.randrange(3)))
        self.data = [*self.data[-REMEMBERED:], name]
        return provenance(name, self.source.choice(ORIGINS), *parents)

    def _tool(self) -> Step:
        arguments: dict[str, object] = {"command": {"value": "ls", "provenance": self._datum()}}
        if self.source.random() < 0.3:
            arguments["api_key"] = {"value": "k", "provenance": self._datum()}
        return "steps/toolCallRequest", {"tool": {"name": self.source.choice(TOOLS)}, "arguments": arguments}

    def _result(self) -> Step:
        return "steps/toolCallResult", result(*(self._datum() for _ in range(self.source.randrange(3))))

    def _message(self) -> Step:
        return self.source.choice(["steps/userMessage", "steps/agentResponse"]), said(self._datum())

    def _wrapped(self) -> Step:
        method, number = self.source.choice(WRAPPED), self.source.choice([1, 2, 1.5, "a", None])
        if self.source.random() < 0.3:
            return method, {"jsonrpc": "2.0", "id": number, "result": {"content": []}}
        name = method.split("/", 1)[1].removeprefix("MCP/")
        parameters = {"name": self.source.choice(TOOLS), "arguments": {"path": "/"}}
        return method, {"jsonrpc": "2.0", "id": number, "method": name, "params": parameters}

    def _turn(self) -> Step:
        if self.source.random() < 0.5:
            self.turn += 1
            parent = {"parent_turn_id": f"t{self.turn - 1}"} if self.source.random() < 0.3 else {}
            return "steps/turnStart", {"turn_id": f"t{self.turn}", "triggered_by": "user_message", **parent}
        outcome = self.source.choice(["completed", "error", "deferred", "denied_at_start", "interrupted"])
        summed = summary(*self.data[-2:], name=f"s{self.source.randrange(1_000)}")
        return "steps/turnEnd", {"turn_id": f"t{self.turn}", "outcome": outcome, "step_count": 3, **summed}

    def _other(self) -> Step:
        intent = {
            "raw": "tidy",
            "scope_mode": "strict",
            "parsed": [{"tool": "shell"}],
            "parser_provenance": self._datum(),
        }
        bom = {**AGBOM, "components": [SERVER]}
        sub = {"subagent_session_id": str(uuid4()), "parent_session_id": self.agent.session_id, "parent_step_id": "r"}
        more: list[Step] = [
            ("steps/sessionStart", {"intent": intent}),
            ("steps/agentTrigger", {"trigger_type": "scheduled", "intent": intent}),
            ("agbom/snapshot", {"agbom": bom}),
            ("agbom/changed", {"full_snapshot": bom}),
            ("steps/subagentStart", {**sub, "intent_derivation": "derived", "intent": intent, "chain_hash": HASH}),
            ("steps/skillRegister", {"skill_id": "k", "definition": {"digest": DIGEST}, "declared_capabilities": []}),
            ("steps/memoryStore", {"content": {"value": 1, "provenance": self._datum()}}),
            ("system/ping", {"echo": "x"}),
        ]
        plain = [(method, payload) for method, payload in PAYLOADS.items() if method != "steps/sessionEnd"]
        return self.source.choice([*more, self.source.choice(plain)])


def decide_something(here: House, source: random.Random) -> None:
    """An approver answers a question, if there is one."""
    desk, now_ms = SqliteGuardianDesk(here.path), epoch_ms(here.clock.now())
    waiting = desk.approvals(status=ApprovalStatus.PENDING, after=0, limit=50, now_ms=now_ms)
    if not waiting:
        return
    _, approval = source.choice(waiting)
    said_so = ApprovalAnswer(source.choice(["approve", "deny"]), source.choice(["this_request", "session"]))
    try:
        desk.decide(approval.approval_id, said_so, OPERATOR, now_ms)
    except ApprovalRefused:
        return
