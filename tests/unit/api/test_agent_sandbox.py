"""What an agent may ask of its tool box, and what it is told where that is too much."""

import pytest

from turnkeeper.acs.strictjson import JsonObject
from turnkeeper.api.agent_sandbox import parse_pool, parse_sandbox, sandbox_document
from turnkeeper.api.fields import Fields
from turnkeeper.api.problems import RequestRefused
from turnkeeper.turns.model import NO_NETWORK, BoxSize

LARGEST = BoxSize(cpu_millis=2000, memory_mib=1024, disk_mib=512)


def parsed(asked: JsonObject) -> BoxSize:
    """What is made of an agent's `sandbox`. Raises `RequestRefused`."""
    whole = Fields({"sandbox": asked})
    size = parse_sandbox(whole.object("sandbox"), LARGEST)
    whole.finish()
    return size


def test_an_agent_that_asks_for_nothing_has_what_the_operator_set() -> None:
    assert parse_sandbox(None, LARGEST) == BoxSize()
    assert parsed({}) == BoxSize()


def test_processors_are_counted_in_thousandths() -> None:
    assert parsed({"cpu": 0.25, "memory_mib": 128, "disk_mib": 64}) == BoxSize(250, 128, 64)


def test_what_is_shown_may_be_sent_back() -> None:
    for size in (BoxSize(), BoxSize(250, 128, None), LARGEST):
        assert parsed(sandbox_document(size, NO_NETWORK, None)) == size


@pytest.mark.parametrize(
    ("asked", "pointer"),
    [
        ({"cpu": 2.5}, "/sandbox/cpu"),
        ({"cpu": 0.01}, "/sandbox/cpu"),
        ({"cpu": True}, "/sandbox/cpu"),
        ({"cpu": "1"}, "/sandbox/cpu"),
        ({"memory_mib": 1025}, "/sandbox/memory_mib"),
        ({"memory_mib": 1}, "/sandbox/memory_mib"),
        ({"disk_mib": 513}, "/sandbox/disk_mib"),
        ({"gpu": 1}, "/sandbox/gpu"),
    ],
)
def test_more_than_the_operator_lends_is_refused_with_its_place(asked: JsonObject, pointer: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        parsed(asked)
    assert [issue.pointer for issue in refused.value.issues] == [pointer]


def test_what_no_driver_does_yet_is_refused() -> None:
    with pytest.raises(RequestRefused) as refused:
        parsed({"image": "x"})
    assert [issue.code for issue in refused.value.issues] == ["not_supported_yet"]


def pool_of(agent: JsonObject) -> str | None:
    """The pool of an agent, where the server has one called `gpu`. Raises `RequestRefused`."""
    whole = Fields(agent)
    pool = parse_pool(whole, whole.object("sandbox"), {"gpu"})
    whole.finish()
    return pool


def test_an_agent_may_be_run_by_a_pools_runners() -> None:
    assert pool_of({}) is None
    assert pool_of({"sandbox": sandbox_document(BoxSize(), NO_NETWORK, None)}) is None
    assert pool_of({"sandbox": sandbox_document(BoxSize(), NO_NETWORK, "gpu"), "tools": []}) == "gpu"


@pytest.mark.parametrize(
    ("agent", "pointer"),
    [
        ({"sandbox": {"kind": "microvm"}}, "/sandbox/kind"),
        ({"sandbox": {"kind": "remote"}}, "/sandbox/pool"),
        ({"sandbox": {"kind": "remote", "pool": "cpu"}}, "/sandbox/pool"),
        ({"sandbox": {"pool": "gpu"}}, "/sandbox/pool"),
        ({"sandbox": {"kind": "remote", "pool": "gpu", "cpu": 1}}, "/sandbox/cpu"),
        ({"sandbox": {"kind": "remote", "pool": "gpu", "network": {"allow": ["a.example"]}}}, "/sandbox/network"),
        ({"sandbox": {"kind": "remote", "pool": "gpu"}, "tools": ["shell"]}, "/tools"),
        ({"sandbox": {"kind": "remote", "pool": "gpu"}, "mcp_servers": [{"name": "x"}]}, "/mcp_servers"),
        ({"sandbox": {"kind": "remote", "pool": "gpu"}, "harness": {"kind": "codex"}}, "/harness"),
    ],
)
def test_what_a_runner_elsewhere_cannot_be_asked_for_is_refused(agent: JsonObject, pointer: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        pool_of(agent)
    assert [issue.pointer for issue in refused.value.issues] == [pointer]
