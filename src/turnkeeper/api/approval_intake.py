"""From a request body to an answer: what a person says to an approval, what an app says to its tool's call.

Answers for checked, typed values with the raw text of what is passed on. Holds no rule about who may say what.
"""

from typing import Final, cast

from turnkeeper.acs.strictjson import JsonValue
from turnkeeper.api.bodies import JsonBody
from turnkeeper.api.deps import ApiSettings
from turnkeeper.api.fields import Fields
from turnkeeper.turns.approvals import (
    MAX_CONTEXT_BYTES,
    MAX_NOTE_CHARACTERS,
    ApprovalAnswer,
    ApprovalWord,
    DecidedBy,
    Remember,
)
from turnkeeper.turns.pausing import ToolAnswer

HASH_CHARACTERS: Final = 64
MAX_INPUT_BYTES: Final = 262_144
MAX_ID_CHARACTERS: Final = 100


def parse_decision(body: JsonBody, by: DecidedBy) -> ApprovalAnswer:
    """What is decided about an approval. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close({"decision", "input_hash", "modified_input", "context", "remember", "note"}, {})
    word = fields.choice("decision", ("approve", "deny"), "")
    if not fields.has("decision"):
        fields.note("decision", "invalid_field", "/decision is required: approve or deny")
    input_hash = fields.text("input_hash", max_characters=HASH_CHARACTERS)
    modified = fields.raw_object("modified_input", body.slices, max_bytes=MAX_INPUT_BYTES)
    context = fields.raw_object("context", body.slices, max_bytes=MAX_CONTEXT_BYTES)
    remember = fields.choice("remember", ("once", "session"), "once")
    note = fields.text("note", max_characters=MAX_NOTE_CHARACTERS, one_line=False)
    for name, value in (("modified_input", modified), ("context", context)):
        if word == "deny" and value is not None:
            fields.note(name, "invalid_field", f"/{name} goes with approve")
    if remember == "session" and (modified is not None or word == "deny"):
        fields.note("remember", "invalid_field", "/remember session goes with approving the input as it is")
    fields.finish()
    return ApprovalAnswer(
        cast("ApprovalWord", word), by, input_hash, modified, context, cast("Remember", remember), note
    )


def parse_tool_result(body: JsonBody, settings: ApiSettings) -> tuple[str, ToolAnswer]:
    """The call that is answered and what its tool gave. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close({"tool_call_id", "output", "error"}, {})
    tool_call_id = fields.required_text("tool_call_id", max_characters=MAX_ID_CHARACTERS)
    error = fields.text("error", max_characters=settings.text_bytes, one_line=False)
    output = _output(fields.value("output"), body) if fields.has("output") else None
    if (output is None) == (error is None):
        fields.note_whole("invalid_field", "needs either output or error")
    if len((output or error or "").encode()) > settings.text_bytes:
        fields.note("output", "invalid_field", f"/output is longer than {settings.text_bytes} bytes")
    fields.finish()
    return tool_call_id, ToolAnswer(output, error)


def _output(value: JsonValue, body: JsonBody) -> str:
    # The agent reads text; anything else is told as the JSON text that was sent.
    return value if isinstance(value, str) else body.slices["output"]
