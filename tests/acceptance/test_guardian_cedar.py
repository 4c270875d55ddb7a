"""The example policy of rules and Cedar, served by `turnkeeper guardian` to an agent over standard streams."""

import asyncio
import os
import secrets
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.acceptance.server import TURNKEEPER, clean_environment, run_command

from turnkeeper.client import ClientSettings, GuardedTurn, GuardianClient, Identity, StdioTransport, StepDenied
from turnkeeper.client.posture import PostureRules

pytest.importorskip("cedarpy")

EXAMPLE = Path(__file__).parents[2] / "examples" / "cedar-policy"
SETTINGS = ClientSettings(posture=PostureRules(startup="refuse", on_decision_failure="deny"))
PATIENCE_S = 120


def serving(folder: Path, work: Callable[[GuardedTurn, int], Awaitable[None]]) -> Path:
    """Runs some work in a turn of the agent `clerk`, given the Guardian's pid; gives its data dir."""
    secret, data_dir = folder / "client.key", folder / "data"
    secret.write_text(secrets.token_hex(32) + "\n")
    options = ("--data-dir", str(data_dir), "--policy", str(EXAMPLE), "--secret-file", str(secret))
    wire = StdioTransport([TURNKEEPER, "guardian", "--stdio", *options], environment=clean_environment(folder))

    async def main() -> None:
        clerk = Identity.from_file("clerk", secret, key_id="default")
        async with (
            asyncio.timeout(PATIENCE_S),
            GuardianClient(wire, clerk, settings=SETTINGS) as guardian,
            guardian.session() as session,
            session.turn() as turn,
        ):
            assert wire.child is not None
            await work(turn, wire.child.pid)

    asyncio.run(main())
    return data_dir


async def denied(turn: GuardedTurn, tool: str, arguments: dict[str, object]) -> tuple[str, ...]:
    """The codes with which a call is denied."""
    with pytest.raises(StepDenied) as caught:
        await turn.tool_call_request(tool, arguments)
    return caught.value.reason_codes


async def allowed(turn: GuardedTurn) -> bool:
    """Whether a call that everybody may make is allowed now."""
    try:
        await turn.tool_call_request("files.read", {"path": "a"})
    except StepDenied:
        return False
    return True


def helper_of(guardian: int) -> int:
    """Cedar's process, the only one that a Guardian has."""
    (pid,) = Path(f"/proc/{guardian}/task/{guardian}/children").read_text().split()
    return int(pid)


def test_the_example_decides_as_its_readme_says_and_the_record_verifies(tmp_path: Path) -> None:
    async def work(turn: GuardedTurn, guardian: int) -> None:
        del guardian
        assert await turn.tool_call_request("files.read", {"path": "a"}) == {"path": "a"}
        assert await turn.tool_call_request("mail.send", {"note": "secret"}) == {"note": ""}
        assert await denied(turn, "payments.send", {"amount": 1001}) == ("payment_limit",)
        assert await denied(turn, "shell", {"command": "ls"}) == ("no_rule_allows",)

    data_dir = serving(tmp_path, work)
    secret = str(tmp_path / "client.key")
    told = run_command("verify", "--secret-file", secret, "--data-dir", str(data_dir), home=tmp_path)
    assert (told.returncode, "intact: 1 sessions" in told.stdout) == (0, True)


def test_cedar_that_is_killed_denies_or_delays_a_step_and_then_answers_again(tmp_path: Path) -> None:
    async def work(turn: GuardedTurn, guardian: int) -> None:
        first = helper_of(guardian)
        os.kill(first, signal.SIGSTOP)
        assert await denied(turn, "files.read", {"path": "a"}) == ("evaluation_failed", "engine_timeout")
        while not await allowed(turn):
            await asyncio.sleep(0.05)
        assert helper_of(guardian) != first

    serving(tmp_path, work)


def test_cedar_ends_with_its_guardian_however_that_ends(tmp_path: Path) -> None:
    helpers = list[int]()

    async def work(turn: GuardedTurn, guardian: int) -> None:
        await turn.tool_call_request("files.read", {"path": "a"})
        helpers.append(helper_of(guardian))
        os.kill(guardian, signal.SIGKILL)
        while Path(f"/proc/{helpers[0]}").exists():
            await asyncio.sleep(0.01)
        # The client starts a Guardian again, which starts a Cedar of its own.
        await turn.tool_call_request("files.read", {"path": "b"})

    serving(tmp_path, work)
    assert helpers
