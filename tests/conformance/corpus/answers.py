"""What is said of a question of the public corpus: a verdict and, for a refusal, a name of the standard's registry.

A policy's denial has no code on the wire. The corpus names one for it all the same, always the same one, and so do we.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast
from uuid import NAMESPACE_URL, UUID, uuid5

from turnkeeper.acs import AcsErrorCode, Disposition

Question: TypeAlias = Mapping[str, Any]

DENIED_BY_POLICY: Final = AcsErrorCode.CAPABILITY_NOT_NEGOTIATED.name
CHAIN_MISMATCH: Final = AcsErrorCode.CHAIN_MISMATCH.name
SIGNATURE_INVALID: Final = AcsErrorCode.SIGNATURE_INVALID.name


@dataclass(frozen=True, slots=True)
class Said:
    """One answer. `why` is for people and is never compared."""

    verdict: str
    code: str | None = None
    why: str = ""

    def to_document(self) -> dict[str, object]:
        """As the corpus's runner reads it."""
        return {"verdict": self.verdict, "code": self.code, "why": self.why}


def allowed(why: str = "") -> Said:
    """Our parts do the same, or let it pass."""
    return Said("allow", None, why)


def denied(code: str | None, why: str) -> Said:
    """Our parts refuse it, or do something else."""
    return Said("deny", code, why)


def unmeasurable(why: str) -> Said:
    """Nothing that we have, or nothing that there could be, can tell."""
    return Said("unmeasurable", None, why)


def not_claimed(profile: str) -> Said:
    """The question is about a profile that Turnkeeper does not claim."""
    return unmeasurable(f"{profile} is not claimed")


def agreed(*, same: bool, why: str, code: str | None = None) -> Said:
    """What was recorded against what ours did in its place."""
    return allowed(why) if same else denied(code, why)


def of_answer(document: Mapping[str, Any]) -> Said:
    """The Guardian's answer on the wire in the corpus's words."""
    if "error" in document:
        error = document["error"]
        return denied(AcsErrorCode(int(error["code"])).name, str(error["data"]["reason"]))
    result = document["result"]
    decision = result.get("decision")
    if decision in (None, Disposition.ALLOW, Disposition.MODIFY):
        return allowed(str(decision))
    codes = cast("list[str]", result.get("reason_codes", []))
    code = CHAIN_MISMATCH if "chain_mismatch" in codes else DENIED_BY_POLICY
    return denied(code, f"{decision}: {', '.join(codes)}")


def as_uuid(name: str) -> str:
    """The id itself, or a UUID that stands for it: equal names stay equal."""
    try:
        return str(UUID(name))
    except ValueError:
        return str(uuid5(NAMESPACE_URL, name))
