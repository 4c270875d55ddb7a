"""Policies from the disk, and the engines that evaluate them."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from turnkeeper.config import ConfigInvalid
from turnkeeper.policy.bundle import MAX_BUNDLE_BYTES, MAX_FILES, Bundle, parse_bundle, single_file
from turnkeeper.policy.engine import PolicyEngine
from turnkeeper.policy.engines.cedar import HOST_MODULE, CedarEngine
from turnkeeper.policy.engines.cel import CelEngine
from turnkeeper.policy.hosted import ComposedEngine
from turnkeeper.policy.rules import MAX_POLICY_BYTES
from turnkeeper.wiring.engine_process import EngineProcess

SETTING: Final = "guardian.policy"


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
