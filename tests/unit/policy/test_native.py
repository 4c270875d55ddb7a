"""Simple conditions without CEL: held against the CEL runtime itself, which is the oracle."""

import pytest
from cel_expr_python import cel
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.policy.samples import SESSION_ID, tool_call

from turnkeeper.policy.facts import FACT_NAMES, ApprovalFacts, Facts, SessionFacts, TurnFacts
from turnkeeper.policy.native import native_condition
from turnkeeper.policy.shipped import default_rules

MAPS = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
CEL = cel.NewEnv(variables={name: cel.Type.STRING if name == "environment" else MAPS for name in FACT_NAMES})
ATOMS = (
    "turn.tool_calls > 2",
    "turn.tool_calls<=2",
    "session.turns_since_taint == -1",
    "session.denials != session.deferrals",
    "turn.denied",
    "approval.granted == true",
    'tool.name == "shell"',
    "tool.name in [\"shell\", 'write']",
    'tool.name.startsWith("sh")',
    'environment == ""',
    'step.hook == "toolCallRequest"',
    "has(args.command)",
    'args.command == "ls"',
    'args.command != "ls"',
    'args.command in ["ls", "true"]',
    'args.command.contains("ls")',
    'args.command.endsWith("s")',
    "type(args.command) == string",
    "type(args.command) != string",
    '["l", "x"].exists(w, args.command.contains(w))',
    '["sh", "x"].exists(w, tool.name.startsWith(w))',
    "false",
    "has(payload.capability)",
    'payload.capability == "x.read"',
    '!payload.capability.endsWith(".read")',
    'payload.tool != "x"',
    'args.command.matches("^l")',
    "args.command > 1",
    "1 / session.denials == 1",
    'size(tool.name) > 4 // && "false"',
)


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Conditions made of conditions; a line's end closes any comment."""
    negated = inner.map("!({}\n)".format)
    both = st.tuples(inner, inner).map(lambda pair: "({}\n) && {}\n".format(*pair))
    either = st.tuples(inner, inner).map(lambda pair: "({}\n) || ({}\n)".format(*pair))
    return st.one_of(negated, both, either)


CONDITIONS = st.recursive(st.sampled_from(ATOMS), combined, max_leaves=6)
VALUES = st.one_of(
    st.sampled_from(["ls", "lx", "", "true", 1, True, None, 1.5, ["ls"], {"a": "ls"}]),
    # The runtime by itself ends a text at a NUL; what the engine does about that has a test of its own.
    st.text(st.characters(exclude_characters="\0"), max_size=3),
)
NAMES = st.sets(st.just("command"))


@st.composite
def steps(draw: st.DrawFn) -> Facts:
    """A tool call with any counts and any argument."""
    numbers = st.integers(-1, 3)
    arguments = {name: {"value": draw(VALUES)} for name in draw(NAMES)}
    more = draw(st.sampled_from([{}, {"capability": "x.read"}, {"capability": 1}, {"capability": None}]))
    return Facts(
        method="steps/toolCallRequest",
        step_id="step",
        payload={"tool": {"name": draw(st.sampled_from(["shell", "write", "x"]))}, "arguments": arguments, **more},
        agent_id="agent",
        session=SessionFacts(
            SESSION_ID, denials=draw(numbers), deferrals=draw(numbers), turns_since_taint=draw(numbers)
        ),
        turn=TurnFacts("t", denied=draw(st.booleans()), tool_calls=draw(numbers)),
        approval=ApprovalFacts(granted=draw(st.booleans())),
    )


def by_cel(condition: str, facts: Facts) -> bool | None:
    try:
        value = CEL.compile(condition).eval(CEL.Activation(facts.to_variables())).value()
    except RuntimeError:
        return None
    return value if isinstance(value, bool) else None


@given(CONDITIONS, steps())
def test_what_is_decided_natively_is_what_cel_decides(condition: str, facts: Facts) -> None:
    native = native_condition(condition)
    if native is None:
        return
    if native.complete:
        assert native.test(facts) is by_cel(condition, facts)
    elif native.test(facts) is False:
        assert by_cel(condition, facts) is False


@pytest.mark.parametrize("condition", ATOMS[:26])
@given(facts=steps())
def test_each_simple_comparison_is_native_and_right(condition: str, facts: Facts) -> None:
    native = native_condition(condition)
    assert native is not None
    assert native.complete
    assert native.test(facts) is by_cel(condition, facts)


@pytest.mark.parametrize(
    "condition",
    [
        "turn.tool_calls > 2.0",
        "turn.tool_calls == true",
        'turn.id < "é" ? true : false',
        'tool.name == r"a\\b"',
        'tool.name == "a\\n"',
        'tool.name.matches("x")',
        "payload.x == 1",
        'payload.x.y == "a"',
        '["a"].exists(tool, tool.name.contains(tool))',
        'payload["x"] == "a"',
        "args.command == 1",
        "!turn.denied == true",
        "turn.steps > 9223372036854775808",
        "turn.steps > 0x10",
        "turn.steps > 1u",
        "turn.nothing == 1",
        "(" * 30 + "turn.denied" + ")" * 30,
        "turn.denied || args.command.matches('x')",
        "tool.name in []",
    ],
)
def test_everything_else_is_left_to_cel(condition: str) -> None:
    native = native_condition(condition)
    assert native is None


def test_a_guard_settles_a_chain_whose_rest_is_not_simple() -> None:
    native = native_condition('has(args.command) && args.command.contains("rm && (") && args.command.matches("rm")')
    assert native is not None
    assert not native.complete
    assert native.test(tool_call(command="ls")) is False
    assert native.test(tool_call(command="rm && (")) is True


def test_a_text_that_looks_like_code_is_no_code() -> None:
    native = native_condition('tool.name == "x\\" || true || \\"" && turn.denied')
    assert native is not None
    assert not native.complete
    assert native.test(tool_call()) is False


def test_every_condition_of_the_shipped_policy_has_at_least_a_guard() -> None:
    rules = default_rules().rules
    assert [rule.id for rule in rules if rule.when and native_condition(rule.when) is None] == []


def test_the_arguments_of_a_wrapped_call_are_read_where_cel_reads_them() -> None:
    call = {"tool": {"name": "shell"}, "arguments": {"command": {"value": "ls"}}}
    wrapped = Facts("protocols/MCP/tools/call", "s", {"params": {}}, "a", SessionFacts(SESSION_ID), called=call)
    native = native_condition('args.command == "ls" && tool.name == "shell"')
    assert native is not None
    assert native.test(wrapped) is by_cel('args.command == "ls" && tool.name == "shell"', wrapped) is True
