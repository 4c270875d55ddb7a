import sys
from pathlib import Path

import pytest

import turnkeeper
from turnkeeper.sandbox.boxes import SandboxUnavailable
from turnkeeper.sandbox.runtime_paths import find_program, find_runtime, loop_runtime, parents_of, tool_runtime


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A virtual environment whose `python` leads to an interpreter through two links outside of both."""
    base = tmp_path / "home" / "pythons" / "3.11.7"
    (base / "bin").mkdir(parents=True)
    (base / "bin" / "python3.11").touch()
    (tmp_path / "home" / "pythons" / "3.11").symlink_to("3.11.7")
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "python").symlink_to(tmp_path / "home" / "pythons" / "3.11" / "bin" / "python3.11")
    made = tmp_path / "project" / ".venv"
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python3").symlink_to(tmp_path / "tools" / "python")
    (made / "bin" / "python").symlink_to("python3")
    return made


def test_a_chain_of_links_is_followed_to_real_folders(tmp_path: Path, venv: Path) -> None:
    runtime = find_runtime(venv / "bin" / "python", (venv, tmp_path / "home" / "pythons" / "3.11"))
    assert set(runtime.binds) == {venv, tmp_path / "home" / "pythons" / "3.11.7"}
    assert dict(runtime.links) == {
        tmp_path / "home" / "pythons" / "3.11": "3.11.7",
        tmp_path / "tools" / "python": str(tmp_path / "home" / "pythons" / "3.11" / "bin" / "python3.11"),
    }


def test_an_interpreter_outside_of_every_root_is_bound_alone(tmp_path: Path, venv: Path) -> None:
    runtime = find_runtime(venv / "bin" / "python", (venv,))
    assert tmp_path / "home" / "pythons" / "3.11.7" / "bin" / "python3.11" in runtime.binds


def test_a_folder_inside_a_bound_one_is_not_bound_again(venv: Path) -> None:
    assert find_runtime(venv / "bin", (venv, venv / "bin")).binds == (venv,)


def test_links_without_end_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(SandboxUnavailable, match="without end"):
        find_runtime(tmp_path / "a", ())


def test_what_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="nowhere"):
        find_runtime(Path(sys.executable), (tmp_path / "nowhere",))


@pytest.mark.parametrize("wide", [Path("/"), Path("/etc"), Path.home()], ids=["root", "etc", "home"])
def test_a_root_that_would_open_the_host_is_refused(wide: Path) -> None:
    with pytest.raises(SandboxUnavailable, match="everything in it"):
        find_runtime(Path(sys.executable), (wide,))


def test_the_loop_gets_this_package_and_the_tools_do_not() -> None:
    package = Path(turnkeeper.__file__).resolve()
    assert any(package.is_relative_to(path) for path in loop_runtime(Path(sys.executable)).binds)
    assert not any(package.is_relative_to(path) for path in tool_runtime().binds)


def test_every_folder_above_is_listed_outermost_first() -> None:
    above = parents_of([Path("/a/b/c"), Path("/a/d")])
    assert above == [Path("/a"), Path("/a/b")]


def test_a_missing_program_is_named() -> None:
    with pytest.raises(SandboxUnavailable, match="no-such-program"):
        find_program("no-such-program")
