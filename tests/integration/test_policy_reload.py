"""A served policy changes on the disk: whole, checked, and without a step being decided by half of it."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import structlog.testing
from tests.unit.policy.samples import tool_call

from turnkeeper.acs import Disposition
from turnkeeper.policy.document import PolicyRejected
from turnkeeper.policy.reload import SwitchedEngine
from turnkeeper.wiring.policies import Served, served_engine

ALLOW = "version: 1\nname: house\ndefault: allow\nrules: []\n"
DENY = ALLOW.replace("default: allow", "default: deny")
CASE = "tests:\n  - {name: one, facts: {hook: toolCallRequest, tool: shell}, expect: {decision: allow}}\n"
PATIENCE_S = 30


def serve(path: Path, test: Callable[[SwitchedEngine[Served]], Awaitable[None]]) -> None:
    async def main() -> None:
        async with served_engine(path, look_every_ms=5) as engine, asyncio.timeout(PATIENCE_S):
            await test(engine)

    asyncio.run(main())


async def until(engine: SwitchedEngine[Served], disposition: Disposition) -> None:
    while engine.evaluate(tool_call()).disposition is not disposition:
        await asyncio.sleep(0.005)


def folder(place: Path, policy: str) -> Path:
    (place / "tests").mkdir(parents=True)
    (place / "policy.yaml").write_text(policy)
    return place


def test_a_rule_file_that_changes_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(ALLOW)

    async def test(engine: SwitchedEngine[Served]) -> None:
        before = engine.reference.policy_version
        file.write_text(DENY)
        await until(engine, Disposition.DENY)
        assert engine.reference.policy_version != before

    serve(file, test)


def test_a_folder_is_switched_by_its_link_and_a_wrong_one_in_between_never_decides(tmp_path: Path) -> None:
    first, wrong, last = (folder(tmp_path / name, text) for name, text in (("1", ALLOW), ("2", DENY), ("3", DENY)))
    (wrong / "tests" / "a.yaml").write_text(CASE)
    link = tmp_path / "served"
    link.symlink_to(first)

    async def test(engine: SwitchedEngine[Served]) -> None:
        _switch(link, wrong)
        for _ in range(20):
            await asyncio.sleep(0.005)
            assert engine.evaluate(tool_call()).disposition is Disposition.ALLOW
        _switch(link, last)
        await until(engine, Disposition.DENY)

    serve(link, test)


def test_the_log_names_who_answers_for_a_policy(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(ALLOW.replace("default", "author: ana@example.org\ndefault"))

    async def test(engine: SwitchedEngine[Served]) -> None:
        del engine

    with structlog.testing.capture_logs() as told:
        serve(file, test)
    (ready,) = [one for one in told if one["event"] == "policy_ready"]
    assert (ready["policy"], ready["author"]) == ("house", "ana@example.org")


def test_a_policy_whose_own_tests_fail_is_not_served_at_all(tmp_path: Path) -> None:
    place = folder(tmp_path / "house", DENY)
    (place / "tests" / "a.yaml").write_text(CASE)

    async def test(engine: SwitchedEngine[Served]) -> None:
        raise AssertionError(engine.reference)

    with pytest.raises(PolicyRejected) as caught:
        serve(place, test)
    assert caught.value.error_code == "policy_test_failed"


def _switch(link: Path, target: Path) -> None:
    fresh = link.with_name("fresh")
    fresh.symlink_to(target)
    os.replace(fresh, link)
