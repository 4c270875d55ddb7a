"""Names that clients and agents choose: shown as they are, never used as paths."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.turns.turn_files import (
    MAX_FILE_NAME_CHARACTERS,
    MAX_PATH_NAME_CHARACTERS,
    TurnFile,
    free_name,
    parse_turn_files,
    path_name,
    render_turn_files,
    shown_name,
    told_input,
)

FILE = TurnFile("fil_1", "Zürich 2026.csv", "inputs/Zürich_2026.csv", "text/csv", 12, "0" * 64)


@given(st.text(max_size=400))
def test_the_name_of_a_path_is_one_safe_segment(name: str) -> None:
    made = path_name(name)
    assert 0 < len(made) <= MAX_PATH_NAME_CHARACTERS
    assert not made.startswith(".")
    assert not set(made) & set("/\\\0\n :")
    assert os.path.basename(made) == made


@given(st.text(max_size=400))
def test_a_shown_name_is_one_line_that_can_be_seen(name: str) -> None:
    made = shown_name(name)
    assert 0 < len(made) <= MAX_FILE_NAME_CHARACTERS
    assert "/" not in made
    assert all(ord(character) >= 32 for character in made)


@given(st.lists(st.sampled_from(["a.txt", "A.TXT", "a-2.txt", "a", "../a.txt", ""]), max_size=12))
def test_files_of_one_turn_never_share_a_path(names: list[str]) -> None:
    taken: set[str] = set()
    made = [free_name(name, taken) for name in names]
    assert len({name.casefold() for name in made}) == len(made)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("report.csv", "report.csv"),
        ("../../etc/passwd", "_.._etc_passwd"),
        (".bashrc", "bashrc"),
        ("a b\n.txt", "a_b_.txt"),
        ("", "file"),
        ("...", "file"),
        ("x" * 200 + ".pdf", "x" * (MAX_PATH_NAME_CHARACTERS - 4) + ".pdf"),
    ],
)
def test_a_path_keeps_what_is_harmless_of_a_name(name: str, path: str) -> None:
    assert path_name(name) == path


def test_the_files_of_a_turn_come_back_from_its_row() -> None:
    assert parse_turn_files(render_turn_files([FILE])) == (FILE,)


def test_an_agent_is_told_where_its_files_are() -> None:
    line = "[file inputs/Zürich_2026.csv: text/csv, 12 bytes]"
    assert told_input("Sum it.", [FILE]) == f"Sum it.\n{line}"
    assert told_input("", [FILE]) == line
    assert told_input("Sum it.", []) == "Sum it."
