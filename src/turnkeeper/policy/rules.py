"""The built-in rules: a YAML text becomes a checked rule set, or is refused with the path of what is wrong.

Answers for everything about a rule that can be known before a step arrives, save that its condition compiles (the
engine's part). Must never guess: an unknown key, a missing `default` or a decision that is not built yet is refused.
Pure.
"""

import hashlib
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, cast

import yaml

from turnkeeper.acs import METHODS, PING_METHOD, Disposition, PolicyReference, hook_name
from turnkeeper.errors import TurnkeeperError

RULES_VERSION: Final = 1
MAX_POLICY_BYTES: Final = 256 * 1024
MAX_RULES: Final = 1_000
MAX_CONDITION_CHARACTERS: Final = 4_096
MAX_REASONING_CHARACTERS: Final = 1_000
DEFAULT_DENIAL_CODE: Final = "policy_denied"

RULE_HOOKS: Final = frozenset(hook_name(method) for method in METHODS if method != PING_METHOD)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REASON_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_BUNDLE_KEYS = frozenset({"version", "name", "default", "rules"})
_RULE_KEYS = frozenset({"id", "hooks", "tools", "when", "decision", "reasoning", "reason_codes"})
_DECISIONS = {"allow": Disposition.ALLOW, "deny": Disposition.DENY}
_LATER = frozenset({"modify", "ask", "defer"})


class PolicyRejected(TurnkeeperError):
    """A policy that cannot be used; `detail.path` says where. `not_supported_yet` for what isn't built."""

    code = "policy_rejected"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Empty `hooks` or `tools` mean any; a rule with `tools` concerns steps about a tool alone."""

    id: str
    decision: Disposition
    hooks: frozenset[str] = frozenset()
    tools: tuple[str, ...] = ()
    when: str | None = None
    reasoning: str | None = None
    reason_codes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleSet:
    """A policy: what holds where no rule speaks, and the rules. `digest` names the exact bytes it was read from."""

    name: str
    digest: str
    default: Disposition
    rules: tuple[Rule, ...]

    def reference(self, rule_id: str | None = None) -> PolicyReference:
        """The policy, or one of its rules, as decisions cite it."""
        return PolicyReference(policy_id=self.name, policy_version=self.digest, rule_id=rule_id)


def parse_rules(content: bytes) -> RuleSet:
    """The rule set in a YAML text. Raises `PolicyRejected`."""
    if len(content) > MAX_POLICY_BYTES:
        raise PolicyRejected(f"the policy has {len(content)} bytes, more than the limit of {MAX_POLICY_BYTES}")
    bundle = _mapping(_load(content), "", _BUNDLE_KEYS, required=("version", "name", "default", "rules"))
    if bundle["version"] != RULES_VERSION or isinstance(bundle["version"], bool):
        raise _rejected("version", f"must be {RULES_VERSION}")
    return RuleSet(
        name=_matching(bundle["name"], "name", _NAME),
        digest="sha256:" + hashlib.sha256(content).hexdigest(),
        default=_decision(bundle["default"], "default"),
        rules=_rules(bundle["rules"]),
    )


class _StrictLoader(yaml.SafeLoader):
    """Plain data only; a key that stands twice in one mapping, and any alias, is an error."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not used in policies")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:  # noqa: FBT001, FBT002, RUF100  the library's signature
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if len({repr(key) for key in keys}) != len(keys):
            raise yaml.YAMLError(f"a key stands twice in the mapping at line {node.start_mark.line + 1}")
        return super().construct_mapping(node, deep)


def _load(content: bytes) -> object:
    try:
        return cast("object", yaml.load(content.decode(), Loader=_StrictLoader))  # noqa: S506  a SafeLoader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise PolicyRejected(f"the policy is not readable YAML: {error}", detail={"path": ""}) from error


def _rules(value: object) -> tuple[Rule, ...]:
    items = _sequence(value, "rules")
    if len(items) > MAX_RULES:
        raise _rejected("rules", f"has {len(items)} rules, more than the limit of {MAX_RULES}")
    rules = tuple(_rule(item, f"rules[{index}]") for index, item in enumerate(items))
    seen: set[str] = set()
    for index, rule in enumerate(rules):
        if rule.id in seen:
            raise _rejected(f"rules[{index}].id", f"repeats {rule.id!r}")
        seen.add(rule.id)
    return rules


def _rule(value: object, path: str) -> Rule:
    members = _mapping(value, path, _RULE_KEYS, required=("id", "decision"))
    decision = _decision(members["decision"], f"{path}.decision")
    reasoning = _optional_text(members, "reasoning", path, MAX_REASONING_CHARACTERS)
    if decision is Disposition.DENY and reasoning is None:
        raise _rejected(f"{path}.reasoning", "is required where the decision is deny")
    codes = _texts(members, "reason_codes", path)
    for index, code in enumerate(codes):
        _matching(code, f"{path}.reason_codes[{index}]", _REASON_CODE)
    return Rule(
        id=_matching(members["id"], f"{path}.id", _NAME),
        decision=decision,
        hooks=_hooks(members, path),
        tools=_texts(members, "tools", path),
        when=_optional_text(members, "when", path, MAX_CONDITION_CHARACTERS),
        reasoning=reasoning,
        reason_codes=codes or ((DEFAULT_DENIAL_CODE,) if decision is Disposition.DENY else ()),
    )


def _hooks(members: Mapping[str, object], path: str) -> frozenset[str]:
    names = _texts(members, "hooks", path)
    for index, name in enumerate(names):
        if name not in RULE_HOOKS:
            raise _rejected(f"{path}.hooks[{index}]", f"{name!r} is not a hook; one of {', '.join(sorted(RULE_HOOKS))}")
    return frozenset(names)


def _decision(value: object, path: str) -> Disposition:
    if value in _LATER:
        raise PolicyRejected(
            f"{path}: {value!r} is not built yet; allow and deny are",
            code="not_supported_yet",
            detail={"path": path},
        )
    if not isinstance(value, str) or value not in _DECISIONS:
        raise _rejected(path, "must be allow or deny")
    return _DECISIONS[value]


def _mapping(
    value: object, path: str, allowed: frozenset[str], *, required: tuple[str, ...] = ()
) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _rejected(path, "must be a mapping")
    members = cast("dict[object, object]", value)
    for key in members:
        if key not in allowed:
            raise _rejected(f"{path}.{key}".lstrip("."), f"is not a known key; one of {', '.join(sorted(allowed))}")
    for key in required:
        if key not in members:
            raise _rejected(f"{path}.{key}".lstrip("."), "is required")
    return cast("Mapping[str, object]", members)


def _sequence(value: object, path: str) -> list[object]:
    if not isinstance(value, list):
        raise _rejected(path, "must be a list")
    return cast("list[object]", value)


def _texts(members: Mapping[str, object], key: str, path: str) -> tuple[str, ...]:
    if key not in members:
        return ()
    items = _sequence(members[key], f"{path}.{key}")
    if not items:
        raise _rejected(f"{path}.{key}", "must not be empty; leave it out to mean any")
    for index, item in enumerate(items):
        if not isinstance(item, str) or not item:
            raise _rejected(f"{path}.{key}[{index}]", "must be a non-empty text")
    return tuple(cast("list[str]", items))


def _optional_text(members: Mapping[str, object], key: str, path: str, limit: int) -> str | None:
    if key not in members:
        return None
    value = members[key]
    if not isinstance(value, str) or not value.strip():
        raise _rejected(f"{path}.{key}", "must be a non-empty text")
    if len(value) > limit:
        raise _rejected(f"{path}.{key}", f"has more than {limit} characters")
    return value.strip()


def _matching(value: object, path: str, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:
        raise _rejected(path, f"must be a text of the form {pattern.pattern}")
    return value


def _rejected(path: str, problem: str) -> PolicyRejected:
    return PolicyRejected(f"{path or 'the policy'} {problem}", detail={"path": path})
