"""The log's lines."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
import uvicorn

from turnkeeper.logs import setup_logging


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """The process's log as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_a_line_is_one_json_object_that_begins_with_when_how_bad_and_what() -> None:
    """Where nobody sits at a terminal."""
    out = io.StringIO()
    setup_logging(stream=out)
    structlog.get_logger("x").warning("lease_lost", turn_id="trn_1")
    line = json.loads(out.getvalue())
    assert list(line) == ["at", "level", "event", "turn_id"]
    assert (line["level"], line["event"], line["turn_id"]) == ("warning", "lease_lost", "trn_1")


def test_an_exception_is_in_the_line_and_not_below_it() -> None:
    """A log is read line by line."""
    out = io.StringIO()
    setup_logging(stream=out)
    try:
        int("broken")
    except ValueError:
        structlog.get_logger("x").exception("worker_fault")
    assert out.getvalue().count("\n") == 1
    assert "ValueError: invalid literal" in json.loads(out.getvalue())["exception"]


def test_a_level_leaves_out_what_is_below_it() -> None:
    """`log.level`."""
    out = io.StringIO()
    setup_logging("warning", stream=out)
    structlog.get_logger("x").info("started")
    assert out.getvalue() == ""


def test_warnings_of_libraries_come_in_the_same_form_and_their_chatter_does_not() -> None:
    """uvicorn and alembic use the standard library's logging."""
    out = io.StringIO()
    uvicorn.Config("an:app")  # sets up a log of its own, as it does wherever it is not told otherwise
    setup_logging(stream=out)
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("uvicorn.error").warning("a warning of theirs")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["a warning of theirs"]


def test_a_person_gets_no_json() -> None:
    """`log.format = "console"`."""
    out = io.StringIO()
    setup_logging(log_format="console", stream=out)
    structlog.get_logger("x").info("started", port=8080)
    assert "started" in out.getvalue()
    assert "{" not in out.getvalue()
