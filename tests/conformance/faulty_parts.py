"""Parts with a mistake in each: what stands where the right part stood.

Every function gets the part that it replaces and gives the faulty one. `seeded_faults` says where each belongs.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from turnkeeper.acs import Decision, Disposition, KeyMatch, canonicalize, request_hash
from turnkeeper.acs.obedience import Course
from turnkeeper.guardian.dispositions import Given
from turnkeeper.guardian.windows import Placement, TurnWindow


def always(value: object) -> Callable[[Any], Any]:
    """A function that says the same whatever it is asked."""

    def answer(*_: object, **__: object) -> object:
        return value

    return lambda _: answer


def skipped_signature(_: Any) -> Any:
    def verify(document: Any, keyring: Any) -> KeyMatch:
        key_id = str(document["params"].get("signature", {}).get("key_id", "default"))
        key = keyring.session_key(key_id, document["params"]["metadata"]["session_id"])
        return KeyMatch(key_id, key, request_hash(document["params"]))

    return verify


def any_label(original: Any) -> Any:
    def session_key(self: Any, key_id: str, session_id: str) -> Any:
        return original(self, key_id if key_id in self.key_ids else min(self.key_ids), session_id)

    return session_key


def linked_in_hex(_: Any) -> Any:
    def link(entry: Mapping[str, object], previous: str | None, _: object = None) -> dict[str, object]:
        digest = hashlib.sha256(canonicalize(entry) + (previous or "").encode()).hexdigest()
        return dict(entry) | {"previous_hash": previous, "entry_hash": digest}

    return link


def linked_after_zeros(original: Any) -> Any:
    def link(entry: Mapping[str, object], previous: str | None, _: object = None) -> dict[str, object]:
        return original(entry, previous or "0" * 64) | {"previous_hash": previous}

    return link


def without_head(original: Any) -> Any:
    def render(call: Any, decision: Decision, _: str | None) -> bytes:
        return original(call, decision, None)

    return render


def unsigned(original: Any) -> Any:
    def render(error: Any, rpc_id: Any, _: object) -> bytes:
        return original(error, rpc_id, None)

    return render


def answered_at_once(_: Any) -> Any:
    async def answer_call(self: Any, call: Any) -> bytes:
        live, used = await self._find(call)
        taken = self._desk.take(call, live, used, await self._look_up(call))
        self._commit_step(taken)
        return taken.record.response

    return answer_call


def raised(_: Any) -> Any:
    def refused(_call: Any, _live: Any, error: Exception) -> None:
        raise error

    return refused


def forgetting(original: Any) -> Any:
    def load(self: Any, session_id: str, max_ids: int) -> Any:
        stored = original(self, session_id, max_ids)
        return None if stored is None else replace(stored, request_ids=(), nonces=(), complete=True)

    return load


def starting_anew(_: Any) -> Any:
    def start(_window: Any, turns: int, request: Any, _deferred: Any) -> Placement:
        turn_id = str(request.payload["turn_id"])
        return Placement(TurnWindow(turn_id, turns + 1), turn_id, opened=True)

    return start


def closing_any(_: Any) -> Any:
    def end(window: TurnWindow | None, _: Any) -> Placement:
        return Placement(None, None if window is None else window.turn_id, closed=window)

    return end


def uncounted(_: Any) -> Any:
    def counted(self: TurnWindow, **_: bool) -> TurnWindow:
        return self

    return counted


def failing_open(original: Any) -> Any:
    def evaluate(engine: Any, facts: Any) -> Decision:
        decision = original(engine, facts)
        failed = "evaluation_failed" in decision.reason_codes
        return Decision(Disposition.ALLOW) if failed else decision

    return evaluate


def telling(_: Any) -> Any:
    def evaluate(engine: Any, facts: Any) -> Decision:
        try:
            return engine.evaluate(facts)
        except Exception as error:  # noqa: BLE001  the fault is that a failure tells its detail
            return Decision(Disposition.DENY, str(error), ("evaluation_failed",), (engine.reference,))

    return evaluate


def as_the_policy_says(_: Any) -> Any:
    def give(_spec: Any, decision: Decision, _payload: Any, _to: Any) -> Given:
        return Given(decision)

    return give


def never_closed(original: Any) -> Any:
    def advanced(*given: Any, **more: Any) -> Any:
        return replace(original(*given, **more), closed=False)

    return advanced


def found_anywhere(_: Any) -> Any:
    def with_reference(_call: Any, _live: Any, _used: Any, looked_up: Any) -> Any:
        return replace(looked_up, referenced_method="steps/toolCallRequest")

    return with_reference


def rising(_: Any) -> Any:
    def lowest(_: str, second: str) -> str:
        return second

    return lowest


def taken_as_it_is(_: Any) -> Any:
    def unmodified(_method: str, payload: Any, _code: str, _why: str) -> Course:
        return Course("go_on", payload)

    return unmodified


def lenient(_: Any) -> Any:
    def parse(body: bytes, _: Any) -> Any:
        return orjson.loads(body)

    return parse


def any_input(_: Any) -> Any:
    def digest(_: Any) -> str:
        return "0" * 64

    return digest


def never_used(original: Any) -> Any:
    def using(memory: Any, resubmission: Any, grant: Any) -> Any:
        changed = original(memory, resubmission, grant)
        asked = {name: replace(one, used=False) for name, one in changed.kept.asked.items()}
        return changed.keeping(asked=asked)

    return using


def unbounded(_: Any) -> Any:
    def defer(_spec: Any, decision: Decision, _to: Any) -> Given:
        return Given(decision)

    return defer


def as_it_was(_: Any) -> Any:
    def original(_ruling: Any, arguments: Any) -> Any:
        return arguments

    return original


def short_by_one(original: Any) -> Any:
    async def union(self: Any, session_id: str, turn_id: str) -> Any:
        return (await original(self, session_id, turn_id))[1:]

    return union
