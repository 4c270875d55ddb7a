"""The built-in rules: a YAML text becomes a checked rule set, or is refused with the path of what is wrong.

Answers for everything about a rule that can be known before a step arrives, save that its condition compiles (the
engine's part). Must never guess: an unknown key, a missing `default` or a decision that a hook does not permit is
refused. Pure.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from turnkeeper.acs import METHODS, PING_METHOD, Disposition, PolicyReference, hook_name
from turnkeeper.policy.details import DETAILED, WRAPPED_HOOK, check_hooks, is_wrapped, read_details
from turnkeeper.policy.document import (
    PolicyRejected,
    load_document,
    mapping,
    matching,
    one_of,
    optional_text,
    rejected,
    sequence,
    texts,
)
from turnkeeper.policy.scopes import SCOPES, check_scope, scoped
from turnkeeper.policy.settings import HostedSettings, read_engines

RULES_VERSION: Final = 1
MAX_POLICY_BYTES: Final = 256 * 1024
MAX_RULES: Final = 1_000
MAX_CONDITION_CHARACTERS: Final = 4_096
MAX_REASONING_CHARACTERS: Final = 1_000
MAX_AUTHOR_CHARACTERS: Final = 200
DEFAULT_CODES: Final[Mapping[Disposition, str]] = {
    Disposition.DENY: "policy_denied",
    Disposition.MODIFY: "policy_modified",
    Disposition.ASK: "approval_required",
    Disposition.DEFER: "policy_deferred",
}
"""What a rule's decision is called where the rule names no code of its own."""

RULE_HOOKS: Final = frozenset(hook_name(method) for method in METHODS if method != PING_METHOD)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_REASON_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_BUNDLE_KEYS = frozenset({"version", "name", "author", "default", "rules", "engines"})
_RULE_KEYS = frozenset(
    {"id", "hooks", "tools", "when", "scope", "decision", "reasoning", "reason_codes", *DETAILED.values()}
)
_DEFAULTS = (Disposition.ALLOW.value, Disposition.DENY.value)


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. Empty `hooks` or `tools` mean any; a rule with `tools` concerns steps about a tool alone.

    `when` is the condition to evaluate, in which `scope.` has become the window that the rule declares; `details` are
    what MODIFY, ASK and DEFER carry on the wire.
    """

    id: str
    decision: Disposition
    hooks: frozenset[str] = frozenset()
    tools: tuple[str, ...] = ()
    when: str | None = None
    reasoning: str | None = None
    reason_codes: tuple[str, ...] = ()
    scope: str | None = None
    details: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class RuleSet:
    """A policy: what holds where no rule speaks, and the rules. `digest` names the exact bytes it was read from.

    `author` is who answers for it, as the policy says; None where it does not.
    """

    name: str
    digest: str
    default: Disposition
    rules: tuple[Rule, ...]
    cedar: HostedSettings | None = None
    author: str | None = None

    def reference(self, rule_id: str | None = None) -> PolicyReference:
        """The policy, or one of its rules, as decisions cite it."""
        return PolicyReference(policy_id=self.name, policy_version=self.digest, rule_id=rule_id)


def parse_rules(content: bytes) -> RuleSet:
    """The rule set in a YAML text. Raises `PolicyRejected`."""
    if len(content) > MAX_POLICY_BYTES:
        raise PolicyRejected(f"the policy has {len(content)} bytes, more than the limit of {MAX_POLICY_BYTES}")
    bundle = mapping(load_document(content), "", _BUNDLE_KEYS, required=("version", "name", "default", "rules"))
    if bundle["version"] != RULES_VERSION or isinstance(bundle["version"], bool):
        raise rejected("version", f"must be {RULES_VERSION}")
    return RuleSet(
        name=matching(bundle["name"], "name", _NAME),
        digest="sha256:" + hashlib.sha256(content).hexdigest(),
        default=Disposition(one_of(bundle["default"], "default", _DEFAULTS)),
        rules=_rules(bundle["rules"]),
        cedar=read_engines(bundle.get("engines", {}), "engines", RULE_HOOKS),
        author=optional_text(bundle, "author", "policy", MAX_AUTHOR_CHARACTERS),
    )


def _rules(value: object) -> tuple[Rule, ...]:
    items = sequence(value, "rules")
    if len(items) > MAX_RULES:
        raise rejected("rules", f"has {len(items)} rules, more than the limit of {MAX_RULES}")
    rules = tuple(_rule(item, f"rules[{index}]") for index, item in enumerate(items))
    seen: set[str] = set()
    for index, rule in enumerate(rules):
        if rule.id in seen:
            raise rejected(f"rules[{index}].id", f"repeats {rule.id!r}")
        seen.add(rule.id)
    return rules


def _rule(value: object, path: str) -> Rule:
    members = mapping(value, path, _RULE_KEYS, required=("id", "decision"))
    decision = Disposition(one_of(members["decision"], f"{path}.decision", tuple(Disposition)))
    reasoning = optional_text(members, "reasoning", path, MAX_REASONING_CHARACTERS)
    if decision is not Disposition.ALLOW and reasoning is None:
        raise rejected(f"{path}.reasoning", f"is required where the decision is {decision}")
    hooks = _hooks(members, path)
    check_hooks(decision, hooks, path)
    scope = one_of(members["scope"], f"{path}.scope", SCOPES) if "scope" in members else None
    return Rule(
        id=matching(members["id"], f"{path}.id", _NAME),
        decision=decision,
        hooks=hooks,
        tools=texts(members, "tools", path),
        when=_condition(members, scope, path),
        reasoning=reasoning,
        reason_codes=_codes(members, path) or ((DEFAULT_CODES[decision],) if decision in DEFAULT_CODES else ()),
        scope=scope,
        details=read_details(members, decision, hooks, path),
    )


def _condition(members: Mapping[str, object], scope: str | None, path: str) -> str | None:
    written = optional_text(members, "when", path, MAX_CONDITION_CHARACTERS)
    if written is None:
        if scope is not None:
            raise rejected(f"{path}.scope", "says which counts a condition reads, and there is none")
        return None
    check_scope(written, scope, f"{path}.when")
    return scoped(written, scope)


def _codes(members: Mapping[str, object], path: str) -> tuple[str, ...]:
    codes = texts(members, "reason_codes", path)
    for index, code in enumerate(codes):
        matching(code, f"{path}.reason_codes[{index}]", _REASON_CODE)
    return codes


def _hooks(members: Mapping[str, object], path: str) -> frozenset[str]:
    names = texts(members, "hooks", path)
    for index, name in enumerate(names):
        if name not in RULE_HOOKS and name != WRAPPED_HOOK and not is_wrapped(name):
            raise rejected(f"{path}.hooks[{index}]", f"{name!r} is not a hook; one of {', '.join(sorted(RULE_HOOKS))}")
    return frozenset(names)
