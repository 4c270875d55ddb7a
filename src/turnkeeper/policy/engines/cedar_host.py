"""The process that evaluates Cedar: `python -m turnkeeper.policy.engines.cedar_host`, spoken to over its pipes.

One JSON document a line. The first line in holds `policies`; the first line out says `ready` or `refused`. After that
each question with a `number` is answered under that number. Imports nothing of Turnkeeper's, opens nothing, and ends
with its input. A fault is answered as one, and never as a decision.
"""

import json
import sys
from collections.abc import Mapping
from typing import BinaryIO, Final, cast

import cedarpy

_ANNOTATIONS: Final = ("id", "reasoning", "reason_code", "delegate_to")
_DECISIONS: Final = {cedarpy.Decision.Allow: "allow", cedarpy.Decision.Deny: "deny"}


class CedarHost:
    """Parsed policies, and what their authors wrote beside them. Raises `ValueError` for what is not Cedar."""

    def __init__(self, policies: str) -> None:
        self._policies = cedarpy.PolicySet.from_str(policies)
        self._entities = cedarpy.Entities.from_json_str("[]")  # pyright: ignore[reportUnknownMemberType]  its schema is untyped
        parsed = cast("dict[str, dict[str, dict[str, object]]]", json.loads(cedarpy.policies_to_json_str(policies)))
        if parsed["templates"]:
            raise ValueError("templates are not used in policies")
        self._notes = {
            internal: _notes(internal, cast("Mapping[str, object]", policy.get("annotations") or {}))
            for internal, policy in parsed["staticPolicies"].items()
        }
        _check_ids([note["id"] for note in self._notes.values()])

    def __len__(self) -> int:
        return len(self._notes)

    def answer(self, question: dict[str, object]) -> dict[str, object]:
        """The decision on one request, the policies that determined it, and how many failed."""
        result = cedarpy.is_authorized(  # pyright: ignore[reportUnknownMemberType]  a request is an untyped dict
            question, self._policies, self._entities
        )
        return {
            "decision": _DECISIONS.get(result.decision),
            "policies": [self._notes[internal] for internal in result.diagnostics.reasons],
            "errors": len(result.diagnostics.errors),
        }


def _notes(internal: str, annotations: Mapping[str, object]) -> dict[str, str]:
    written = {name: str(annotations[name]) for name in _ANNOTATIONS if annotations.get(name)}
    return {"id": internal, **written}


def _check_ids(ids: list[str]) -> None:
    if repeated := sorted({one for one in ids if ids.count(one) > 1}):
        raise ValueError(f"two policies have the id {repeated[0]!r}")


def serve(source: BinaryIO, sink: BinaryIO) -> int:
    """Answers until the input ends."""
    try:
        host = CedarHost(json.loads(source.readline())["policies"])
    except ValueError as error:
        _write(sink, {"refused": str(error)[:500]})
        return 1
    _write(sink, {"ready": len(host)})
    for line in source:
        question = cast("dict[str, object]", json.loads(line))
        number = question.pop("number")
        _write(sink, {"number": number, **_answered(host, question)})
    return 0


def _answered(host: CedarHost, question: dict[str, object]) -> dict[str, object]:
    try:
        return host.answer(question)
    except Exception as error:  # noqa: BLE001  one engine call; a question that fails must not cost the next ones theirs
        return {"fault": type(error).__name__}


def _write(sink: BinaryIO, document: dict[str, object]) -> None:
    sink.write(json.dumps(document).encode() + b"\n")
    sink.flush()


if __name__ == "__main__":
    sys.exit(serve(sys.stdin.buffer, sys.stdout.buffer))
