"""One port, two products, and the door that has no port."""

import asyncio
from collections.abc import Mapping, MutableMapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from turnkeeper.acs import HANDSHAKE_METHOD, KeyUnknown, ObservedSession, Verdict, build_client_hello
from turnkeeper.clock import SystemClock, render_time
from turnkeeper.config import load_configuration
from turnkeeper.datadir import DataDir
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.http import AsgiApp, Receive, Scope, Send
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.shipped import default_rules
from turnkeeper.store.chain import SqliteGuardianStore
from turnkeeper.turns.payloads import METHODS_IMPLEMENTED
from turnkeeper.turns.ports import GuardianUnreachable
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.doors import InProcessLink, dispatch
from turnkeeper.wiring.guardian import open_guardian_side
from turnkeeper.wiring.keys import OUTSIDE_LABEL, PLATFORM_LABEL, outside_keys, platform_keyring, stored_keyring


def named(name: str, called: list[str]) -> AsgiApp:
    """An application that writes its name down."""

    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        called.append(name)

    return app


async def nothing() -> MutableMapping[str, Any]:
    """Nobody sends."""
    return {}


async def nowhere(_message: MutableMapping[str, Any]) -> None:
    """Nobody listens."""


@pytest.mark.parametrize(
    ("scope", "wanted"),
    [
        ({"type": "http", "path": "/acs"}, "acs"),
        ({"type": "http", "path": "/acs/"}, "api"),
        ({"type": "http", "path": "/acsx"}, "api"),
        ({"type": "http", "path": "/v1/turns"}, "api"),
        ({"type": "http", "path": "/guardian/v1"}, "admin"),
        ({"type": "http", "path": "/guardian/v1/sessions"}, "admin"),
        ({"type": "http", "path": "/guardian/v10"}, "api"),
        ({"type": "lifespan"}, "api"),
    ],
)
def test_a_request_goes_to_the_guardian_by_its_exact_path_alone(scope: dict[str, str], wanted: str) -> None:
    """Everything else is the API's to answer."""
    called: list[str] = []
    app = dispatch(named("api", called), named("acs", called), named("admin", called))
    asyncio.run(app_call(app, scope))
    assert called == [wanted]


async def app_call(app: AsgiApp, scope: dict[str, str]) -> None:
    """One call of an application."""
    await app(scope, nothing, nowhere)


def test_without_a_guardian_of_ours_the_path_is_the_apis() -> None:
    """Which answers that there is no such endpoint."""
    called: list[str] = []
    asyncio.run(app_call(dispatch(named("api", called), None), {"type": "http", "path": "/acs"}))
    assert called == ["api"]


def test_the_link_in_process_carries_bytes_to_the_guardian_and_back(tmp_path: Path) -> None:
    """Even a body that is no envelope is answered, never raised."""

    async def main() -> bytes:
        guardian, link = await started(tmp_path)
        try:
            return await link.exchange(b"{", timeout_ms=5_000)
        finally:
            await guardian.stop()

    assert b"-32700" in asyncio.run(main())


def test_the_link_in_process_gives_up_at_its_deadline(tmp_path: Path) -> None:
    """As a cut connection would; the Guardian goes on by itself and can still be stopped."""

    async def main() -> None:
        guardian, link = await started(tmp_path)
        try:
            with pytest.raises(GuardianUnreachable, match="did not answer within 0 ms"):
                await link.exchange(hello(tmp_path), timeout_ms=0)
        finally:
            await guardian.stop()

    asyncio.run(main())


def hello(folder: Path) -> bytes:
    """A signed handshake, which takes a commit to answer."""
    session_id = str(uuid4())
    keyring = platform_keyring(DataDir(folder))
    session = ObservedSession.open(agent_id="a", session_id=session_id, keyring=keyring, key_id=PLATFORM_LABEL)
    return session.request(
        HANDSHAKE_METHOD,
        build_client_hello(methods=METHODS_IMPLEMENTED, transports=("http",)),
        request_id=str(uuid4()),
        timestamp=render_time(SystemClock().now()),
        nonce=uuid4().hex,
    )


async def started(folder: Path) -> tuple[Guardian, InProcessLink]:
    """A real Guardian and the link to it."""
    data_dir = DataDir(folder)
    data_dir.prepare()
    guardian = Guardian(
        store=SqliteGuardianStore(data_dir.guardian_database), engine=CelEngine(default_rules()), clock=SystemClock()
    )
    await guardian.start()
    return guardian, InProcessLink(guardian, Door("in_process", platform_keyring(data_dir)))


def test_the_key_of_our_own_sessions_is_in_no_keyring_that_outsiders_reach(tmp_path: Path) -> None:
    """Two labels, two files, two doors."""
    data_dir = DataDir(tmp_path)
    data_dir.prepare()
    assert stored_keyring(data_dir).key_ids == frozenset()
    keys = outside_keys(data_dir)
    assert keys.session_key(OUTSIDE_LABEL, "s").key_id == OUTSIDE_LABEL
    with pytest.raises(KeyUnknown):
        keys.session_key(PLATFORM_LABEL, "s")
    assert platform_keyring(data_dir).key_ids == {PLATFORM_LABEL}
    assert stored_keyring(data_dir).key_ids == {OUTSIDE_LABEL, PLATFORM_LABEL}


POLICY = """
version: 1
name: details
default: allow
rules:
  - id: hide
    hooks: [toolCallRequest]
    tools: [shell]
    decision: modify
    reasoning: Hidden.
    modify: {redactions: [{path: /arguments/command/value}]}
  - id: ask
    hooks: [toolCallRequest]
    tools: [delete]
    decision: ask
    reasoning: A person decides.
    ask: {question: "Delete?", timeout_seconds: 60, approver: {type: human, id: operators}}
"""


@pytest.mark.parametrize(
    ("tool", "told"), [("shell", ("modify", "policy_modified")), ("delete", ("ask", "approval_required"))]
)
def test_the_platform_is_sent_what_it_applies_and_what_it_waits_for(
    tmp_path: Path, tool: str, told: tuple[str, str]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    flags = {"data_dir": tmp_path / "data", "guardian.policy": policy}
    configuration = load_configuration(flags=flags, environ={}, data_dir_name="serve")
    folder = DataDir(configuration.settings.data_dir)
    folder.prepare()

    async def main() -> Verdict:
        async with AsyncExitStack() as stack:
            side = await open_guardian_side(stack, Base(configuration, folder))
            observed = ObservedSession.open(
                agent_id="agt", session_id=str(uuid4()), keyring=side.keyring, key_id=side.key_id
            )

            async def ask(method: str, payload: Mapping[str, object]) -> object:
                request_id, at = str(uuid4()), render_time(SystemClock().now())
                body = observed.request(method, payload, request_id=request_id, timestamp=at, nonce=uuid4().hex)
                raw = await side.link.exchange(body, timeout_ms=10_000)
                return observed.answer(raw, request_id=request_id)

            await ask(HANDSHAKE_METHOD, build_client_hello(methods=METHODS_IMPLEMENTED, transports=("http",)))
            arguments = {"command": {"value": "ls"}}
            verdict = await ask("steps/toolCallRequest", {"tool": {"name": tool}, "arguments": arguments})
            assert isinstance(verdict, Verdict)
            return verdict

    verdict = asyncio.run(main())
    assert (verdict.decision, verdict.reason_codes[0]) == told
