import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.sandbox.boxes import SandboxUnavailable, WorkspaceRefused
from turnkeeper.sandbox.workspaces import UidPool, check_workspace, give_workspace

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@given(st.lists(st.booleans(), max_size=40))
def test_no_user_id_is_ever_given_twice(takes: list[bool]) -> None:
    pool, held = UidPool(100, 5), list[int]()
    for take in takes:
        if take and len(held) < 5:
            uid = pool.take()
            assert uid not in held
            assert uid in range(100, 105)
            held.append(uid)
        elif held:
            pool.release(held.pop(0))


def test_a_preferred_id_is_given_if_it_is_ours_and_free() -> None:
    pool = UidPool(100, 5)
    assert pool.take(103) == 103
    assert pool.take(103) != 103
    assert pool.take(0) in range(100, 105)


def test_when_all_ids_are_taken_there_is_no_box() -> None:
    pool = UidPool(100, 1)
    pool.take()
    with pytest.raises(SandboxUnavailable, match="in use"):
        pool.take()


def test_a_workspace_is_taken_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert check_workspace(tmp_path / "link", ()) == tmp_path / "real"


def test_a_workspace_around_something_forbidden_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceRefused, match="must not see"):
        check_workspace(tmp_path, (tmp_path / "deep" / "state",))


@only_root
def test_everything_in_a_workspace_is_given_away(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    give_workspace(tmp_path, 60_721)
    assert {path.stat().st_uid for path in (tmp_path, *tmp_path.rglob("*"))} == {60_721}


@only_root
def test_links_and_second_names_lead_to_nothing_given_away(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.touch()
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "link").symlink_to(outside)
    os.link(outside, inside / "second")
    give_workspace(inside, 60_721)
    assert outside.stat().st_uid == 0
    assert (inside / "link").lstat().st_uid == 60_721
