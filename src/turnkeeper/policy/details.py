"""What a rule that modifies, asks or defers says beside its decision, checked when it is loaded.

Answers for details that pass the standard's schemas (ACS 6.2, 6.3 and 9) and that fit the hooks of their rule, with
every default written out. Pure.
"""

from collections.abc import Mapping
from typing import Final, cast

from turnkeeper.acs import METHODS, Disposition, ModificationsRejected, check_modifications, hook_spec
from turnkeeper.acs.schemas import SchemaViolation, validator
from turnkeeper.policy.document import mapping, one_of, optional_text, rejected, sequence, texts, whole_number

MAX_QUESTION_CHARACTERS: Final = 1_000
MAX_OPTIONS: Final = 20
MAX_WAIT_SECONDS: Final = 7 * 24 * 3600

DETAILED: Final[Mapping[Disposition, str]] = {
    Disposition.MODIFY: "modify",
    Disposition.ASK: "ask",
    Disposition.DEFER: "defer",
}
"""The decisions that carry details, and the key of a rule under which they stand."""

ADDITIONAL_CONTEXT: Final = "additional_context"
WRAPPED_HOOK: Final = "protocols/MCP/*"

_TOOL_CALL = "toolCallRequest"
_WITH_CONTENT = frozenset(
    {
        "userMessage",
        "agentResponse",
        "memoryStore",
        "toolCallResult",
        "knowledgeRetrieval",
        "memoryContextRetrieval",
        "postCompact",
    }
)
_ASK_KEYS = frozenset(
    {"approver", "question", "context", "options", "timeout_seconds", "timeout_disposition", "intent_extension"}
)
_DEFER_KEYS = frozenset(
    {"reason", "resolution_method", "resolution_timeout_ms", "timeout_decision", "required_context"}
)
_EXTENSION_KEYS = frozenset({"capabilities", "scope"})


def is_wrapped(hook: str) -> bool:
    """Whether it names one method of a wrapped protocol."""
    return hook not in METHODS and f"steps/{hook}" not in METHODS and hook_spec(hook) is not None


def check_hooks(decision: Disposition, hooks: frozenset[str], path: str) -> None:
    """Raises `PolicyRejected` where a rule of this decision speaks about a hook that does not permit it."""
    if decision not in DETAILED:
        return
    if not hooks:
        raise rejected(f"{path}.hooks", f"is required where the decision is {decision}: few hooks permit it")
    for hook in sorted(hooks):
        if decision not in _permitted(hook):
            raise rejected(f"{path}.hooks", f"names {hook}, to which nobody may answer {decision}")


def read_details(
    members: Mapping[str, object], decision: Disposition, hooks: frozenset[str], path: str
) -> Mapping[str, object] | None:
    """The details of a rule, None for a decision that has none. Raises `PolicyRejected`."""
    for other, key in DETAILED.items():
        if key in members and other is not decision:
            raise rejected(f"{path}.{key}", f"belongs to a rule whose decision is {other}")
    key = DETAILED.get(decision)
    if key is None:
        return None
    place = f"{path}.{key}"
    if key not in members:
        raise rejected(place, f"is required where the decision is {decision}")
    if decision is Disposition.MODIFY:
        return _modify(members[key], hooks, place)
    return _ask(members[key], place) if decision is Disposition.ASK else _defer(members[key], place)


def _permitted(hook: str) -> frozenset[Disposition]:
    spec = METHODS.get(f"steps/{hook}") or hook_spec(hook)
    return spec.permitted if spec is not None else frozenset(Disposition)


def _modify(value: object, hooks: frozenset[str], path: str) -> Mapping[str, object]:
    modifications = mapping(value, path, None)
    try:
        check_modifications(modifications)
    except ModificationsRejected as error:
        raise rejected(path, f"cannot be used: {error.message}") from error
    _checked("modifications", modifications, path)
    if "modified_content" in modifications and not hooks <= _WITH_CONTENT:
        raise rejected(f"{path}.modified_content", f"has a place only in {', '.join(sorted(_WITH_CONTENT))}")
    if "parameter_overrides" in modifications and hooks - {_TOOL_CALL}:
        raise rejected(f"{path}.parameter_overrides", f"has a place only in {_TOOL_CALL}")
    return modifications


def _ask(value: object, path: str) -> Mapping[str, object]:
    members = mapping(value, path, _ASK_KEYS, required=("approver", "question", "timeout_seconds"))
    optional_text(members, "question", path, MAX_QUESTION_CHARACTERS)
    whole_number(members["timeout_seconds"], f"{path}.timeout_seconds", 1, MAX_WAIT_SECONDS)
    approver = mapping(members["approver"], f"{path}.approver", None, required=("type", "id"))
    optional_text(approver, "id", f"{path}.approver", MAX_QUESTION_CHARACTERS)
    if len(texts(members, "options", path)) > MAX_OPTIONS:
        raise rejected(f"{path}.options", f"has more than {MAX_OPTIONS} options")
    if "intent_extension" in members:
        _extension(members["intent_extension"], f"{path}.intent_extension")
    details = {"timeout_disposition": Disposition.DENY.value, **members}
    return _checked("ask-details", details, path)


def _extension(value: object, path: str) -> None:
    # Who approved is known once somebody has: a rule cannot claim it.
    members = mapping(value, path, _EXTENSION_KEYS, required=("capabilities", "scope"))
    for index, item in enumerate(sequence(members["capabilities"], f"{path}.capabilities")):
        capability = mapping(item, f"{path}.capabilities[{index}]", frozenset({"tool", "operation", "resource"}))
        if not capability:
            raise rejected(f"{path}.capabilities[{index}]", "permits everything; name a tool, operation or resource")


def _defer(value: object, path: str) -> Mapping[str, object]:
    members = mapping(value, path, _DEFER_KEYS, required=("reason", "resolution_method", "resolution_timeout_ms"))
    whole_number(members["resolution_timeout_ms"], f"{path}.resolution_timeout_ms", 1, MAX_WAIT_SECONDS * 1_000)
    texts(members, "required_context", path)
    if members["resolution_method"] == ADDITIONAL_CONTEXT and "required_context" not in members:
        raise rejected(f"{path}.required_context", f"is required where the method is {ADDITIONAL_CONTEXT}")
    details = {"timeout_decision": Disposition.DENY.value, **members}
    one_of(details["timeout_decision"], f"{path}.timeout_decision", ("deny", "ask"))
    return _checked("defer-details", details, path)


def _checked(schema: str, details: Mapping[str, object], path: str) -> Mapping[str, object]:
    try:
        validator(schema).check(dict(details))
    except SchemaViolation as violation:
        pointer = cast("str", violation.detail["pointer"]).replace("/", ".")
        raise rejected(f"{path}{pointer}", f"is not what the standard asks for: {violation.message}") from violation
    return details
