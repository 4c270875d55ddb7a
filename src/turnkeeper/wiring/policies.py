"""Policies from the disk, and the engines that evaluate them."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, NoReturn

import structlog

from turnkeeper.config import ConfigInvalid
from turnkeeper.policy.bundle import MAX_BUNDLE_BYTES, MAX_FILES, Bundle, bundle_digest, parse_bundle, single_file
from turnkeeper.policy.document import PolicyRejected
from turnkeeper.policy.engine import PolicyEngine
from turnkeeper.policy.engines.cedar import HOST_MODULE, CedarEngine
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.hosted import ComposedEngine
from turnkeeper.policy.reload import Change, Look, PolicyReloader, SwitchedEngine, require_passing
from turnkeeper.policy.rules import MAX_POLICY_BYTES
from turnkeeper.policy.shipped import default_rules
from turnkeeper.wiring.engine_process import EngineProcess

SETTING: Final = "guardian.policy"
LOOK_EVERY_MS: Final = 1_000
"""How often a served policy's place is looked at; a change is taken at the second look that finds it."""

_log = structlog.get_logger(__name__)


def read_policy(path: Path) -> Mapping[str, bytes]:
    """The files of a policy, by their paths in it; a single rule file has the name "". Raises `ConfigInvalid`."""
    try:
        # Where the folder is a link that is switched to another one, all files are the same one's.
        place = path.resolve(strict=True)
        return dict(_files(place)) if place.is_dir() else {"": _content(place, MAX_POLICY_BYTES)}
    except OSError as error:
        raise ConfigInvalid(f"{SETTING}: {path} cannot be read: {error.strerror}") from error


def load_policy(path: Path) -> Bundle:
    """The policy in a file or folder. Raises `ConfigInvalid`, `PolicyRejected`."""
    return parse_policy(read_policy(path))


def parse_policy(files: Mapping[str, bytes]) -> Bundle:
    """The policy in files as `read_policy` gives them. Raises `PolicyRejected`."""
    return single_file(files[""]) if "" in files else parse_bundle(files)


def served_bundle(files: Mapping[str, bytes]) -> Bundle:
    """A policy that the Guardian can serve today. Raises `PolicyRejected`, `not_supported_yet` for one with Cedar."""
    bundle = parse_policy(files)
    if bundle.cedar_settings is not None:
        raise PolicyRejected(
            "engines.cedar: a policy with Cedar can be checked, tested and evaluated, but not be served yet",
            code="not_supported_yet",
            detail={"path": "engines.cedar"},
        )
    return bundle


@asynccontextmanager
async def served_engine(
    path: Path | None, *, look_every_ms: int = LOOK_EVERY_MS
) -> AsyncGenerator[SwitchedEngine[CelEngine]]:
    """The engine of the policy at `path`, switched when the policy changes; of the shipped one without a path.

    Raises `ConfigInvalid`, `PolicyRejected`. At the start as later, the policy's own tests have to pass.
    """
    if path is None:
        yield SwitchedEngine(CelEngine(default_rules()))
        return
    files = read_policy(path)
    engine = SwitchedEngine(await _build(files))
    reloader = PolicyReloader(lambda: asyncio.to_thread(read_policy, path), _build, engine, bundle_digest(files))
    watching = asyncio.ensure_future(_watch(reloader, look_every_ms))
    try:
        yield engine
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def _build(files: Mapping[str, bytes]) -> CelEngine:
    bundle = served_bundle(files)
    engine = CelEngine(bundle.rules)
    require_passing(bundle, engine)
    return engine


async def _watch(reloader: PolicyReloader[CelEngine], look_every_ms: int) -> NoReturn:
    told: Look | None = None
    while True:
        await asyncio.sleep(look_every_ms / 1000)
        look = await reloader.look()
        if look != told:
            _tell(look)
        told = look


def _tell(look: Look) -> None:
    if look.change is Change.TAKEN:
        _log.info("policy_taken", version=look.version)
    elif look.change is Change.REFUSED:
        _log.error("policy_refused", problem=look.problem, still_serving=look.version)


@asynccontextmanager
async def open_engine(bundle: Bundle) -> AsyncGenerator[ComposedEngine]:
    """The engines of a bundle, started, as one. Raises `PolicyRejected`, `EngineUnavailable`."""
    built_in: PolicyEngine = CelEngine(bundle.rules)
    if bundle.cedar_settings is None:
        yield ComposedEngine(built_in, ())
        return
    settings = bundle.cedar_settings
    link = EngineProcess(HOST_MODULE, {"policies": bundle.cedar}, deadline_ms=settings.deadline_ms)
    try:
        await link.start()
        yield ComposedEngine(built_in, (CedarEngine(bundle.rules.reference(), settings, link),))
    finally:
        await link.stop()


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    left = MAX_BUNDLE_BYTES
    found = sorted(path for path in folder.rglob("*") if not path.is_dir())
    if len(found) > MAX_FILES:
        raise ConfigInvalid(f"{SETTING}: {folder} has more than {MAX_FILES} files")
    for path in found:
        content = _content(path, left)
        left -= len(content)
        yield path.relative_to(folder).as_posix(), content


def _content(path: Path, limit: int) -> bytes:
    with path.open("rb") as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise ConfigInvalid(f"{SETTING}: {path} is over {limit} bytes")
    return content
