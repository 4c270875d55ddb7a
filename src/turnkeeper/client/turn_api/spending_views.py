"""Usage, budgets and prices as an app sees them (contract 2.7, 2.13 and 4).

Pure. One class per object of the contract; the members are documented there. Whatever else came is in `members`.
"""

from turnkeeper.client.turn_api.documents import (
    Anything,
    Document,
    Members,
    Moment,
    OptionalMembers,
    OptionalMoment,
    OptionalText,
    Part,
    Parts,
    Switch,
    Text,
    Whole,
)


class Cost(Document):
    """An amount of money; `amount` is a decimal text."""

    __slots__ = ()

    amount = Text()
    currency = Text()


class Usage(Document):
    """What a turn used, subagents and repairs included (contract 4). `cost` is None where a price is not known."""

    __slots__ = ()

    input_tokens = Whole()
    cached_input_tokens = Whole()
    cache_write_tokens = Whole()
    output_tokens = Whole()
    reasoning_tokens = Whole()
    total_tokens = Whole()
    model_calls = Whole()
    tool_calls = Whole()
    sandbox_ms = Whole()
    cost = Part(Cost)
    by_model = Anything()
    estimated = Switch()


class Budget(Document):
    """A budget over a project, a key, an agent or a session (contract 2.7 and 8)."""

    __slots__ = ()

    id = Text()
    scope = Members()
    window = Text()
    timezone = OptionalText()
    limits = Members()
    used = OptionalMembers()
    reserved = OptionalMembers()
    warn_at = Anything()
    status = Text()
    resets_at = OptionalMoment()
    created_at = Moment()
    archived_at = OptionalMoment()


class ModelPrice(Document):
    """What a million tokens of one kind cost with one model, from a time on."""

    __slots__ = ()

    model = Text()
    kind = Text()
    per_million = Part(Cost)
    valid_from = OptionalMoment()


class ModelPrices(Document):
    """The price table (contract 2.7)."""

    __slots__ = ()

    prices = Parts(ModelPrice)


class LedgerCall(Document):
    """One model call of a turn: what was reserved for it, and what it came to (`settled`, None before)."""

    __slots__ = ()

    call = Whole()
    state = Text()
    provider = Text()
    model = Text()
    began_at = Moment()
    settled_at = OptionalMoment()
    reserved = Members()
    settled = OptionalMembers()


class TurnUsage(Document):
    """What a turn has used, call by call."""

    __slots__ = ()

    turn_id = Text()
    usage = Part(Usage)
    calls = Parts(LedgerCall)


class UsageGroup(Document):
    """What one session, agent, key, model or day used; `key` is its id, None where there was none."""

    __slots__ = ()

    key = OptionalText()
    usage = Part(Usage)


class UsageReport(Document):
    """Usage of a time by group (contract 2.13)."""

    __slots__ = ()

    group_by = Text()
    data = Parts(UsageGroup)
