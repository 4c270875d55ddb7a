"""Reads a vector file of this folder."""

from pathlib import Path
from typing import Any

import orjson

_FOLDER = Path(__file__).parent


def read_vectors(name: str) -> dict[str, Any]:
    """The content of `<name>.json`."""
    return orjson.loads((_FOLDER / f"{name}.json").read_bytes())
