"""The table of methods (ACS 5, ledger sections 4 and 16): schema, permitted dispositions, place in the turn.

Answers for which methods ACS defines and what may be answered to each. Which of them a Guardian offers is the
Guardian's business. Pure.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from turnkeeper.acs.decisions import Disposition

HANDSHAKE_METHOD: Final = "handshake/hello"
PING_METHOD: Final = "system/ping"
_STEPS: Final = "steps/"

_ALLOW = frozenset({Disposition.ALLOW})
_ALLOW_DENY = _ALLOW | {Disposition.DENY}
_ALLOW_MODIFY = _ALLOW | {Disposition.MODIFY}
_ALLOW_DENY_MODIFY = _ALLOW_DENY | {Disposition.MODIFY}
_ALL = frozenset(Disposition)


@dataclass(frozen=True, slots=True)
class HookSpec:
    """What the standard says about one method.

    `schema` names the payload's schema, None where the wrapped protocol has its own. `audit_only` hooks report what
    has happened and are never denied. `in_turn` is True for a step that belongs to a turn, False for a session's own,
    None for one that may be either. `writes_entry` says whether the step goes into the chain.
    """

    method: str
    schema: str | None
    permitted: frozenset[Disposition]
    audit_only: bool = False
    in_turn: bool | None = None
    writes_entry: bool = True


_TABLE = (
    HookSpec("steps/sessionStart", "hooks/session-start", _ALLOW_DENY, in_turn=False),
    HookSpec("steps/agentTrigger", "hooks/agent-trigger", _ALLOW_DENY_MODIFY, in_turn=False),
    HookSpec("steps/turnStart", "hooks/turn-start", _ALLOW_DENY, in_turn=True),
    HookSpec("steps/userMessage", "hooks/user-message", _ALLOW_DENY_MODIFY, in_turn=True),
    HookSpec("steps/knowledgeRetrieval", "hooks/knowledge-retrieval", _ALLOW_DENY_MODIFY, in_turn=True),
    HookSpec("steps/memoryContextRetrieval", "hooks/memory-context-retrieval", _ALLOW_DENY_MODIFY, in_turn=True),
    HookSpec("steps/memoryStore", "hooks/memory-store", _ALLOW_DENY_MODIFY, in_turn=True),
    HookSpec("steps/toolCallRequest", "hooks/tool-call-request", _ALL, in_turn=True),
    HookSpec("steps/toolCallResult", "hooks/tool-call-result", _ALLOW_DENY_MODIFY, in_turn=True),
    HookSpec("steps/agentResponse", "hooks/agent-response", _ALLOW_DENY_MODIFY, in_turn=True),
    HookSpec("steps/turnEnd", "hooks/turn-end", _ALLOW, audit_only=True, in_turn=True),
    HookSpec("steps/preCompact", "hooks/pre-compact", _ALLOW_DENY),
    HookSpec("steps/postCompact", "hooks/post-compact", _ALLOW_MODIFY, audit_only=True),
    HookSpec("steps/subagentStart", "hooks/subagent-start", _ALLOW_DENY),
    HookSpec("steps/subagentStop", "hooks/subagent-stop", _ALLOW, audit_only=True),
    HookSpec("steps/skillRegister", "hooks/skill-register", _ALLOW_DENY),
    HookSpec("steps/skillLoad", "hooks/skill-load", _ALLOW_DENY),
    HookSpec("steps/skillUnload", "hooks/skill-unload", _ALLOW, audit_only=True),
    HookSpec("steps/sessionEnd", "hooks/session-end", _ALLOW, audit_only=True, in_turn=False),
    HookSpec("agbom/snapshot", "hooks/agbom-snapshot", _ALLOW_DENY),
    HookSpec("agbom/changed", "hooks/agbom-changed", _ALLOW_DENY),
    HookSpec(PING_METHOD, "hooks/system-ping", _ALLOW, writes_entry=False),
)
METHODS: Final[Mapping[str, HookSpec]] = MappingProxyType({spec.method: spec for spec in _TABLE})

_WRAPPED = HookSpec("protocols/MCP/*", None, _ALL)
_MCP_METHOD = re.compile(r"(?:protocols/MCP|wrapped:mcp-[A-Za-z0-9._-]+)(?:/[A-Za-z0-9_]+)+")


def hook_spec(method: str) -> HookSpec | None:
    """What ACS says about a method; None where it defines none of that name (-32601).

    `handshake/hello` is no hook and not in the table. Any well-formed name of an MCP method is defined.
    """
    known = METHODS.get(method)
    if known is not None or _MCP_METHOD.fullmatch(method) is None:
        return known
    return replace(_WRAPPED, method=method)


def hook_name(method: str) -> str:
    """A hook's short name as rules use it: `toolCallRequest` for `steps/toolCallRequest`; others as they are."""
    return method.removeprefix(_STEPS)
