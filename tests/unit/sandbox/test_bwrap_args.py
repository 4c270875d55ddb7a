from dataclasses import replace
from pathlib import Path

import pytest

from turnkeeper.sandbox.boxes import BoxLimits
from turnkeeper.sandbox.bwrap_args import (
    Bind,
    BoxPlan,
    Confinement,
    render_command,
    render_options,
    system_mounts,
)
from turnkeeper.sandbox.runtime_paths import Runtime

RUNTIME = Runtime(
    Path("/home/u/venv/bin/python"),
    (Path("/home/u/venv"), Path("/root/python")),
    ((Path("/opt/python"), "/root/python"),),
)
ORDINARY = Confinement(False, (("--ro-bind", "/usr", "/usr"),), "/usr/bin/setpriv", "/usr/bin/prlimit")
ROOT = replace(ORDINARY, privileged=True)
PLAN = BoxPlan(
    uid=60_720,
    runtime=RUNTIME,
    command=("/home/u/venv/bin/python", "-I", "agent.py"),
    limits=BoxLimits(),
    seccomp_fd=7,
    info_fd=8,
    binds=(Bind(Path("/data/one"), Path("/workspace"), writable=True),),
    files={Path("/etc/passwd"): 9},
    environment={"PATH": "/usr/bin"},
)


def groups(options: list[str], name: str, count: int) -> list[tuple[str, ...]]:
    """The values of every occurrence of an option."""
    return [tuple(options[at + 1 : at + 1 + count]) for at, text in enumerate(options) if text == name]


@pytest.mark.parametrize("confinement", [ORDINARY, ROOT], ids=["ordinary", "root"])
def test_the_workspace_is_all_that_is_bound_writable(confinement: Confinement) -> None:
    options = render_options(PLAN, confinement)
    assert groups(options, "--bind", 2) == [("/data/one", "/workspace")]
    assert not {"--dev-bind", "--bind-try", "--bind-fd", "--bind-data", "--share-net"} & set(options)


@pytest.mark.parametrize("confinement", [ORDINARY, ROOT], ids=["ordinary", "root"])
def test_every_namespace_is_a_new_one_and_the_environment_is_cleared(confinement: Confinement) -> None:
    options = render_options(PLAN, confinement)
    assert {"--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--die-with-parent"} <= set(options)
    assert options.index("--clearenv") < options.index("--setenv")
    assert groups(options, "--setenv", 2) == [("PATH", "/usr/bin")]


def test_the_root_becomes_read_only_after_the_last_mount() -> None:
    options = render_options(PLAN, ORDINARY)
    last_mount = max(at for at, text in enumerate(options) if "bind" in text or text in {"--tmpfs", "--symlink"})
    assert last_mount < options.index("--remount-ro")
    assert groups(options, "--remount-ro", 1) == [("/dev",), ("/",)]


def test_every_folder_above_a_bind_is_made_passable_before_it() -> None:
    options = render_options(PLAN, ROOT)
    made = groups(options, "--dir", 1)
    assert [group for group in made if group[0][:2] in {"/h", "/r"}][1:] == [("/home",), ("/home/u",), ("/root",)]
    assert all(options[at - 2 : at] == ["--perms", "0755"] for at, text in enumerate(options) if text == "--dir")


def test_links_are_made_again() -> None:
    assert ("/root/python", "/opt/python") in groups(render_options(PLAN, ORDINARY), "--symlink", 2)


def test_an_ordinary_user_gets_a_user_namespace_that_is_the_last() -> None:
    options = render_options(PLAN, ORDINARY)
    assert {"--unshare-user", "--disable-userns"} <= set(options)
    assert groups(options, "--cap-add", 1) == []
    assert render_command(PLAN, ORDINARY)[0] == "/usr/bin/prlimit"


def test_root_is_given_up_inside_before_anything_else_runs() -> None:
    command = render_command(PLAN, ROOT)
    assert "--unshare-user" not in render_options(PLAN, ROOT)
    assert command[:5] == ["/usr/bin/setpriv", "--reuid", "60720", "--regid", "60720"]
    assert "--bounding-set=-all" in command
    assert command.index("/usr/bin/prlimit") > command.index("--no-new-privs")


def test_every_limit_is_set() -> None:
    limits = BoxLimits(memory_bytes=1, cpu_seconds=2, processes=3, open_files=4, file_bytes=5, tmp_bytes=6)
    plan = replace(PLAN, limits=limits)
    command = render_command(plan, ORDINARY)
    assert {"--as=1", "--cpu=2", "--nproc=3", "--nofile=4", "--fsize=5", "--core=0"} <= set(command)
    assert ("6",) in groups(render_options(plan, ORDINARY), "--size", 1)


def test_the_system_is_shown_as_the_host_has_it(tmp_path: Path) -> None:
    (tmp_path / "usr").mkdir()
    (tmp_path / "bin").symlink_to("usr/bin")
    (tmp_path / "lib").mkdir()
    mounts = system_mounts(tmp_path)
    assert ("--symlink", "usr/bin", "/bin") in mounts
    assert ("--ro-bind", str(tmp_path / "lib"), "/lib") in mounts
    assert not any("/etc" in group[1:] for group in mounts)
