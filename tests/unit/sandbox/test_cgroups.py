"""Control groups on a tree of plain files: what is read, what is written, and what is never touched."""

import os
from pathlib import Path

import pytest

from turnkeeper.sandbox.boxes import SandboxUnavailable
from turnkeeper.sandbox.cgroups import (
    OWN_GROUP,
    Cgroup,
    GroupLimits,
    Place,
    group_name,
    open_cgroups,
    parse_places,
    sweep_forgotten,
    sweep_groups,
)

LIMITS = GroupLimits(memory_bytes=64 << 20, processes=20, cpu_millis=1500)
HYBRID = """\
25 20 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
26 25 0:23 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
27 25 0:24 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
28 25 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
HYBRID_GROUPS = "4:memory:/service/a\n3:cpu,cpuacct:/\n1:name=systemd:/x\n0::/\n"


def tree(folder: Path, *, lent: str = "cpu memory pids", given: str = "", inside: str = "", root: bool = False) -> Path:
    """A folder that looks like a group of version 2; what kernels make in new groups is made by `kernel`."""
    files = {"cgroup.controllers": lent, "cgroup.subtree_control": given, "cgroup.procs": inside}
    for name, text in (files if root else {**files, "cgroup.type": "domain"}).items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(autouse=True)
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every folder that is made gets the files that a kernel of version 2 puts there; they go with the folder."""
    make, remove = Path.mkdir, Path.rmdir

    def mkdir(self: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        make(self, mode, parents, exist_ok)
        for name in ("cgroup.procs", "cgroup.kill", "memory.max", "memory.events", "pids.max", "cpu.max"):
            (self / name).touch()

    def rmdir(self: Path) -> None:
        if (self / "cgroup.procs").exists() and (self / "cgroup.procs").read_text():
            raise OSError(16, "Device or resource busy")
        for path in self.iterdir():
            path.unlink()
        remove(self)

    monkeypatch.setattr(Path, "mkdir", mkdir)
    monkeypatch.setattr(Path, "rmdir", rmdir)


def test_a_hybrid_machine_has_one_place_for_each_hierarchy() -> None:
    places = parse_places(HYBRID, HYBRID_GROUPS)
    assert places == [
        Place(1, frozenset({"cpu"}), Path("/sys/fs/cgroup/cpu,cpuacct")),
        Place(1, frozenset({"memory"}), Path("/sys/fs/cgroup/memory/service/a")),
        Place(2, frozenset({"cpu", "memory", "pids"}), Path("/sys/fs/cgroup/unified")),
    ]


@pytest.mark.parametrize(
    ("root", "own", "below"),
    [
        ("/", "/user.slice/a", "/mnt/user.slice/a"),
        ("/docker/1", "/docker/1/a", "/mnt/a"),
        ("/docker/1", "/docker/1", "/mnt"),
        ("/docker/1", "/docker/12", None),
        ("/", "/../outside", None),
    ],
)
def test_our_group_is_looked_for_below_what_the_mount_shows(root: str, own: str, below: str | None) -> None:
    places = parse_places(f"1 2 0:3 {root} /mnt rw - cgroup2 cgroup2 rw\n", f"0::{own}\n")
    assert [str(place.path) for place in places] == ([below] if below else [])


def test_a_line_that_is_no_mount_is_passed_over() -> None:
    assert parse_places("garbage\n1 2 3 - cgroup2\n\n", "0::/\n") == []


def test_every_limit_is_written_in_version_2(tmp_path: Path) -> None:
    cgroups = open_cgroups([Place(2, frozenset({"memory", "pids", "cpu"}), tree(tmp_path))])
    cgroups.make("box", LIMITS)
    written = {name: (tmp_path / "box" / name).read_text() for name in ("memory.max", "pids.max", "cpu.max")}
    assert written == {"memory.max": str(64 << 20), "pids.max": "20", "cpu.max": "150000 100000"}
    assert cgroups.missing == {}


def test_controllers_are_switched_on_once_and_only_those_that_are_lent(tmp_path: Path) -> None:
    cgroups = open_cgroups([Place(2, frozenset({"memory", "pids", "cpu"}), tree(tmp_path, lent="memory pids hugetlb"))])
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory +pids"
    assert cgroups.version_of("cpu") is None
    assert "cpu" in cgroups.missing


def test_we_move_out_of_a_group_that_is_to_hold_others(tmp_path: Path) -> None:
    open_cgroups([Place(2, frozenset({"memory"}), tree(tmp_path, inside=f"{os.getpid()}\n"))])
    assert (tmp_path / OWN_GROUP / "cgroup.procs").read_text() == str(os.getpid())


def test_once_moved_we_stay_where_we_are(tmp_path: Path) -> None:
    tree(tmp_path, given="memory")
    (tmp_path / OWN_GROUP).mkdir()
    cgroups = open_cgroups([Place(2, frozenset({"memory"}), tmp_path / OWN_GROUP)])
    assert [place.path for place in cgroups.places] == [tmp_path]


def test_a_group_with_strangers_in_it_is_left_alone(tmp_path: Path) -> None:
    cgroups = open_cgroups([Place(2, frozenset({"memory"}), tree(tmp_path, inside="1\n"))])
    assert cgroups.places == ()
    assert "Delegate=yes" in cgroups.missing["memory"]
    assert not (tmp_path / OWN_GROUP).exists()


def test_a_look_moves_and_switches_nothing(tmp_path: Path) -> None:
    tree(tmp_path, inside=f"{os.getpid()}\n")
    cgroups = open_cgroups([Place(2, frozenset({"memory"}), tmp_path)], settle=False)
    assert cgroups.version_of("memory") == 2
    assert (tmp_path / "cgroup.subtree_control").read_text() == ""
    assert not (tmp_path / OWN_GROUP).exists()


def test_a_tree_that_may_not_be_written_is_missing_with_its_reason(tmp_path: Path) -> None:
    cgroups = open_cgroups([Place(1, frozenset({"memory"}), tmp_path / "absent")])
    assert "No such file" in cgroups.missing["memory"]
    assert cgroups.missing["pids"] == "no such controller is mounted"


def test_a_limit_that_cannot_be_set_leaves_no_group(tmp_path: Path) -> None:
    cgroups = open_cgroups([Place(2, frozenset({"memory", "pids"}), tree(tmp_path, given="memory pids"))])
    (tmp_path / "box").mkdir()
    with pytest.raises(SandboxUnavailable, match="control group"):
        cgroups.make("box", LIMITS)


def test_processes_that_ran_out_of_memory_are_counted_after_the_end_too(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "memory.events").write_text("low 0\noom 5\noom_kill 3\noom_group_kill 1\n")
    group = Cgroup({tmp_path / "box": Place(2, frozenset({"memory"}), tmp_path)})
    assert group.oom_kills == 3
    assert group.end()
    assert group.oom_kills == 3


def test_a_group_that_still_has_processes_is_not_gone(tmp_path: Path) -> None:
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / "cgroup.procs").write_text("4194305\n")
    group = Cgroup({tmp_path / "box": Place(2, frozenset({"memory"}), tmp_path)})
    assert not group.end()
    assert (tmp_path / "box" / "cgroup.kill").read_text() == "1"


def test_only_the_groups_of_the_dead_owner_are_swept(tmp_path: Path) -> None:
    for name in (group_name("aa", 1), group_name("aa", 31), group_name("ab", 1), "other"):
        (tmp_path / name).mkdir()
    assert sweep_groups([tmp_path], "aa") == 2
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["other", group_name("ab", 1)]


def test_an_empty_group_of_a_process_that_is_gone_is_removed_whoever_it_was(tmp_path: Path) -> None:
    # A number that no kernel gives: pids end at 2**22.
    for name in ("turnkeeper.aa.1.4194305", "turnkeeper.ab.1.4194305", group_name("ac", 1), "other.a.1.4194305"):
        (tmp_path / name).mkdir()
    (tmp_path / "turnkeeper.ab.1.4194305" / "cgroup.procs").write_text("7\n")
    assert sweep_forgotten([tmp_path]) == 1
    assert not (tmp_path / "turnkeeper.aa.1.4194305").exists()
    assert (tmp_path / "turnkeeper.ab.1.4194305").exists()
