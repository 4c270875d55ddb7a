"""Policies from the disk, and the engines that evaluate them."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

import structlog

from turnkeeper.config import ConfigInvalid
from turnkeeper.policy.bundle import MAX_BUNDLE_BYTES, MAX_FILES, Bundle, bundle_digest, parse_bundle, single_file
from turnkeeper.policy.engines.cedar import HOST_MODULE, CedarEngine
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.hosted import ComposedEngine, EngineUnavailable
from turnkeeper.policy.reload import Change, Look, PolicyReloader, SwitchedEngine, require_passing
from turnkeeper.policy.rules import MAX_POLICY_BYTES
from turnkeeper.policy.shipped import default_rules
from turnkeeper.turns.containment import contained
from turnkeeper.wiring.engine_process import EngineProcess, python_host

SETTING: Final = "guardian.policy"
CEDAR_PACKAGE: Final = "cedarpy"
Served: TypeAlias = CelEngine | ComposedEngine
"""What decides by a policy; rules alone are decided by the rules' engine alone, and wait for nobody."""
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


@asynccontextmanager
async def served_engine(
    path: Path | None, *, look_every_ms: int = LOOK_EVERY_MS
) -> AsyncGenerator[SwitchedEngine[Served]]:
    """The engine of the policy at `path`, switched when the policy changes; of the shipped one without a path.

    Raises `ConfigInvalid`, `PolicyRejected`, `EngineUnavailable`. At the start as later, the policy's own tests have to
    pass. A replaced policy's processes end with the steps that they decide.
    """
    if path is None:
        yield SwitchedEngine(CelEngine(default_rules()))
        return
    files = read_policy(path)
    engine = SwitchedEngine(await _build(files))
    retiring = _Retiring()
    reloader = PolicyReloader(
        lambda: asyncio.to_thread(read_policy, path), _build, engine, bundle_digest(files), retiring.add
    )
    watching = asyncio.ensure_future(_watch(reloader, look_every_ms))
    try:
        yield engine
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        retiring.add(engine.current)
        await retiring.ended()


class _Retiring:
    """Replaced engines that end once the steps which hold them have ended."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, engine: Served) -> None:
        """Ends an engine that nobody asks any more."""
        if isinstance(engine, ComposedEngine):
            task = asyncio.ensure_future(_close_unused(engine))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def ended(self) -> None:
        """Returns once all of them have ended."""
        await asyncio.gather(*self._tasks)


async def _build(files: Mapping[str, bytes]) -> Served:
    """The engine of a policy that passes its own tests; the log says whose it is."""
    bundle = parse_policy(files)
    engine = CelEngine(bundle.rules) if bundle.cedar_settings is None else await start_engine(bundle)
    try:
        await require_passing(bundle, engine)
    except BaseException:
        if isinstance(engine, ComposedEngine):
            await engine.close()
        raise
    _log.info("policy_ready", policy=bundle.name, version=bundle.version, author=bundle.author)
    return engine


async def _close_unused(engine: ComposedEngine) -> None:
    unused = asyncio.Event()
    engine.retire(unused.set)
    await unused.wait()
    await engine.close()


async def _watch(reloader: PolicyReloader[Served], look_every_ms: int) -> NoReturn:
    told: Look | None = None
    while True:
        await asyncio.sleep(look_every_ms / 1000)
        look = await contained("look_at_policy", reloader.look())
        if look is not None and look != told:
            _tell(look)
        told = look or told


def _tell(look: Look) -> None:
    if look.change is Change.TAKEN:
        _log.info("policy_taken", version=look.version)
    elif look.change is Change.REFUSED:
        _log.error("policy_refused", problem=look.problem, still_serving=look.version)


@asynccontextmanager
async def open_engine(bundle: Bundle) -> AsyncGenerator[ComposedEngine]:
    """The engines of a bundle, for as long as the block lasts. Raises `PolicyRejected`, `EngineUnavailable`."""
    engine = await start_engine(bundle)
    try:
        yield engine
    finally:
        await engine.close()


async def start_engine(bundle: Bundle) -> ComposedEngine:
    """The engines of a bundle, started, as one; whoever has it closes it. Raises as `open_engine`."""
    built_in = CelEngine(bundle.rules)
    settings = bundle.cedar_settings
    if settings is None:
        return ComposedEngine(built_in, ())
    if find_spec(CEDAR_PACKAGE) is None:
        raise EngineUnavailable("engines.cedar needs the extra `cedar`", hint="pip install 'turnkeeper[cedar]'")
    link = EngineProcess(python_host(HOST_MODULE), {"policies": bundle.cedar}, deadline_ms=settings.deadline_ms)
    await link.start()
    return ComposedEngine(built_in, (CedarEngine(bundle.rules.reference(), settings, link),))


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
