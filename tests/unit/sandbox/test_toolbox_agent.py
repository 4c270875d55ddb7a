import base64
import os
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.sandbox.boxes import MAX_OUTPUT_BYTES
from turnkeeper.sandbox.toolbox_agent import ARGUMENTS, Agent, BadArguments, Output, checked, cut, describe
from turnkeeper.sandbox.tools import TOOLS

VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.lists(st.text(max_size=2), max_size=2)
)
NAMES = st.sampled_from(["command", "timeout_ms", "path", "offset", "max_bytes", "content", "cwd"])


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    source, sink = os.pipe()
    made = Agent(tmp_path, source, sink)
    yield made
    made.selector.close()
    os.close(source)
    os.close(sink)


@given(st.sampled_from(sorted(TOOLS)), st.dictionaries(NAMES, VALUES, max_size=4))
def test_the_agent_takes_exactly_the_arguments_that_the_model_was_told(tool: str, arguments: dict[str, object]) -> None:
    told = jsonschema_rs.validator_for(TOOLS[tool].parameters).is_valid(arguments)
    try:
        checked(arguments, ARGUMENTS[tool])
        taken = True
    except BadArguments:
        taken = False
    assert taken == told


@pytest.mark.parametrize("arguments", [None, [], "path", 5])
def test_arguments_that_are_no_object_are_refused(arguments: object) -> None:
    with pytest.raises(BadArguments):
        checked(arguments, ARGUMENTS["list_files"])


@given(st.binary(max_size=300), st.integers(0, 100))
def test_cut_text_is_never_over_its_limit(raw: bytes, limit: int) -> None:
    text, shortened = cut(raw, limit)
    assert len(text.encode()) <= limit
    assert shortened or text == raw.decode("utf-8", "replace")


@given(st.text(max_size=60), st.integers(0, 300))
def test_text_within_the_limit_is_not_changed(text: str, limit: int) -> None:
    raw = text.encode()
    if len(raw) <= limit:
        assert cut(raw, limit) == (text, False)


@given(st.lists(st.binary(max_size=80), max_size=10), st.integers(0, 200))
def test_output_is_bounded_while_it_comes_and_when_it_is_read(chunks: list[bytes], limit: int) -> None:
    output = Output(limit)
    for chunk in chunks:
        output.add(chunk)
        assert len(output.head) + len(output.tail) <= limit
    text, truncated = output.text()
    assert len(text.encode()) <= limit
    assert truncated or text == b"".join(chunks).decode("utf-8", "replace")


def test_long_output_keeps_its_beginning_and_its_end() -> None:
    output = Output(100)
    output.add(b"begin" + b"." * 1000 + b"end")
    text, truncated = output.text()
    assert truncated
    assert text.startswith("begin")
    assert text.endswith("end")
    assert "908 bytes left out" in text


def test_the_worst_answer_still_fits_an_envelope() -> None:
    escaped_sixfold = 6 * MAX_OUTPUT_BYTES
    assert escaped_sixfold < 1_048_576


def test_listing_stops_at_its_limit(agent: Agent, tmp_path: Path) -> None:
    for number in range(1005):
        (tmp_path / f"{number}").touch()
    listed = agent.list_files({}, 0, 100_000)
    assert listed["truncated"] is True
    assert cast("str", listed["text"]).count("\n") == 999


def test_entries_say_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("abc")
    (tmp_path / "link").symlink_to("nowhere")
    with os.scandir(tmp_path) as entries:
        assert sorted(map(describe, entries)) == ["file (3 bytes)", "folder/", "link (link)"]


def test_a_file_is_replaced_whole(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a long text that was here before")
    agent.write_file({"path": "a", "content": "short"}, 0, 100)
    assert (tmp_path / "a").read_text() == "short"


def test_reading_beyond_the_end_gives_nothing(agent: Agent, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("abc")
    read = agent.read_file({"path": "a", "offset": 10}, 0, 100)
    assert (read["text"], read["truncated"]) == ("", False)


def exchanged(agent: Agent, content: str, *, wait_ms: int = 20_000, limit: int = 4_000) -> str:
    """What the server `s` says to this."""
    said = agent.server_exchange({"server": "s", "content": content, "wait_ms": wait_ms}, 20_000, limit)
    return base64.b64decode(str(said["text"])).decode() if said["status"] == "ok" else f"ended: {said['text']}"


def started(agent: Agent, *command: str, environment: dict[str, str] | None = None) -> None:
    arguments = {"server": "s", "command": list(command), "environment": environment or {}}
    assert agent.server_start(arguments, 1_000, 100)["status"] == "ok"


def test_a_server_is_kept_between_calls_until_it_is_stopped(agent: Agent) -> None:
    started(agent, "/bin/cat")
    assert exchanged(agent, "one\n") == "one\n"
    assert exchanged(agent, "a" * 10_000 + "\n", limit=4_000) == "a" * 3_000
    agent.server_stop({"server": "s"}, 1_000, 100)
    with pytest.raises(BadArguments):
        exchanged(agent, "two\n")


def test_a_server_that_ends_says_why_on_the_side(agent: Agent) -> None:
    started(agent, "/bin/sh", "-c", "echo $WHY >&2", environment={"WHY": "no such database"})
    assert exchanged(agent, "") == "ended: no such database\n"


def test_a_server_that_says_nothing_is_waited_for_as_long_as_was_asked(agent: Agent) -> None:
    started(agent, "/bin/sleep", "1000")
    assert exchanged(agent, "", wait_ms=0) == ""
    agent.server_stop({"server": "s"}, 1_000, 100)


@pytest.mark.parametrize(
    "arguments",
    [
        {"server": "s", "command": [], "environment": {}},
        {"server": "s", "command": ["a\0"], "environment": {}},
        {"server": "s", "command": [1], "environment": {}},
        {"server": "s", "command": ["a"], "environment": {"A": 1}},
        {"server": "s", "command": "a", "environment": {}},
    ],
)
def test_a_server_is_words_and_variables(agent: Agent, arguments: dict[str, object]) -> None:
    with pytest.raises(BadArguments):
        agent.server_start(arguments, 1_000, 100)
