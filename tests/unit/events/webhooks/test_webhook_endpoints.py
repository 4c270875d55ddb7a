import pytest

from turnkeeper.events.webhooks.endpoints import is_pattern, wants

AGENT, OTHER = "agt_01KBC3Y5M8Q2V7R9T4W6X1Z0AB", "agt_01KBC3Y5M8Q2V7R9T4W6X1Z0AC"


@pytest.mark.parametrize("text", ["*", "turn.completed", "turn.*", "webhook_endpoint.disabled"])
def test_types_and_families_are_patterns(text: str) -> None:
    assert is_pattern(text)


@pytest.mark.parametrize("text", ["", "turn*", "*.completed", "turn.**", "Turn.completed", "turn.", ".*", "a b", "*\n"])
def test_anything_else_is_none(text: str) -> None:
    assert not is_pattern(text)


@pytest.mark.parametrize(
    ("pattern", "event_type", "expected"),
    [
        ("*", "turn.completed", True),
        ("turn.*", "turn.completed", True),
        ("turn.*", "turned.on", False),
        ("turn.*", "turn", False),
        ("turn.completed", "turn.completed", True),
        ("turn.completed", "turn.completed_late", False),
    ],
)
def test_a_pattern_matches_whole_names(pattern: str, event_type: str, expected: bool) -> None:
    assert wants([pattern], (), event_type, AGENT) is expected


def test_an_endpoint_of_some_agents_gets_nothing_of_others() -> None:
    assert wants(["*"], [AGENT], "turn.completed", AGENT)
    assert not wants(["*"], [AGENT], "turn.completed", OTHER)


def test_an_endpoint_of_some_agents_gets_what_is_about_no_agent() -> None:
    assert wants(["*"], [AGENT], "webhook_delivery.dead", None)
