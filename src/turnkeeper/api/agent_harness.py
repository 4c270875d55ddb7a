"""The `harness` of an agent that is created: what runs its loop, within what the operator lends.

Answers for a command that begins with a program of the operator's list, for a client that is installed, and for no
tools of ours beside those that a client brings along.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, cast

from turnkeeper.acs.strictjson import JsonObject
from turnkeeper.api.fields import Fields
from turnkeeper.turns.model import BUILTIN, HARNESS_KINDS, HarnessChoice, HarnessKind

MAX_WORDS: Final = 64
MAX_WORD_CHARACTERS: Final = 4_096


@dataclass(frozen=True, slots=True)
class HarnessOffer:
    """What may be chosen beside the built-in loop: programs by their paths, clients by their kinds."""

    programs: frozenset[str] = frozenset()
    clients: frozenset[str] = frozenset()


BUILTIN_ALONE: Final = HarnessOffer()


def parse_harness(agent: Fields, offer: HarnessOffer) -> HarnessChoice:
    """What the agent asks for; what is wrong with it, or not lent, is noted."""
    fields = agent.object("harness")
    if fields is None:
        return BUILTIN
    fields.close({"kind", "command"}, {})
    kind = cast("HarnessKind", fields.choice("kind", HARNESS_KINDS, "builtin"))
    command = _command(fields)
    if kind == "command":
        _check_program(fields, command, offer.programs)
    elif command:
        fields.note("command", "invalid_field", f"{fields.pointer('command')} goes with the kind command alone")
    choice = HarnessChoice(kind, command)
    if choice.is_client:
        _check_client(agent, fields, kind, offer.clients)
    return choice


def harness_document(choice: HarnessChoice) -> JsonObject:
    """An agent's `harness` as it is shown, which is also how it may be sent."""
    return {"kind": choice.kind, "command": list(choice.command) or None}


def _command(fields: Fields) -> tuple[str, ...]:
    value = fields.value("command")
    if value is None:
        return ()
    if not isinstance(value, list) or not value or len(value) > MAX_WORDS:
        fields.note("command", "invalid_field", f"{fields.pointer('command')} is not a list of 1 to {MAX_WORDS} words")
        return ()
    words = [word for word in value if isinstance(word, str) and "\0" not in word and len(word) <= MAX_WORD_CHARACTERS]
    if len(words) < len(value):
        what = f"has a word that is no text of at most {MAX_WORD_CHARACTERS} characters without NUL"
        fields.note("command", "invalid_field", f"{fields.pointer('command')} {what}")
    return tuple(words)


def _check_program(fields: Fields, command: tuple[str, ...], programs: Collection[str]) -> None:
    if not command:
        if fields.value("command") is None:
            fields.note("command", "invalid_field", f"{fields.pointer('command')} is required: a program and its words")
        return
    if command[0] not in programs:
        lent = ", ".join(sorted(programs)) or "none"
        fields.note("command", "harness_not_lent", f"the operator lends no program {command[0][:200]!r}; lent: {lent}")


def _check_client(agent: Fields, fields: Fields, kind: str, clients: Collection[str]) -> None:
    if kind not in clients:
        installed = ", ".join(sorted(clients)) or "none"
        fields.note("kind", "harness_not_lent", f"no client {kind} is installed here; installed: {installed}")
    if agent.value("tools"):
        agent.note("tools", "invalid_field", f"/tools is not empty, and {kind} brings its own tools")
    if agent.value("mcp_servers"):
        agent.note("mcp_servers", "invalid_field", f"/mcp_servers is not empty, and {kind} brings its own tools")
