"""Values an agent wants to show: as they are, or as text where a signature could not cover them (ACS 10.2).

Answers for steps that are never unsignable for a number in them. Must never change a value that has a canonical form.
Pure.
"""

import json

from turnkeeper.acs.canonical import CanonicalizationRejected, canonicalize


def signable(value: object) -> object:
    """The value, or its JSON text where it has no canonical form.

    Raises `CanonicalizationRejected` for what is no JSON at all.
    """
    try:
        canonicalize(value)
    except CanonicalizationRejected:
        return _json_text(value)
    return value


def _json_text(value: object) -> str:
    # orjson has no integers beyond 64 bits.
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise CanonicalizationRejected(f"a {type(value).__name__} cannot be shown as JSON") from error
