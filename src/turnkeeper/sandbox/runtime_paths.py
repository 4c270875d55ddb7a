"""What a box must find so that an interpreter runs in it: real directories, the links that lead there, two programs.

A virtual environment's `python` is a chain of symbolic links, and the interpreter at its end may live under a home
that nobody else may enter. Every real directory is bound at its own path and every link outside of those is made
again, so that `sys.prefix` and shebang lines mean inside what they mean outside.
"""

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import turnkeeper
from turnkeeper.sandbox.boxes import SandboxUnavailable

MAX_LINKS: Final = 40
SYSTEM_ROOTS: Final = tuple(Path("/", name) for name in ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"))
# The same inside as outside; never a PATH that somebody else may have set.
SYSTEM_PROGRAMS: Final = ("/usr/bin", "/usr/sbin", "/bin", "/sbin")


@dataclass(frozen=True, slots=True)
class Runtime:
    """`binds` are real paths; `links` are (path of the link, what it points to)."""

    executable: Path
    binds: tuple[Path, ...]
    links: tuple[tuple[Path, str], ...]


def loop_runtime(executable: Path, extra: Iterable[Path] = ()) -> Runtime:
    """For the harness: this environment, its base interpreter and this package's source."""
    package = Path(turnkeeper.__file__).parent
    return find_runtime(executable, (Path(sys.prefix), Path(sys.base_prefix), package, *extra))


def tool_runtime() -> Runtime:
    """For the tool box's agent: the base interpreter alone, without any installed package of ours."""
    base = Path(sys.base_prefix)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    executable = base / "bin" / name
    if not executable.exists():
        executable = Path(sys.executable).resolve()
    return find_runtime(executable, (base,))


def find_runtime(executable: Path, roots: Iterable[Path]) -> Runtime:
    """The binds and links for `roots` and for every hop of `executable`.

    Raises `SandboxUnavailable` when a path does not exist or a root is so wide that it would open the host.
    """
    links: dict[Path, str] = {}
    wanted = [_follow(root, links) for root in roots]
    program = _follow(executable, links)
    for real in wanted:
        _refuse_wide(real)
    binds = _outermost([*wanted, program])
    covered = (*binds, *SYSTEM_ROOTS)
    kept = tuple((link, target) for link, target in links.items() if not _inside(link, covered))
    return Runtime(executable, tuple(path for path in binds if not _inside(path, SYSTEM_ROOTS)), kept)


def find_program(name: str) -> str:
    """A program of util-linux by its path, which is the same inside a box. Raises `SandboxUnavailable`."""
    for folder in SYSTEM_PROGRAMS:
        if os.access(Path(folder, name), os.X_OK):
            return f"{folder}/{name}"
    raise SandboxUnavailable(f"{name} was not found", hint="Install util-linux.")


def parents_of(paths: Iterable[Path]) -> list[Path]:
    """Every folder above these paths, outermost first, the root left out."""
    return sorted({parent for path in paths for parent in path.parents if parent != Path("/")})


def _follow(path: Path, links: dict[Path, str]) -> Path:
    """The real path; the links on the way are added to `links`."""
    todo = list(path.absolute().parts[1:])
    here = Path("/")
    for _ in range(MAX_LINKS * 8):
        if not todo:
            return here
        part = todo.pop(0)
        if part == "..":
            here = here.parent
            continue
        step = here / part
        if not step.is_symlink():
            here = step
            continue
        target = os.readlink(step)
        links[step] = target
        todo = [*(Path(target).parts[1:] if target.startswith("/") else Path(target).parts), *todo]
        here = Path("/") if target.startswith("/") else here
    raise SandboxUnavailable(f"{path} is a chain of links without end")


def _refuse_wide(real: Path) -> None:
    if not real.exists():
        raise SandboxUnavailable(f"{real} is needed inside the box and does not exist")
    if real == Path("/") or real == Path.home() or real in {Path("/home"), Path("/root"), Path("/etc"), Path("/var")}:
        raise SandboxUnavailable(
            f"{real} would have to be readable inside the box, with everything in it",
            hint="Use an interpreter or a virtual environment in a folder of its own.",
        )


def _outermost(paths: Iterable[Path]) -> list[Path]:
    chosen: list[Path] = []
    for path in sorted(set(paths)):
        if not _inside(path, chosen):
            chosen.append(path)
    return chosen


def _inside(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)
