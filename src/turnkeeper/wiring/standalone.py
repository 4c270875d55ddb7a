"""A Guardian that stands alone: any ACS client's, without turn API, worker and boxes.

Answers for the same Guardian as `serve` has, with its doors. Holds no rule of its own.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from turnkeeper.config import ConfigInvalid, Configuration
from turnkeeper.datadir import DataDir
from turnkeeper.errors import TurnkeeperError
from turnkeeper.guardian.admin import admin_app
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.http import AsgiApp, guardian_app
from turnkeeper.guardian.keyfolder import KeyFolder
from turnkeeper.guardian.pipeline import Guardian
from turnkeeper.wiring.base import Base
from turnkeeper.wiring.doors import ACS_PATH, dispatch
from turnkeeper.wiring.guardian import serve_policy, start_guardian
from turnkeeper.wiring.keys import outside_keys
from turnkeeper.wiring.record import guardian_record


@dataclass(frozen=True, slots=True)
class StandaloneGuardian:
    """What runs. `asgi` serves `/acs` and `/guardian/v1`."""

    guardian: Guardian
    keys: KeyFolder
    asgi: AsgiApp
    policy: str


@asynccontextmanager
async def open_standalone(configuration: Configuration, folder: DataDir) -> AsyncGenerator[StandaloneGuardian, None]:
    """The Guardian, running until the end of the block; the data dir is prepared and held by the caller.

    Raises `ConfigInvalid`, `StoreFailed`.
    """
    base = Base(configuration, folder)
    chosen = base.settings.guardian
    if chosen.url is not None:
        raise ConfigInvalid("guardian.url names another Guardian; this one decides itself")
    async with AsyncExitStack() as stack:
        keys = _keys(base)
        engine = await serve_policy(stack, chosen.policy)
        guardian = await start_guardian(stack, base, engine)
        acs = guardian_app(
            guardian, Door("http", keys), max_body_bytes=base.settings.server.max_body_bytes, path=ACS_PATH
        )
        admin = admin_app(guardian_record(base.settings, folder).desk(), base.clock)
        policy = engine.reference
        yield StandaloneGuardian(
            guardian, keys, dispatch(acs, None, admin), f"{policy.policy_id} {policy.policy_version}"
        )


def _keys(base: Base) -> KeyFolder:
    chosen = base.settings.guardian
    try:
        return outside_keys(base.folder, key_id=chosen.key_id, secret_file=chosen.secret_file)
    except OSError as error:
        raise ConfigInvalid(f"guardian.secret_file: {error.filename} cannot be read: {error.strerror}") from error
    except TurnkeeperError as error:
        raise ConfigInvalid(f"guardian.secret_file: {error.message}", hint=error.hint) from error
