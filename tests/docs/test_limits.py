"""The page of limits says what the program does."""

import re
from pathlib import Path

import pytest

from turnkeeper.acs.framing import MAX_HEADER_BYTES
from turnkeeper.acs.strictjson import DEFAULT_LIMITS
from turnkeeper.cli.bounded_http import HEAD_TIMEOUT_S, MAX_HEAD_BYTES
from turnkeeper.guardian.http import BODY_TIMEOUT_S, DRAIN_TIMEOUT_S, MAX_DRAINED_BYTES
from turnkeeper.guardian.settings import GuardianSettings
from turnkeeper.guardian.stdio import MAX_FRAMES_AT_ONCE, MAX_SKIPPED_BYTES
from turnkeeper.settings import ServerSettings
from turnkeeper.store.chain import BUSY_TIMEOUT_MS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "limits.md"
GUARDIAN, SERVER = GuardianSettings(), ServerSettings()
LIMITS: dict[str, list[float]] = {
    "server.max_connections": [SERVER.max_connections],
    "MAX_HEAD_BYTES": [MAX_HEAD_BYTES],
    "HEAD_TIMEOUT_S": [HEAD_TIMEOUT_S],
    "server.max_body_bytes": [SERVER.max_body_bytes],
    "BODY_TIMEOUT_S": [BODY_TIMEOUT_S],
    "MAX_DRAINED_BYTES": [MAX_DRAINED_BYTES, DRAIN_TIMEOUT_S],
    "MAX_FRAMES_AT_ONCE": [MAX_FRAMES_AT_ONCE],
    "MAX_HEADER_BYTES": [MAX_HEADER_BYTES],
    "MAX_SKIPPED_BYTES": [MAX_SKIPPED_BYTES],
    "DEFAULT_LIMITS.max_depth": [DEFAULT_LIMITS.max_depth],
    "max_batch_requests": [GUARDIAN.max_batch_requests],
    "max_in_flight": [GUARDIAN.max_in_flight],
    "max_cached_sessions": [GUARDIAN.max_cached_sessions],
    "BUSY_TIMEOUT_MS": [BUSY_TIMEOUT_MS],
}


def table() -> dict[str, list[float]]:
    """The figures of each row, by the first name in it."""
    rows = [line.split("|") for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    named = {found[1]: row[3] for row in rows if (found := re.search(r"`([^`]+)`", row[2]))}
    return {name: [float(figure) for figure in re.findall(r"\d+", cell)] for name, cell in named.items()}


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_is_what_the_page_says(name: str) -> None:
    assert table()[name] == LIMITS[name]


def test_the_page_lists_nothing_else() -> None:
    assert table().keys() == LIMITS.keys()
