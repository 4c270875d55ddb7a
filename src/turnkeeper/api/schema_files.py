"""The schemas served at `/schemas/{version}/…` (contract 14): the files of the package, byte for byte."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Final

from turnkeeper.acs.schemas import schema_text

TURN_END_NAME: Final = "turn-end.json"
_TURN_END_PATH = "hooks/turn-end.json"
_SUFFIX = ".json"


@cache
def schema_files() -> Mapping[str, bytes]:
    """The served files by name: one per event type, `usage.json`, and the standard's `turn-end.json`."""
    folder = files("turnkeeper.events") / "schemas"
    events = {item.name: item.read_bytes() for item in folder.iterdir() if item.name.endswith(_SUFFIX)}
    return MappingProxyType({**events, TURN_END_NAME: schema_text(_TURN_END_PATH)})
