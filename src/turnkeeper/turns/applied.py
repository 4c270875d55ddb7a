"""What the platform goes on with once a Guardian has changed a step (ACS 6.3, contract 5.2 and 16.3).

Pure. Answers for reading the changed values back, and for noticing a change that nothing here would go on with: such a
MODIFY cannot be applied and is a denial (house rule 5).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias, cast

from turnkeeper.acs import JsonValue
from turnkeeper.acs.values import signable
from turnkeeper.turns.payloads import AGENT_RESPONSE, TOOL_CALL_REQUEST, TOOL_CALL_RESULT, USER_MESSAGE

Payload: TypeAlias = Mapping[str, object]
Part: TypeAlias = Mapping[str, object]

_CARRIED_IN: Final[Mapping[str, str]] = {
    USER_MESSAGE: "content",
    TOOL_CALL_REQUEST: "arguments",
    TOOL_CALL_RESULT: "outputs",
    AGENT_RESPONSE: "content",
}
_BARE_TEXT: Final = frozenset({"type", "value"})


def is_applicable(method: str, sent: Payload, changed: Payload) -> bool:
    """Whether everything that was changed is a value that the platform takes from the payload and goes on with."""
    member = _CARRIED_IN.get(method)
    if member is None:
        return True
    return _rest(sent, member) == _rest(changed, member) and _fits(sent[member], changed[member])


def text_of(changed: Payload) -> str:
    """The text of a changed userMessage or agentResponse."""
    return str(_parts(changed, "content")[0]["value"])


def result_of(changed: Payload) -> str | None:
    """The result of a changed agentResponse (JSON text as it came); None where one text replaced all of it."""
    results = [part for part in _parts(changed, "content")[1:] if part["type"] == "text"]
    return str(results[0]["value"]) if results else None


def keeps_files(changed: Payload) -> bool:
    """Whether the files of a changed step are still in it; one text in the place of everything leaves none."""
    return any(part["type"] == "file" for part in _parts(changed, "content"))


def summary_of(changed: Payload) -> str:
    """The summary of a changed postCompact."""
    return str(cast("Mapping[str, object]", changed["summary"])["value"])


def output_of(changed: Payload) -> str:
    """The output of a changed toolCallResult."""
    return str(_parts(changed, "outputs")[0]["value"])


def arguments_of(changed: Payload, original: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """The arguments of a changed toolCallRequest. One that is as it was sent is the agent's own, number for number."""
    after = cast("Mapping[str, Mapping[str, JsonValue]]", changed["arguments"])
    return {
        name: original[name] if _same(member["value"], signable(original[name])) else member["value"]
        for name, member in after.items()
    }


def input_of(changed: Payload, original: Mapping[str, JsonValue]) -> str:
    """The same as text, as an agent could have written it."""
    return json.dumps(arguments_of(changed, original), ensure_ascii=False, separators=(",", ":"))


def _rest(payload: Payload, member: str) -> dict[str, object]:
    return {name: value for name, value in payload.items() if name != member}


def _fits(sent: object, changed: object) -> bool:
    if isinstance(changed, list) and isinstance(sent, list):
        parts = cast("list[Part]", changed)
        return [_label(part) for part in parts] == [_label(part) for part in cast("list[Part]", sent)] or (
            len(parts) == 1 and _BARE_TEXT.issuperset(parts[0])
        )
    before, after = cast("Mapping[str, Part]", sent), cast("Mapping[str, Part]", changed)
    return {name: _label(part) for name, part in before.items()} == {name: _label(part) for name, part in after.items()}


def _label(part: Part) -> dict[str, object]:
    # A file is what it is: another value in its place is none that could be gone on with.
    return {name: value for name, value in part.items() if name != "value" or part.get("type") == "file"}


def _parts(payload: Payload, member: str) -> Sequence[Part]:
    return cast("Sequence[Part]", payload[member])


def _same(left: object, right: object) -> bool:
    return type(left) is type(right) and repr(left) == repr(right)
