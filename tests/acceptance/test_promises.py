"""What users of other platforms complain of, and what holds Turnkeeper to its promise instead."""

import re
from pathlib import Path
from typing import Final

import pytest
import yaml
from tests.citations import ROOT, missing_tests, read_entries

PROMISES: Final = read_entries(
    yaml.safe_load(Path(__file__).with_name("promises.yaml").read_text()), "complaint", "promise"
)


def test_every_promise_names_tests_that_exist_or_says_why_there_are_none() -> None:
    assert not missing_tests(PROMISES)


def test_every_complaint_is_answered_once() -> None:
    assert [int(entry.id.partition("-")[2]) for entry in PROMISES] == list(range(1, len(PROMISES) + 1))


def test_no_complaint_of_the_study_is_left_out() -> None:
    study = ROOT.parent / "shared" / "findings" / "turn-platforms.md"
    if not study.exists():
        pytest.skip("the study is not beside this repository")
    part = study.read_text().partition("## 5. What users complain about")[2].partition("\n## 6.")[0]
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", part, re.MULTILINE)]
    assert numbers == [int(entry.id.partition("-")[2]) for entry in PROMISES]
