"""What the client raises, so that an agent can tell a denial from an outage and both from a bug of its own.

Answers for one hierarchy under `ClientError`. A Guardian's answer never raises below the typed steps: outcomes are
values there (`turnkeeper.client.outcomes`), and only the steps that hand back something to work with raise instead.
"""

from turnkeeper.client.outcomes import Denied, Pending
from turnkeeper.errors import LocalProtocolError, TurnkeeperError


class ClientError(TurnkeeperError):
    """Whatever keeps an agent under a Guardian from going on."""

    code = "client_error"


class SessionNotStarted(ClientError):
    """No terms could be agreed on, and the startup posture is `refuse` (CORE-HS-14)."""

    code = "session_not_started"


class SessionRefused(SessionNotStarted):
    """The Guardian refused the session: -32000, -32001 or -32002, a decision that no posture changes (CORE-HS-15)."""

    code = "session_refused"


class StepBlocked(ClientError):
    """A step that must not go on, for now or for good."""

    code = "step_blocked"


class StepDenied(StepBlocked):
    """The step was denied, by the Guardian or because nobody decided it. `outcome` has the reasons."""

    code = "step_denied"

    def __init__(self, outcome: Denied) -> None:
        super().__init__(outcome.reasoning, detail={"reason_codes": list(outcome.reason_codes)})
        self.outcome = outcome

    @property
    def reason_codes(self) -> tuple[str, ...]:
        """What programs switch on (CORE-DISP-08)."""
        return self.outcome.reason_codes


class SessionDenied(StepDenied):
    """`steps/sessionStart` was denied: the session does not start."""

    code = "session_denied"


class TurnDenied(StepDenied):
    """`steps/turnStart` was denied: the turn has already been ended as `denied_at_start`."""

    code = "turn_denied"


class StepPending(StepBlocked):
    """The Guardian answered ASK or DEFER and the settings say `raise`. `pending` can be resolved later."""

    code = "step_pending"

    def __init__(self, pending: Pending) -> None:
        super().__init__(pending.question, detail={"request_id": pending.request_id, "kind": pending.kind})
        self.pending = pending


class StepInvalid(ClientError, LocalProtocolError):
    """A step that the standard's own schema refuses: a bug in the agent, found before anything was sent."""

    code = "step_invalid"


class ScopeOver(ClientError, LocalProtocolError):
    """A session or turn was used before it began or after it ended."""

    code = "scope_over"


class TransportFailed(ClientError):
    """No answer came back over the wire. Inside the client this becomes a decision failure, not an exception."""

    code = "transport_failed"


class AuditFailed(ClientError):
    """A record could not be written, so the step it belongs to does not go on (CORE-HON-04)."""

    code = "audit_failed"
