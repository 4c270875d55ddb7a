"""The Guardian's side: ours in this process with its two doors, or a wire to somebody else's."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from turnkeeper.acs.keys import Keyring, read_secret
from turnkeeper.acs.strictjson import JsonLimits
from turnkeeper.config import ConfigInvalid
from turnkeeper.guardian.admin import admin_app
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.capabilities import AskFallback, ClientAbilities, ClientEntry
from turnkeeper.guardian.http import AsgiApp, guardian_app
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.guardian.provenance import TrustOverride
from turnkeeper.guardian.settings import GuardianSettings as PipelineSettings
from turnkeeper.policy.engine import PolicyEngine
from turnkeeper.policy.hosted import EngineUnavailable
from turnkeeper.policy.rules import PolicyRejected, RuleSet
from turnkeeper.policy.shipped import default_rules
from turnkeeper.settings import ClientSettings, GuardianSettings
from turnkeeper.turns.approval_desk import GuardianQuestions
from turnkeeper.turns.exchange import Exchange
from turnkeeper.turns.governor import Governor, GovernorSettings
from turnkeeper.turns.links import HttpGuardianLink
from turnkeeper.turns.measures import WorkerMeasures
from turnkeeper.turns.ports import GuardianLink, TurnStore
from turnkeeper.turns.timing import LoopWaiter
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.doors import InProcessLink
from turnkeeper.wiring.keys import PLATFORM_LABEL, outside_keys, platform_keyring
from turnkeeper.wiring.policies import parse_policy, read_policy, served_engine
from turnkeeper.wiring.questions import DeskQuestions, HttpQuestions
from turnkeeper.wiring.record import guardian_record
from turnkeeper.wiring.retention import retaining


@dataclass(frozen=True, slots=True)
class GuardianSide:
    """A wire to the Guardian and the key for it; `acs` and `admin` are its HTTP doors when the Guardian is ours."""

    link: GuardianLink
    keyring: Keyring
    key_id: str
    acs: AsgiApp | None
    name: str
    admin: AsgiApp | None = None
    questions: GuardianQuestions | None = None


async def open_guardian_side(stack: AsyncExitStack, base: Base) -> GuardianSide:
    """The Guardian of the settings. Raises `ConfigInvalid`, `StoreFailed`."""
    chosen = base.settings.guardian
    if chosen.url is not None and chosen.secret_file is not None:
        client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False))
        link = HttpGuardianLink(chosen.url, client)
        keyring, questions = _shared_keyring(chosen.secret_file, chosen.key_id), _distant_questions(chosen, client)
        return GuardianSide(link, keyring, chosen.key_id, None, chosen.url, questions=questions)
    engine = await serve_policy(stack, chosen.policy)
    guardian = await start_guardian(stack, base, engine)
    keyring = platform_keyring(base.folder)
    # INVARIANT: the key of our own sessions opens no door that others can reach.
    door = Door("http", outside_keys(base.folder))
    desk = guardian_record(base.settings, base.folder).desk()
    return GuardianSide(
        link=InProcessLink(guardian, Door("in_process", keyring)),
        keyring=keyring,
        key_id=PLATFORM_LABEL,
        acs=guardian_app(guardian, door, max_body_bytes=base.settings.server.max_body_bytes),
        name=f"in process, rules {engine.reference.policy_id}",
        admin=admin_app(desk, base.clock),
        questions=DeskQuestions(desk, base.clock),
    )


@asynccontextmanager
async def guardian_questions(base: Base) -> AsyncGenerator[GuardianQuestions | None]:
    """The questions of our own Guardian, beside whatever runs; None where it is somebody else's."""
    chosen = base.settings.guardian
    if chosen.url is None:
        yield DeskQuestions(guardian_record(base.settings, base.folder).desk(), base.clock)
        return
    async with httpx.AsyncClient(trust_env=False) as client:
        yield _distant_questions(chosen, client)


async def serve_policy(stack: AsyncExitStack, policy: Path | None) -> PolicyEngine:
    """The policy at a path, followed as it changes, or the shipped one. Raises `ConfigInvalid`."""
    try:
        return await stack.enter_async_context(served_engine(policy))
    except (PolicyRejected, EngineUnavailable) as rejected:
        raise unusable_policy(policy or Path(), rejected) from rejected


async def start_guardian(
    stack: AsyncExitStack, base: Base, engine: PolicyEngine, *, clients: tuple[ClientEntry, ...] = ()
) -> Guardian:
    """A Guardian of the settings over the data dir, stopped with the stack. Raises `StoreFailed`."""
    chosen = base.settings.guardian
    guardian = Guardian(
        store=guardian_record(base.settings, base.folder).store(),
        engine=engine,
        clock=base.clock,
        settings=PipelineSettings(
            skew_window_ms=chosen.skew_window_ms,
            default_timeout_ms=chosen.decision_timeout_ms,
            on_decision_failure=chosen.on_decision_failure,
            json_limits=JsonLimits(max_bytes=base.settings.server.max_body_bytes),
            clients=(*clients, *map(_client_entry, chosen.clients.values())),
            max_deferrals=chosen.max_deferrals,
            max_batch_requests=chosen.max_batch_requests,
            policy_requires_provenance=chosen.policy_requires_provenance,
            trust_overrides=tuple(
                TrustOverride(override.origin, override.source_id, override.trust)
                for override in chosen.trust_overrides.values()
            ),
        ),
    )
    await guardian.start()
    stack.push_async_callback(guardian.stop)
    await stack.enter_async_context(retaining(base, guardian))
    return guardian


def _client_entry(client: ClientSettings) -> ClientEntry:
    abilities = ClientAbilities(
        client.can_modify, client.can_ask, frozenset(client.approver_types), AskFallback(client.ask_fallback)
    )
    return ClientEntry(abilities, client.key_id, client.agent_id)


def make_governor(base: Base, store: TurnStore, side: GuardianSide, measures: WorkerMeasures | None = None) -> Governor:
    """The platform as Observed Agent, at the end of that wire."""
    chosen = base.settings.guardian
    exchange = Exchange(side.link, side.keyring, side.key_id, clock=base.clock, ids=base.ids, waiter=LoopWaiter())
    told = GovernorSettings(
        decision_timeout_ms=chosen.decision_timeout_ms, on_decision_failure=chosen.on_decision_failure
    )
    return Governor(store, exchange, clock=base.clock, waiter=LoopWaiter(), settings=told, measures=measures)


def load_rules(policy: Path | None) -> RuleSet:
    """The Guardian's rules: a file's or folder's, or the shipped ones. Raises `ConfigInvalid`."""
    if policy is None:
        return default_rules()
    try:
        return parse_policy(read_policy(policy)).rules
    except PolicyRejected as rejected:
        raise unusable_policy(policy, rejected) from rejected


def unusable_policy(policy: Path, rejected: PolicyRejected | EngineUnavailable) -> ConfigInvalid:
    """What is wrong with the policy, with the setting that names it."""
    return ConfigInvalid(f"guardian.policy: {policy}: {rejected.message}", hint=rejected.hint)


def _distant_questions(chosen: GuardianSettings, client: httpx.AsyncClient) -> GuardianQuestions | None:
    if chosen.approvals_url is None or chosen.approver_key_file is None:
        return None
    try:
        secret = chosen.approver_key_file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(
            f"guardian.approver_key_file: {chosen.approver_key_file} cannot be read: {error}"
        ) from error
    return HttpQuestions(chosen.approvals_url, secret, client)


def _shared_keyring(secret_file: Path, key_id: str) -> Keyring:
    try:
        return Keyring({key_id: read_secret(secret_file.read_bytes())})
    except OSError as error:
        raise ConfigInvalid(f"guardian.secret_file: {secret_file} cannot be read: {error.strerror}") from error
