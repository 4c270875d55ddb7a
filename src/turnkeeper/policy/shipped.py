"""The policy that ships with Turnkeeper, read from the package once."""

from functools import cache
from importlib.resources import files

from turnkeeper.policy.rules import RuleSet, parse_rules


@cache
def default_rules() -> RuleSet:
    """The shipped default policy: strict, yet enough for the built-in tools."""
    return parse_rules(default_policy())


@cache
def default_policy() -> bytes:
    """The text of the shipped default policy, as a starting point for an operator's own."""
    return files("turnkeeper.policy").joinpath("bundles", "default.yaml").read_bytes()
