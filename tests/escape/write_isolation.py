"""Writes docs/reference/isolation.md: `python -m tests.escape.write_isolation`.

Runs the escape suite on this machine and writes the page from its tables only if every attempt ended as they say. What
could not be tried here is printed with its reason. A test holds the page to the tables, and CI the tables to the boxes.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.escape.attempt import BOTH, Attempt, Group, Place
from tests.escape.rig import GROUPS
from tests.escape.scenarios import SCENARIOS

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "reference" / "isolation.md"

HEAD: Final = """\
# What a box stops

Made by `make isolation`, which tries each line in real boxes of the `bwrap` driver and writes this page only if all of
it came out as it says. A test holds the page against the list, and CI runs the list as root and as an ordinary user.
Where it is harmless, the same attempt is made without a box as well, and has to succeed there (marked *): a broken
attempt would otherwise look like a wall.

`loop` is the box that the agent's loop runs in, `tool` the one for its tools. `stopped` means that the attempt ended in
an error, found nothing, or ended whoever made it.
"""

NOT_STOPPED: Final = """\
## What is not stopped

- **A hole in the host's kernel.** Boxes share it. The filter keeps rarely needed calls away from it and leaves the
  others. Whoever has a kernel exploit is out. Keep the kernel current; run workers on machines that hold nothing else.
- **Side channels.** What is shared in hardware (caches, memory bandwidth, branch predictors) can be measured from
  inside, and so can how busy the machine is. Mitigations are the host's.
- **`sandbox.kind = "none"`.** No line of this page holds for it.
- **What a tool is allowed to do.** A box limits what can be reached. An allowed `shell` may destroy its own workspace,
  spend its whole time, and write anything into its answer. Deciding about calls is the Guardian's business.
- **One tool call disturbing another of the same turn.** They share a box, a user and a workspace on purpose: a
  background process of one call can read, change and signal what the next one starts. The program that runs them, and
  everything outside, is out of its reach.
- **Lies.** A box may say anything in its own text. It is not believed about usage, time, steps, or what was allowed.
- **Overshooting the workspace's quota.** The workspace is measured twice a second, more rarely when it has very many
  files, and its box is ended when it is too large. Until then it grows as fast as the disk writes. Space of files that
  were removed while a program of the box still holds them open is not seen until the box ends, when it is free again.
  Where that is not enough, put the data folder on a file system of its own.
- **Disk bandwidth.** Nothing limits how fast a box reads or writes its workspace.
- **Where there are no control groups** (an ordinary user without a delegated group, most containers), memory is held
  per process by its address space, not for the whole box, and the share of a processor not at all; empty files in
  `/tmp` then cost the host's memory. `turnkeeper doctor` says by which means each limit holds on a machine;
  `sandbox.cgroups = "require"` starts no box without them.
- **The size of the machine.** Processor, memory and kernel version can be read.
"""


def render_page() -> str:
    """The page, as it is when the suite has passed."""
    return "\n".join((HEAD, *(line for group in GROUPS for line in _section(group)), *_from_outside(), NOT_STOPPED))


def main() -> None:
    """Run the suite, and write the page if it passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "tests/escape/test_escape.py"]
    if subprocess.run(command, cwd=ROOT, check=False).returncode != 0:
        sys.exit("not written: something did not end as the tables say")
    PAGE.write_text(render_page(), encoding="utf-8")


def _section(group: Group) -> Iterator[str]:
    yield f"## {group.title}\n"
    yield "| what is tried | loop | tool | by |"
    yield "|---|---|---|---|"
    for attempt in group.attempts:
        mark = " *" if attempt.works_outside else ""
        told = " | ".join(_told(attempt, place) for place in BOTH)
        yield f"| {attempt.tries}{mark} | {told} | {attempt.means} |"
    yield ""


def _from_outside() -> Iterator[str]:
    yield "## Seen from the host\n"
    yield "| what is tried | loop | tool | by |"
    yield "|---|---|---|---|"
    for scenario in SCENARIOS:
        told = " | ".join("stopped" if place in scenario.places else "-" for place in BOTH)
        yield f"| {scenario.tries} | {told} | {scenario.means} |"
    yield ""


def _told(attempt: Attempt, place: Place) -> str:
    if place not in attempt.places:
        return "-"
    return "stopped" if attempt.stopped else "works"


if __name__ == "__main__":
    main()
