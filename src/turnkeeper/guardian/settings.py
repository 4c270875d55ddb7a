"""The Guardian's own settings: terms it offers and limits it keeps.

Answers for every number in one place, each with a name and a default. A setting that cannot work is refused when it
is made, not when it hurts.
"""

from dataclasses import dataclass
from typing import Final

from turnkeeper.acs import JsonLimits
from turnkeeper.acs.replay import DEFAULT_SKEW_WINDOW_MS
from turnkeeper.acs.strictjson import DEFAULT_LIMITS
from turnkeeper.errors import TurnkeeperError
from turnkeeper.guardian.capabilities import ClientEntry
from turnkeeper.guardian.provenance import DEFAULT_TRUST, TRUST_LEVELS, TrustOverride

MAX_IDENTIFIER_CHARACTERS: Final = 1_024
"""The longest agent_id and turn_id that are accepted."""


MAX_TRUST_OVERRIDES: Final = 256
MAX_CLIENT_ENTRIES: Final = 1_024


class SettingRefused(TurnkeeperError):
    """A combination of settings that cannot work."""

    code = "setting_refused"


@dataclass(frozen=True, slots=True)
class GuardianSettings:
    """How the Guardian behaves.

    `max_in_flight` requests are between authentication and answer at one time; the next is denied as `overloaded`.
    `max_batch` records share one commit. Of `max_cached_sessions` sessions the newest `max_remembered_ids` ids of
    each kind are held in memory; older sessions and ids are looked up in the store. An agent without provenance is
    refused where `policy_requires_provenance`; each of `trust_overrides` replaces the usual trust of one source.
    `clients` are those that cannot do everything, `max_deferrals` the bound of one session; a batch has at most
    `max_batch_requests` requests.
    """

    skew_window_ms: int = DEFAULT_SKEW_WINDOW_MS
    default_timeout_ms: int = 5_000
    on_decision_failure: str = "deny"
    json_limits: JsonLimits = DEFAULT_LIMITS
    max_in_flight: int = 256
    max_batch: int = 128
    max_cached_sessions: int = 512
    max_remembered_ids: int = 512
    policy_requires_provenance: bool = False
    trust_overrides: tuple[TrustOverride, ...] = ()
    clients: tuple[ClientEntry, ...] = ()
    max_deferrals: int = 3
    max_batch_requests: int = 64

    def __post_init__(self) -> None:
        limits = (self.max_in_flight, self.max_batch, self.max_cached_sessions, self.default_timeout_ms)
        if min(*limits, self.max_batch_requests) < 1 or min(self.skew_window_ms, self.max_deferrals) < 0:
            raise SettingRefused("a limit of the Guardian is below one")
        if len(self.trust_overrides) > MAX_TRUST_OVERRIDES:
            raise SettingRefused(f"there are more than {MAX_TRUST_OVERRIDES} trust overrides")
        if len(self.clients) > MAX_CLIENT_ENTRIES:
            raise SettingRefused(f"there are more than {MAX_CLIENT_ENTRIES} client entries")
        if any(override.trust not in TRUST_LEVELS for override in self.trust_overrides):
            raise SettingRefused("a trust override names no trust that there is")
        # What an agent generated has the trust of what it was made of, and nothing raises that (PROV-05).
        if any(override.origin not in DEFAULT_TRUST for override in self.trust_overrides):
            raise SettingRefused("a trust override names no origin that has a trust of its own")
        # An id in flight is known to the memory alone.
        if self.max_remembered_ids < self.max_in_flight:
            raise SettingRefused("max_remembered_ids is smaller than max_in_flight")
        if self.on_decision_failure not in ("deny", "proceed"):
            raise SettingRefused("on_decision_failure is neither deny nor proceed")
