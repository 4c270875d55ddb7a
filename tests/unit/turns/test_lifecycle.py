from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.turns.lifecycle import TRANSITIONS, Happening, IllegalTransition, Transition, TurnEnded, transition
from turnkeeper.turns.model import Source, StopReason, TurnOutcome, TurnStatus

ANY_CANCEL = {StopReason.CANCELED, StopReason.SUPERSEDED, StopReason.SESSION_CLOSED, StopReason.OPERATOR}
TERMINAL = [status for status in TurnStatus if status.terminal]
each_transition = pytest.mark.parametrize(
    ("key", "row"),
    TRANSITIONS.items(),
    ids=lambda each: f"row {each.row}" if isinstance(each, Transition) else str(each),
)

# The contract's table, written down a second time: row, status, happening, next, event, source, reasons, turnEnd.
TABLE = """
1   none     accepted                  queued    turn.queued           platform -                       -
2   queued   canceled_in_queue         canceled  turn.canceled         platform any_cancel              -,interrupted
3   queued   start_expired             failed    turn.failed           platform queue_expired           -,error
4   queued   denied_at_start           failed    turn.failed           platform denied_at_start         denied_at_start
4a  queued   denied_before_start       failed    turn.failed           platform denied_before_start     -
4b  queued   input_denied              failed    turn.failed           platform denied_input            error
5   queued   disposition_not_permitted failed    turn.failed           platform denied_at_start         error
6   queued   guardian_silent_at_front  failed    turn.failed           platform guardian_unavailable    -,error
7   queued   budget_gone_at_front      completed turn.completed        platform budget_reached          completed
8   queued   dispatched                starting  turn.starting         platform -                       -
9   starting started                   running   turn.started          sandbox  -                       -
10  starting start_lost                starting  -                     platform -                       -
11  starting tries_used                failed    turn.failed           platform sandbox_unavailable     -,error
12  starting canceled_while_starting   canceled  turn.canceled         platform any_cancel              -,interrupted
13  running  report_completed          completed turn.completed        sandbox  end_turn,budget_reached completed
13a running  response_denied           running   -                     platform -                       -
13b running  repairs_used              failed    turn.failed           platform denied_output           error
13c running  guardian_silent_at_end    failed    turn.failed           platform guardian_unavailable    error
14  running  report_failed             failed    turn.failed           sandbox  agent_error,model_error error
15  running  pause_began               paused    turn.paused           platform -                       -
16  running  step_deferred             paused    turn.deferred         platform -                       deferred
17  queued   cancel_asked              queued    turn.cancel_requested platform -                       -
17  starting cancel_asked              starting  turn.cancel_requested platform -                       -
17  running  cancel_asked              running   turn.cancel_requested platform -                       -
17  paused   cancel_asked              paused    turn.cancel_requested platform -                       -
18  running  cancel_acknowledged       canceled  turn.canceled         sandbox  any_cancel              interrupted
19  running  cancel_grace_over         canceled  turn.canceled         platform any_cancel              interrupted
20  running  sandbox_lost              failed    turn.failed           platform sandbox_lost            error
21  running  attempt_lost              starting  turn.retrying         platform -                       error
22  running  time_over                 failed    turn.failed           platform timeout                 error
23  paused   resolved_warm             running   turn.resumed          platform -                       -
23a starting denied_at_start           failed    turn.failed           platform denied_at_start         denied_at_start
23a paused   denied_at_start           failed    turn.failed           platform denied_at_start         denied_at_start
5   starting disposition_not_permitted failed    turn.failed           platform denied_at_start         error
5   paused   disposition_not_permitted failed    turn.failed           platform denied_at_start         error
6   starting guardian_silent_at_front  failed    turn.failed           platform guardian_unavailable    -,error
6   paused   guardian_silent_at_front  failed    turn.failed           platform guardian_unavailable    -,error
24  paused   resolved_cold             starting  turn.resumed          platform -                       -
24a paused   workspace_lost            failed    turn.failed           platform sandbox_lost            -,error
24a starting workspace_lost            failed    turn.failed           platform sandbox_lost            -,error
25  paused   expiry_denied_warm        running   turn.resumed          platform -                       -
25  paused   expiry_denied_cold        starting  turn.resumed          platform -                       -
25a paused   expiry_asks               paused    turn.paused           platform -                       -
26  paused   expiry_failed             failed    turn.failed           platform pause_expired           -,error
27  paused   canceled_while_paused     canceled  turn.canceled         platform any_cancel              -,interrupted
28  queued   internal_fault            failed    turn.failed           platform internal_error          -,error
28  starting internal_fault            failed    turn.failed           platform internal_error          -,error
28  paused   internal_fault            failed    turn.failed           platform internal_error          -,error
28  running  internal_fault            failed    turn.failed           platform internal_error          error
"""


def lines(table: str) -> list[list[str]]:
    return [line.split() for line in table.strip().splitlines()]


CONTRACT = lines(TABLE)


def key_of(line: list[str]) -> tuple[TurnStatus | None, Happening]:
    return (None if line[1] == "none" else TurnStatus(line[1])), Happening(line[2])


def row_of(line: list[str]) -> Transition:
    row, _, _, following, event, source, reasons, outcomes = line
    stop_reasons = ANY_CANCEL if reasons == "any_cancel" else {StopReason(word) for word in words(reasons) if word}
    return Transition(
        row=row,
        next=TurnStatus(following),
        event_type=words(event)[0],
        source=cast("Source", source),
        stop_reasons=frozenset(stop_reasons),
        turn_outcomes=frozenset(cast("list[TurnOutcome | None]", words(outcomes))),
    )


def words(text: str) -> list[str | None]:
    return [None if word == "-" else word for word in text.split(",")]


@pytest.mark.parametrize("line", CONTRACT, ids=[f"row {line[0]} from {line[1]}" for line in CONTRACT])
def test_a_row_of_the_contract_is_a_row_of_the_table(line: list[str]) -> None:
    assert transition(*key_of(line)) == row_of(line)


def test_the_table_has_no_row_that_the_contract_does_not_know() -> None:
    assert set(TRANSITIONS) == {key_of(line) for line in CONTRACT}


@pytest.mark.parametrize("status", TERMINAL)
@pytest.mark.parametrize("happening", list(Happening))
def test_nothing_happens_to_a_turn_that_has_ended(status: TurnStatus, happening: Happening) -> None:
    """Row 29."""
    with pytest.raises(TurnEnded):
        transition(status, happening)


def test_a_turn_that_waits_cannot_report() -> None:
    with pytest.raises(IllegalTransition, match="report_completed cannot happen to a turn that is queued"):
        transition(TurnStatus.QUEUED, Happening.REPORT_COMPLETED)


@each_transition
def test_a_row_ends_a_turn_if_and_only_if_it_has_stop_reasons(
    key: tuple[TurnStatus | None, Happening], row: Transition
) -> None:
    assert bool(row.stop_reasons) == row.next.terminal
    assert row.event_type == f"turn.{row.next}" or not row.next.terminal


@each_transition
def test_a_turn_ends_with_an_answer_only_by_row_7_or_13(
    key: tuple[TurnStatus | None, Happening], row: Transition
) -> None:
    answers = {StopReason.END_TURN, StopReason.BUDGET_REACHED}
    assert (row.next is TurnStatus.COMPLETED) == bool(row.stop_reasons & answers)
    assert row.next is not TurnStatus.COMPLETED or row.row in {"7", "13"}


@given(st.lists(st.sampled_from(Happening), max_size=60))
def test_no_sequence_of_happenings_yields_two_terminal_events(happenings: list[Happening]) -> None:
    status, written = transition(None, Happening.ACCEPTED).next, list[str]()

    for happening in happenings:
        try:
            row = transition(status, happening)
        except IllegalTransition:
            continue
        status = row.next
        written += [row.event_type] if row.event_type else []

    endings = [event for event in written if event in {"turn.completed", "turn.failed", "turn.canceled"}]
    assert len(endings) == (1 if status.terminal else 0)


@given(st.data())
def test_every_open_turn_can_still_end(data: st.DataObject) -> None:
    status = transition(None, Happening.ACCEPTED).next
    for _ in range(12):
        if status.terminal:
            return
        possible = [happening for at, happening in TRANSITIONS if at is status]
        status = transition(status, data.draw(st.sampled_from(possible))).next
    assert status.terminal or transition(status, Happening.INTERNAL_FAULT).next.terminal
