"""The hook's process: one report in, one reply out, and a block for everything else.

Answers for the ends that a client would take for consent: an exception, a wait that is too long, a document that cannot
be read. The command line that the client runs turns any other exit code, a kill included, into a block as well. Must
never write to standard output but the whole reply, at once, as its last act.
"""

import asyncio
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from turnkeeper.acs.strictjson import parse_object
from turnkeeper.client.audit import JsonLinesAudit
from turnkeeper.client.guardian import GuardianClient
from turnkeeper.client.identity import Identity
from turnkeeper.client.posture import Failure, PostureRules
from turnkeeper.client.settings import ClientSettings, Timing
from turnkeeper.client.terms import FileTerms
from turnkeeper.client.transports import HttpTransport
from turnkeeper.clock import SystemClock
from turnkeeper.errors import TurnkeeperError
from turnkeeper.hooks import claude_code, codex, opencode
from turnkeeper.hooks.asking import HookDesk
from turnkeeper.hooks.events import Block, Dialect, HookInputInvalid, Reply
from turnkeeper.hooks.settings import HookSettings, load_settings
from turnkeeper.hooks.state import HookStateUnusable, SessionStates
from turnkeeper.ids import RandomIds

MAX_INPUT_BYTES: Final = 8 * 1024 * 1024
METHODS: Final = (
    "handshake/hello",
    "system/ping",
    "steps/sessionStart",
    "steps/sessionEnd",
    "steps/turnStart",
    "steps/turnEnd",
    "steps/userMessage",
    "steps/toolCallRequest",
    "steps/toolCallResult",
)
"""What hooks can be asked about; the rest is not claimed in the hello."""

DIALECTS: Final[Mapping[str, Dialect]] = {"claude-code": claude_code, "codex": codex, "opencode": opencode}

BLOCKED_EXIT: Final = 2
SELF_TEST: Final = "--self-test"


def main(words: list[str]) -> int:
    """`CLIENT SETTINGS_FILE`, with the report on standard input, or with `--self-test` none; the exit code, 0 or 2."""
    try:
        client, path, *options = words
        settings = load_settings(Path(path))
        # The default action ends the process: nothing that is stuck can hold it up.
        signal.alarm(settings.deadline_s)
        if options == [SELF_TEST]:
            return asyncio.run(_self_tested(client, settings))
        reply = asyncio.run(answer(client, settings, _read_input()))
    except TurnkeeperError as error:
        return _blocked(error.message)
    except Exception as error:  # noqa: BLE001  whatever it is: a client takes it for consent unless it ends in a block
        return _blocked(f"the hook failed: {type(error).__name__}: {error}")
    sys.stderr.write(reply.stderr)
    # All of it, or an exception and with it a block: half an answer is none, and counts as consent.
    sys.stdout.buffer.write(reply.stdout)
    sys.stdout.buffer.flush()
    return reply.exit_code


async def answer(client: str, settings: HookSettings, raw: bytes) -> Reply:
    """The reply to one report. Raises `TurnkeeperError` for what must end in a block of the whole hook."""
    dialect = DIALECTS.get(client)
    if dialect is None:
        raise HookInputInvalid(f"no client {client!r} is known; known are {', '.join(DIALECTS)}")
    report = dialect.read_report(cast("Mapping[str, object]", parse_object(raw)))
    folder = _folder(settings.state_dir, client)
    async with _guardian(settings, folder) as guardian:
        desk = HookDesk(guardian, SessionStates(folder), ask_wait_s=settings.ask_wait_s, ids=RandomIds(SystemClock()))
        try:
            ruling = await desk.rule(report)
        except TurnkeeperError as error:
            ruling = Block(error.message)
    return dialect.render_reply(report.event, ruling)


async def _self_tested(client: str, settings: HookSettings) -> int:
    """Whether a hook that runs now would get a decision: the settings, the folder, the key and the Guardian."""
    async with _guardian(settings, _folder(settings.state_dir, client)) as guardian:
        heard = await guardian.ping(timeout_ms=settings.decision_timeout_s * 1_000)
    return _blocked(heard.message) if isinstance(heard, Failure) else 0


def _guardian(settings: HookSettings, folder: Path) -> GuardianClient:
    try:
        identity = Identity.from_file(settings.agent_id, settings.secret_file, key_id=settings.key_id)
    except OSError as error:
        raise HookInputInvalid(f"the secret file cannot be read: {error.strerror}") from error
    limit_ms = settings.decision_timeout_s * 1_000
    return GuardianClient(
        HttpTransport(settings.guardian_url),
        identity,
        settings=ClientSettings(
            posture=PostureRules(on_decision_failure="deny", startup="refuse", unevaluated="deny"),
            timing=Timing(handshake_ms=min(5_000, limit_ms), max_decision_ms=limit_ms),
            pending="raise",
            audit_decisions=True,
            methods=METHODS,
        ),
        audit=JsonLinesAudit(folder / "audit.jsonl"),
        terms=FileTerms(folder / "terms"),
    )


def _folder(state_dir: Path, client: str) -> Path:
    try:
        for folder in (state_dir, state_dir / client, state_dir / client / "terms"):
            folder.mkdir(parents=folder == state_dir, exist_ok=True, mode=0o700)
    except OSError as error:
        raise HookStateUnusable(f"the state folder {state_dir} cannot be used: {error.strerror}") from error
    return state_dir / client


def _read_input() -> bytes:
    raw = sys.stdin.buffer.read(MAX_INPUT_BYTES + 1)
    if len(raw) > MAX_INPUT_BYTES:
        raise HookInputInvalid(f"the report has more than {MAX_INPUT_BYTES} bytes")
    return raw


def _blocked(reason: str) -> int:
    sys.stderr.write(f"turnkeeper hook: {reason}\n")
    return BLOCKED_EXIT
