"""The event of skills (contract 10.3): one was loaded. Pure."""

from typing import Final

import orjson

from turnkeeper.events.envelope import NewEvent

SKILL_LOADED: Final = "skill.loaded"
SKILL_TYPES: Final = (SKILL_LOADED,)


def skill_loaded(*, turn_id: str, attempt: int, name: str, version: int, sha256: str) -> NewEvent:
    """The Guardian let a version of a skill be loaded; `sha256` is of the archive that it was loaded from."""
    data = {"turn_id": turn_id, "name": name, "version": version, "sha256": sha256}
    return NewEvent("skill.loaded", "sandbox", orjson.dumps(data).decode(), turn_id, attempt)
