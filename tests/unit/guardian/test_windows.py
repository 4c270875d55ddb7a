"""Turn windows as a rule over requests: only a turn's own end closes it, and nothing clears its counts."""

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.acs import Disposition, RequestEnvelope, build_request
from turnkeeper.guardian.windows import Conduct, Placement, TurnWindow, deferred_after, place

TRIGGERED = {"triggered_by": "user_message"}


def request(hook: str, named: str | None = None, **payload: object) -> RequestEnvelope:
    return RequestEnvelope.of(
        build_request(
            method=f"steps/{hook}",
            rpc_id=1,
            request_id="r",
            timestamp="2026-12-01T10:00:00Z",
            agent_id="a",
            session_id="s",
            turn_id=named,
            payload=TRIGGERED | payload if hook == "turnStart" else payload,
        )
    )


def placed(window: TurnWindow | None, hook: str, named: str | None = None, **payload: object) -> Placement:
    return place(window, 0, request(hook, named, **payload), in_turn=hook not in ("agentTrigger", "sessionEnd"))


OPEN = TurnWindow("t", 1, steps=2, tool_calls=1)


def test_a_turn_start_opens_a_window_that_counts_from_zero() -> None:
    placement = placed(None, "turnStart", "t", turn_id="t")
    assert placement.opened
    assert placement.window == TurnWindow("t", 1, triggered_by="user_message")
    assert placement.conduct == ()


def test_a_denied_turn_start_opens_a_window_that_remembers_it() -> None:
    window = placed(None, "turnStart", "t", turn_id="t").decided(Disposition.DENY).window
    assert window == TurnWindow("t", 1, denied=True, triggered_by="user_message")


def test_a_second_turn_start_leaves_the_open_window_as_it_is() -> None:
    placement = placed(OPEN, "turnStart", "u", turn_id="u").decided(Disposition.DENY)
    assert placement.window == replace(OPEN, denials=1)
    assert placement.conduct == (Conduct.TURN_ALREADY_OPEN,)
    assert not placement.opened


def test_its_own_turn_end_closes_a_window() -> None:
    placement = placed(OPEN, "turnEnd", "t", turn_id="t", outcome="completed", step_count=2, tool_call_count=1)
    assert placement.window is None
    assert placement.closed == OPEN
    assert placement.reason_codes == ()


def test_counts_that_are_left_out_are_not_wrong() -> None:
    assert placed(OPEN, "turnEnd", "t", turn_id="t", outcome="error").reason_codes == ()


def test_wrong_counts_close_the_window_and_are_named() -> None:
    placement = placed(OPEN, "turnEnd", "t", turn_id="t", outcome="error", step_count=3, tool_call_count=0)
    assert placement.window is None
    assert placement.reason_codes == ("step_count_mismatch", "tool_call_count_mismatch")


def test_a_turn_end_with_another_id_in_payload_or_metadata_closes_nothing() -> None:
    for metadata, payload in (("t", "u"), ("u", "t"), (None, "u")):
        placement = placed(OPEN, "turnEnd", metadata, turn_id=payload, outcome="error", step_count=2)
        assert placement.window == OPEN
        assert placement.reason_codes == ("turn_mismatch",)


def test_a_turn_end_without_a_window_is_a_mismatch() -> None:
    placement = placed(None, "turnEnd", "t", turn_id="t", outcome="error")
    assert placement.reason_codes == ("turn_mismatch",)
    assert placement.turn_id is None


def test_a_step_with_a_foreign_or_missing_id_is_counted_in_the_open_window() -> None:
    foreign = placed(OPEN, "toolCallRequest", "u")
    missing = placed(OPEN, "toolCallRequest")
    assert foreign.window == missing.window == TurnWindow("t", 1, steps=3, tool_calls=2)
    assert foreign.turn_id == missing.turn_id == "t"
    assert foreign.conduct == (Conduct.TURN_ID_FOREIGN,)
    assert missing.conduct == (Conduct.TURN_ID_MISSING,)


def test_a_step_of_the_session_itself_owes_no_turn_id() -> None:
    assert placed(OPEN, "agentTrigger").conduct == ()


def test_a_step_that_names_a_turn_while_none_is_open_belongs_to_none() -> None:
    placement = placed(None, "userMessage", "t")
    assert placement.turn_id is None
    assert placement.conduct == (Conduct.TURN_NOT_OPEN,)


def test_a_session_that_ends_inside_a_turn_leaves_it_open() -> None:
    placement = placed(OPEN, "sessionEnd")
    assert placement.conduct == (Conduct.TURN_LEFT_OPEN,)


def ended_deferred(window: TurnWindow) -> Placement:
    return placed(window, "turnEnd", "t", turn_id="t", outcome="deferred")


def test_a_turn_that_comes_back_owes_a_deferral_of_its_own_window() -> None:
    again = replace(OPEN, deferrals=1, carried_deferrals=1)
    assert ended_deferred(again).conduct == (Conduct.DEFERRED_WITHOUT_DEFER,)
    assert ended_deferred(replace(again, deferrals=2)).conduct == ()


def test_only_a_turn_whose_start_was_let_through_may_come_back() -> None:
    end = request("turnEnd", "t", turn_id="t", outcome="deferred")
    assert list(deferred_after({}, ended_deferred(OPEN), end)) == ["t"]
    assert deferred_after({}, ended_deferred(replace(OPEN, denied=True)), end) == {}


@st.composite
def steps_of_an_agent(draw: st.DrawFn) -> RequestEnvelope:
    """One step, with any turn ids."""
    named = draw(st.sampled_from(["t", "u", None]))
    turn_id = draw(st.sampled_from(["t", "u"]))
    hook = draw(st.sampled_from(["turnStart", "turnEnd", "toolCallRequest", "userMessage"]))
    if hook == "turnStart":
        return request(hook, named, turn_id=turn_id)
    if hook == "turnEnd":
        return request(hook, named, turn_id=turn_id, outcome="error", step_count=draw(st.integers(0, 4)))
    return request(hook, named)


@dataclass
class Naive:
    """The window as a list of the requests inside it."""

    turn_id: str | None = None
    inside: list[str] = field(default_factory=list[str])

    def take(self, step: RequestEnvelope) -> None:
        payload_turn = step.payload.get("turn_id")
        if step.method == "steps/turnStart":
            if self.turn_id is None:
                self.turn_id, self.inside = str(payload_turn), []
        elif step.method == "steps/turnEnd":
            if self.turn_id == payload_turn and step.turn_id in (None, self.turn_id):
                self.turn_id = None
        elif self.turn_id is not None:
            self.inside.append(step.method)


@given(st.lists(steps_of_an_agent(), max_size=30))
def test_whatever_an_agent_sends_the_counts_are_those_of_the_steps_since_the_window_opened(
    steps: list[RequestEnvelope],
) -> None:
    window: TurnWindow | None = None
    naive = Naive()
    turns = 0
    for step in steps:
        placement = place(window, turns, step, in_turn=True)
        window, turns = placement.window, turns + placement.opened
        naive.take(step)
        assert (None if window is None else window.turn_id) == naive.turn_id
        if window is not None:
            assert window.steps == len(naive.inside)
            assert window.tool_calls == naive.inside.count("steps/toolCallRequest")
