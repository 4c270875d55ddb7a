"""Agents, sessions, turns, approvals, webhooks as an app sees them (contract 2 to 4).

Pure. One class per object of the contract; the members are documented there. Whatever else came is in `members`.
"""

from typing import Final

from turnkeeper.client.turn_api.documents import (
    Anything,
    Document,
    Members,
    Moment,
    OptionalMembers,
    OptionalMoment,
    OptionalText,
    OptionalWhole,
    Part,
    Parts,
    Switch,
    Text,
    Texts,
    Whole,
)
from turnkeeper.client.turn_api.spending_views import Usage

TERMINAL_STATUSES: Final = frozenset({"completed", "failed", "canceled"})
TEXT_TYPES: Final = frozenset({"message.delta", "message.snapshot", "message.completed", "reasoning.delta"})


class Agent(Document):
    """One version of an agent (contract 2.1); a version never changes."""

    __slots__ = ()

    id = Text()
    version = Whole()
    name = Text()
    model = Members()
    instructions = Text()
    tools = Anything()
    skills = Anything()
    permissions = OptionalMembers()
    limits = Members()
    budget_id = OptionalText()
    metadata = Members()
    created_at = Moment()
    archived_at = OptionalMoment()


class SessionView(Document):
    """A session (contract 2.2). `status`: idle, busy, paused, closing or closed."""

    __slots__ = ()

    id = Text()
    agent_id = Text()
    agent_version = Whole()
    status = Text()
    active_turn_id = OptionalText()
    queue_depth = Whole()
    last_sequence = Whole()
    oldest_sequence = Whole()
    title = OptionalText()
    budget = OptionalMembers()
    metadata = Members()
    created_at = Moment()
    last_active_at = Moment()
    closed_at = OptionalMoment()
    expires_at = OptionalMoment()


class Pause(Document):
    """Why a turn waits, for which approvals or tool calls, and until when."""

    __slots__ = ()

    reason = Text()
    waits_for = Texts()
    expires_at = OptionalMoment()
    deferrals = OptionalWhole()


class TurnFault(Document):
    """Why a turn failed."""

    __slots__ = ()

    type = Text()
    code = Text()
    message = Text()
    retryable = Switch()


class Output(Document):
    """What the agent said last."""

    __slots__ = ()

    text = Text()


class TurnView(Document):
    """A turn (contract 3). Of an ended one the answer is in `output`, `result` and `result_error`."""

    __slots__ = ()

    id = Text()
    session_id = Text()
    agent_id = Text()
    agent_version = Whole()
    status = Text()
    stop_reason = OptionalText()
    input = Anything()
    output_schema = Anything()
    output = Part(Output)
    result = Anything()
    result_error = OptionalText()
    usage = Part(Usage)
    metadata = Members()
    idempotency_key = OptionalText()
    budget = OptionalMembers()
    on_busy = Text()
    queue_position = OptionalWhole()
    blocked_by = OptionalMembers()
    attempt = Whole()
    max_attempts = Whole()
    repair_attempts_left = OptionalWhole()
    pause = Part(Pause)
    error = Part(TurnFault)
    parent_turn_id = OptionalText()
    retry_of = OptionalText()
    cancel_requested_at = OptionalMoment()
    created_at = Moment()
    started_at = OptionalMoment()
    ended_at = OptionalMoment()
    start_by = OptionalMoment()
    duration_ms = OptionalWhole()
    first_sequence = OptionalWhole()
    last_sequence = OptionalWhole()

    @property
    def ended(self) -> bool:
        """Whether this is its end: completed, failed or canceled."""
        return self.status in TERMINAL_STATUSES

    @property
    def text(self) -> str:
        """What the agent said last; empty before the end."""
        return "" if self.output is None else self.output.text


class Submission(Document):
    """A value that the agent submitted for the output schema."""

    __slots__ = ()

    submission = Whole()
    valid = Switch()
    value = Anything()
    errors = Anything()
    withheld = Switch()


class ToolView(Document):
    """The call that an approval is about."""

    __slots__ = ()

    name = Text()
    kind = OptionalText()
    server = OptionalText()
    input_preview = Anything()
    input_hash = OptionalText()


class Approval(Document):
    """A question that a turn waits for (contract 2.5)."""

    __slots__ = ()

    id = Text()
    kind = Text()
    session_id = Text()
    turn_id = Text()
    tool_call_id = OptionalText()
    status = Text()
    origin = Text()
    tool = Part(ToolView)
    question = OptionalText()
    reasons = Anything()
    created_at = Moment()
    expires_at = OptionalMoment()
    decided_at = OptionalMoment()
    decided_by = OptionalMembers()
    note = OptionalText()
    remember = OptionalText()


class ApprovalRule(Document):
    """An answer that holds for the same input until its session ends."""

    __slots__ = ()

    id = Text()
    session_id = Text()
    tool = Text()
    input_hash = Text()
    origin = Text()
    created_at = Moment()
    decided_by = OptionalMembers()


class SessionSnapshot(Document):
    """A session as of one event (contract 2.2)."""

    __slots__ = ()

    as_of = Whole()
    session = Part(SessionView)
    active_turn = Part(TurnView)
    queued_turns = Parts(TurnView)
    recent_turns = Parts(TurnView)
    open_approvals = Parts(Approval)
    open_messages = Anything()


class StreamToken(Document):
    """Opens streams of one session until it expires; shown once."""

    __slots__ = ()

    token = Text()
    expires_at = Moment()


class TextPiece(Document):
    """Text of a message, in `data` of the events that carry some (contract 10.3).

    `offset` counts the characters before `text` in a delta, all of them in a snapshot; a completed message has none.
    """

    __slots__ = ()

    turn_id = Text()
    message_id = Text()
    offset = OptionalWhole()
    text = Text()


class Event(Document):
    """An event's envelope (contract 10.1), whatever its type: types that this version does not know are events too.

    `sequence` is None for events outside of a session and for those that are not kept, such as pieces of text.
    """

    __slots__ = ()

    id = OptionalText()
    type = Text()
    api_version = OptionalText()
    created_at = OptionalMoment()
    source = OptionalText()
    project_id = OptionalText()
    session_id = OptionalText()
    turn_id = OptionalText()
    sequence = OptionalWhole()
    attempt = OptionalWhole()
    thread_id = OptionalText()
    data = OptionalMembers()
    data_url = OptionalText()

    @property
    def ends_turn(self) -> bool:
        """Whether this is the one terminal event of its turn."""
        return self.type.startswith("turn.") and self.type.removeprefix("turn.") in TERMINAL_STATUSES

    @property
    def piece(self) -> TextPiece | None:
        """The text that the event carries; None for all that carry none. `WrittenTexts` puts pieces together."""
        data = self.data
        return TextPiece(data) if self.type in TEXT_TYPES and data is not None else None


class WebhookEndpoint(Document):
    """An address that events are sent to (contract 2.8). `secret` is there once, in the answer that made it."""

    __slots__ = ()

    id = Text()
    url = Text()
    types = Texts()
    agent_ids = Texts()
    payload = Text()
    ordering = Text()
    api_version = Text()
    enabled = Switch()
    disabled_reason = OptionalText()
    failing_since = OptionalMoment()
    description = OptionalText()
    created_at = Moment()
    updated_at = Moment()
    secret = OptionalText()

    def __repr__(self) -> str:
        return f"WebhookEndpoint(id={self.id!r}, url={self.url!r})"


class Secret(Document):
    """A secret of the project without its value (contract 2.13)."""

    __slots__ = ()

    id = Text()
    project_id = Text()
    name = Text()
    hosts = Texts()
    created_at = Moment()


class Skill(Document):
    """One version of a skill (contract 2.13); `sha256` is its archive's."""

    __slots__ = ()

    id = Text()
    project_id = Text()
    name = Text()
    version = Whole()
    description = Text()
    sha256 = Text()
    bytes = Whole()
    created_at = Moment()


class WebhookSecret(Document):
    """A new secret, shown once, and until when the older ones sign beside it."""

    __slots__ = ()

    id = Text()
    secret = Text()
    overlap_until = OptionalMoment()


class DeliveryAttempt(Document):
    """One try of a delivery, and what came back."""

    __slots__ = ()

    attempt = Whole()
    at = Moment()
    duration_ms = OptionalWhole()
    status = OptionalWhole()
    error = OptionalText()
    response_head = OptionalText()


class WebhookDelivery(Document):
    """One event on its way to one endpoint. `tries` and `request` are there where one delivery was asked for."""

    __slots__ = ()

    id = Text()
    endpoint_id = Text()
    event_id = Text()
    event_type = Text()
    session_id = OptionalText()
    sequence = OptionalWhole()
    status = Text()
    attempts = Whole()
    last_status = OptionalWhole()
    next_attempt_at = OptionalMoment()
    created_at = Moment()
    ended_at = OptionalMoment()
    request = OptionalMembers()
    tries = Parts(DeliveryAttempt)


class ApiKey(Document):
    """An API key (contract 2.9). `secret` is there once, in the answer that made it."""

    __slots__ = ()

    id = Text()
    name = Text()
    scopes = Texts()
    agent_ids = Texts()
    limits = OptionalMembers()
    expires_at = OptionalMoment()
    last_used_at = OptionalMoment()
    created_at = Moment()
    revoked_at = OptionalMoment()
    secret = OptionalText()
    overlap_until = OptionalMoment()


class QueueState(Document):
    """The turns that are not over, in all projects (contract 2.12)."""

    __slots__ = ()

    depth = Whole()
    oldest_queued_ms = Whole()
    starting = Whole()
    running = Whole()
    paused = Whole()
    runners = Members()


class Drain(Document):
    """Whether turns are accepted; `drained` says that none is held by a worker any more (contract 2.12)."""

    __slots__ = ()

    draining = Switch()
    drained = Switch()
    since = OptionalMoment()
    reason = OptionalText()
    asked_by = OptionalMembers()
    turns = Members()
