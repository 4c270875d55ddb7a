"""The policies that ship with Turnkeeper, read from the package once."""

from functools import cache
from importlib.resources import files
from typing import Final

from turnkeeper.policy.bundle import POLICY_FILE, TESTS_FOLDER, Bundle, parse_bundle
from turnkeeper.policy.rules import RuleSet, parse_rules

SHIPPED: Final = ("baseline", "coding-agent", "data-access", "intent", "per-turn-limits", "taint")
"""The bundles: folders with tests of their own, to start an operator's own from."""

_BUNDLES = files("turnkeeper.policy") / "bundles"


@cache
def default_rules() -> RuleSet:
    """The shipped default policy: strict, yet enough for the built-in tools."""
    return parse_rules(default_policy())


@cache
def default_policy() -> bytes:
    """The text of the shipped default policy, as a starting point for an operator's own."""
    return _BUNDLES.joinpath("default.yaml").read_bytes()


def shipped_files(name: str) -> dict[str, bytes]:
    """The files of one of `SHIPPED`, by their paths in it."""
    folder = _BUNDLES / name
    tests = (folder / TESTS_FOLDER.rstrip("/")).iterdir()
    return {
        POLICY_FILE: (folder / POLICY_FILE).read_bytes(),
        **{f"{TESTS_FOLDER}{test.name}": test.read_bytes() for test in tests},
    }


@cache
def shipped_bundle(name: str) -> Bundle:
    """One of `SHIPPED`, read and checked."""
    return parse_bundle(shipped_files(name))
