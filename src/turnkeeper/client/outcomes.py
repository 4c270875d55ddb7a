"""What a step came to: it may go on, it may not, or it waits for somebody (ACS 6, 6.4, 9).

Pure values. Must never let an agent confuse a decision with a missing one: `proceeded` says that nobody decided.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from turnkeeper.acs import Verdict

PendingKind: TypeAlias = Literal["ask", "defer"]
ExpiryAction: TypeAlias = Literal["allow", "deny", "ask"]


@dataclass(frozen=True, slots=True)
class Allowed:
    """The step may go on, with `payload` and nothing else.

    `request_id` is None where nothing was sent. `modified` says that the Guardian changed the payload; `proceeded`
    that nobody decided and a posture let the step go on; `verdict` is the Guardian's word where there is one.
    """

    request_id: str | None
    payload: Mapping[str, object]
    verdict: Verdict | None = None
    modified: bool = False
    proceeded: bool = False


@dataclass(frozen=True, slots=True)
class Denied:
    """The step must not go on. `verdict` is None where it was not the Guardian who said so."""

    request_id: str | None
    reasoning: str
    reason_codes: tuple[str, ...] = ()
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Pending:
    """The step waits: for an approver (ASK, ACS 9) or for whatever a DEFER names (ACS 6.1).

    `request_id` names the step in every later try. `expires_at_ms` is monotonic time of the client that asked; then
    `on_expiry` applies. `polled` says whether sending the step again can bring the answer before that.
    """

    kind: PendingKind
    session_id: str
    turn_id: str | None
    method: str
    payload: Mapping[str, object]
    request_id: str
    question: str
    details: Mapping[str, object]
    expires_at_ms: int
    on_expiry: ExpiryAction
    polled: bool


Outcome: TypeAlias = Allowed | Denied | Pending
