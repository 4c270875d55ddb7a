"""The session's intent (ACS 8.4, CORE-INT-01 to 04): fixed once, parsed from the user's own words alone.

Answers for the first intent and for every later one that differs. Must never let a message change what was fixed: an
approver's extension is the only growth. Pure.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Final, cast

from turnkeeper.acs import canonicalize
from turnkeeper.guardian.checks import CONTENT, Checked, Denial, Note, Step, full
from turnkeeper.guardian.memory import MAX_INTENT_BYTES, KnownCapability, KnownIntent, SessionMemory

SESSION_START: Final = "steps/sessionStart"
INTENT_MISMATCH: Final = "intent_mismatch"
INTENT_ORIGIN_NOT_USER: Final = "intent_origin_not_user"
SESSION_START_REPEATED: Final = "session_start_repeated"
USER_INPUT: Final = "user_input"


def check_intent(step: Step, memory: SessionMemory) -> Checked:
    """The rule for sessionStart and agentTrigger."""
    starts = step.request.method == SESSION_START
    notes: tuple[Note, ...] = ()
    if starts and memory.started:
        notes = (Note(SESSION_START_REPEATED, "the session was started before"),)
    stated = step.payload.get("intent")
    if stated is None:
        # A trigger fixes the intent also where it has none: what comes later was not there when the work began.
        return Checked(notes=notes, grant=partial(_granted, None, fixes=not starts, starts=starts))
    intent = cast("dict[str, object]", stated)
    if (denied := _origin_denied(intent)) is not None:
        return denied
    canonical = canonicalize(intent)
    if len(canonical) > MAX_INTENT_BYTES:
        return full(f"of an intent than {MAX_INTENT_BYTES} bytes")
    known = known_intent(intent, hashlib.sha256(canonical).hexdigest())
    if memory.kept.intent_fixed and (memory.kept.intent is None or memory.kept.intent.digest != known.digest):
        message = "a step stated another intent than the session's"
        denial = Denial(INTENT_MISMATCH, "The session's intent is fixed; only an approver extends it.")
        return Checked(denial, notes=(*notes, Note(INTENT_MISMATCH, message)))
    return Checked(notes=notes, grant=partial(_granted, known, fixes=True, starts=starts))


def known_intent(intent: Mapping[str, object], digest: str) -> KnownIntent:
    """An intent as the session keeps it."""
    parsed = cast("list[dict[str, str]] | None", intent.get("parsed"))
    return KnownIntent(
        digest,
        raw=cast("str", intent.get("raw", "")),
        scope_mode=cast("str", intent.get("scope_mode", "")),
        capabilities=None if parsed is None else capabilities_of(parsed),
    )


def capabilities_of(parsed: list[dict[str, str]]) -> tuple[KnownCapability, ...]:
    """The capabilities in `Intent.parsed`."""
    return tuple(
        KnownCapability(one.get("tool", ""), one.get("operation", ""), one.get("resource", "")) for one in parsed
    )


def check_origin(step: Step, _: SessionMemory) -> Checked:
    """The rule for an intent that a subagent is handed: it too is parsed from the user's words alone."""
    intent = cast("dict[str, object]", step.payload.get("subagent_intent", {}))
    return _origin_denied(intent) or CONTENT


def _origin_denied(intent: Mapping[str, object]) -> Checked | None:
    if "parsed" not in intent:
        return None
    origin = cast("dict[str, object]", intent["parser_provenance"])["origin"]
    if origin == USER_INPUT:
        return None
    return Checked(
        Denial(INTENT_ORIGIN_NOT_USER, f"An intent is parsed from user_input, and this one from {origin}."),
        notes=(Note(INTENT_ORIGIN_NOT_USER, f"an intent was parsed from {origin}"),),
    )


def _granted(intent: KnownIntent | None, memory: SessionMemory, *, fixes: bool, starts: bool) -> SessionMemory:
    if starts and not memory.started:
        memory = replace(memory, started=True)
    if not fixes or memory.kept.intent_fixed:
        return memory
    return memory.keeping(intent=intent, intent_fixed=True)
