"""A short run of the fuzzer; `make fuzz` runs it for long."""

import asyncio
from pathlib import Path

import pytest
from tests.conformance.fuzz_doors import fuzz


@pytest.mark.requirement("CORE-ERR-01")
@pytest.mark.requirement("CORE-ERR-02")
@pytest.mark.parametrize("seed", [1, 2])
def test_the_doors_answer_whatever_they_are_sent(tmp_path: Path, seed: int) -> None:
    report = asyncio.run(fuzz(tmp_path, seed=seed, rounds=300))
    assert report.problems == []
    assert {"allow", "deny", "ask", "defer", "modify"} <= report.answers.keys()
    assert {"-32600", "-32004", "-32005", "-32602", "-32700", "frame_broken"} <= report.answers.keys()
