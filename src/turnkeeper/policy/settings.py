"""What a policy says about engines other than the built-in rules. Pure."""

from dataclasses import dataclass
from typing import Final

from turnkeeper.policy.details import WRAPPED_HOOK, is_wrapped
from turnkeeper.policy.document import mapping, rejected, texts, whole_number

MAX_DEADLINE_MS: Final = 10_000
DEFAULT_DEADLINE_MS: Final = 500

_KEYS = frozenset({"hooks", "deadline_ms"})


@dataclass(frozen=True, slots=True)
class HostedSettings:
    """Which hooks an engine is asked about, and how long it may take; past that the step is denied."""

    hooks: frozenset[str]
    deadline_ms: int = DEFAULT_DEADLINE_MS

    def concern(self, hook: str) -> bool:
        """Whether the engine is asked about a hook, or about a method of a wrapped protocol."""
        return hook in self.hooks or (WRAPPED_HOOK in self.hooks and is_wrapped(hook))


def read_engines(value: object, path: str, known_hooks: frozenset[str]) -> HostedSettings | None:
    """The settings of Cedar; None where the policy names no engine. Raises `PolicyRejected`."""
    members = mapping(value, path, frozenset({"cedar"}))
    if "cedar" not in members:
        return None
    place = f"{path}.cedar"
    cedar = mapping(members["cedar"], place, _KEYS, required=("hooks",))
    hooks = texts(cedar, "hooks", place)
    for index, hook in enumerate(hooks):
        if hook not in known_hooks and hook != WRAPPED_HOOK and not is_wrapped(hook):
            raise rejected(
                f"{place}.hooks[{index}]", f"{hook!r} is not a hook; one of {', '.join(sorted(known_hooks))}"
            )
    deadline_ms = whole_number(
        cedar.get("deadline_ms", DEFAULT_DEADLINE_MS), f"{place}.deadline_ms", 1, MAX_DEADLINE_MS
    )
    return HostedSettings(frozenset(hooks), deadline_ms)
