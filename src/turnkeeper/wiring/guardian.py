"""The Guardian's side: ours in this process with its two doors, or a wire to somebody else's."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx

from turnkeeper.acs.keys import Keyring, read_secret
from turnkeeper.acs.strictjson import JsonLimits
from turnkeeper.config import ConfigInvalid
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.http import AsgiApp, guardian_app
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.guardian.settings import GuardianSettings as PipelineSettings
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.rules import PolicyRejected, RuleSet, parse_rules
from turnkeeper.policy.shipped import default_rules
from turnkeeper.store.chain import SqliteGuardianStore
from turnkeeper.turns.exchange import Exchange
from turnkeeper.turns.governor import Governor, GovernorSettings
from turnkeeper.turns.links import HttpGuardianLink
from turnkeeper.turns.ports import GuardianLink, TurnStore
from turnkeeper.turns.timing import LoopWaiter
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.doors import InProcessLink
from turnkeeper.wiring.keys import PLATFORM_LABEL, outside_keyring, platform_keyring

MAX_POLICY_BYTES: Final = 1_048_576


@dataclass(frozen=True, slots=True)
class GuardianSide:
    """A wire to the Guardian and the key for it; `acs` is the HTTP door when the Guardian is ours."""

    link: GuardianLink
    keyring: Keyring
    key_id: str
    acs: AsgiApp | None
    name: str


async def open_guardian_side(stack: AsyncExitStack, base: Base) -> GuardianSide:
    """The Guardian of the settings. Raises `ConfigInvalid`, `StoreFailed`."""
    chosen = base.settings.guardian
    if chosen.url is not None and chosen.secret_file is not None:
        client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))
        link = HttpGuardianLink(chosen.url, client)
        return GuardianSide(link, _shared_keyring(chosen.secret_file, chosen.key_id), chosen.key_id, None, chosen.url)
    rules = load_rules(chosen.policy)
    guardian = await _start_guardian(stack, base, rules)
    keyring = platform_keyring(base.folder)
    # INVARIANT: the key of our own sessions opens no door that others can reach.
    door = Door("http", outside_keyring(base.folder))
    return GuardianSide(
        link=InProcessLink(guardian, Door("in_process", keyring)),
        keyring=keyring,
        key_id=PLATFORM_LABEL,
        acs=guardian_app(guardian, door, max_body_bytes=base.settings.server.max_body_bytes),
        name=f"in process, rules {rules.name}",
    )


async def _start_guardian(stack: AsyncExitStack, base: Base, rules: RuleSet) -> Guardian:
    chosen = base.settings.guardian
    guardian = Guardian(
        store=SqliteGuardianStore(base.folder.guardian_database),
        engine=CelEngine(rules),
        clock=base.clock,
        settings=PipelineSettings(
            skew_window_ms=chosen.skew_window_ms,
            default_timeout_ms=chosen.decision_timeout_ms,
            on_decision_failure=chosen.on_decision_failure,
            json_limits=JsonLimits(max_bytes=base.settings.server.max_body_bytes),
        ),
    )
    await guardian.start()
    stack.push_async_callback(guardian.stop)
    return guardian


def make_governor(base: Base, store: TurnStore, side: GuardianSide) -> Governor:
    """The platform as Observed Agent, at the end of that wire."""
    chosen = base.settings.guardian
    exchange = Exchange(side.link, side.keyring, side.key_id, clock=base.clock, ids=base.ids, waiter=LoopWaiter())
    told = GovernorSettings(
        decision_timeout_ms=chosen.decision_timeout_ms, on_decision_failure=chosen.on_decision_failure
    )
    return Governor(store, exchange, clock=base.clock, waiter=LoopWaiter(), settings=told)


def load_rules(policy: Path | None) -> RuleSet:
    """The Guardian's rules: a file's, or the shipped ones. Raises `ConfigInvalid`."""
    if policy is None:
        return default_rules()
    try:
        with policy.open("rb") as stream:
            content = stream.read(MAX_POLICY_BYTES + 1)
    except OSError as error:
        raise ConfigInvalid(f"guardian.policy: {policy} cannot be read: {error.strerror}") from error
    if len(content) > MAX_POLICY_BYTES:
        raise ConfigInvalid(f"guardian.policy: {policy} is over {MAX_POLICY_BYTES} bytes")
    try:
        rules = parse_rules(content)
        CelEngine(rules)
    except PolicyRejected as rejected:
        raise ConfigInvalid(f"guardian.policy: {policy}: {rejected.message}", hint=rejected.hint) from rejected
    return rules


def _shared_keyring(secret_file: Path, key_id: str) -> Keyring:
    try:
        return Keyring({key_id: read_secret(secret_file.read_bytes())})
    except OSError as error:
        raise ConfigInvalid(f"guardian.secret_file: {secret_file} cannot be read: {error.strerror}") from error
