"""The tables of budgets and prices, in the turn store's database.

A budget's row holds what is used of it and what running calls have reserved. Its figures are changed only by a
transaction that has locked the row, after the session's; budgets are locked in the order of their ids.
"""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    Table,
    Text,
    literal_column,
)

from turnkeeper.store.tables import EscapedText, Instant, metadata

FIGURES: Final = ("model_calls", "total_tokens", "output_tokens", "tool_calls", "active_ms")


def _figures(kind: str) -> tuple[Column[int], ...]:
    return tuple(Column(f"{kind}_{name}", BigInteger, nullable=False) for name in FIGURES)


budgets: Final = Table(
    "budgets",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project_id", Text, nullable=False),
    Column("scope", Text, nullable=False),
    # The id of the turn, session, agent, key or project that it holds. Ids tell their kind, so this is enough.
    Column("scope_id", Text, nullable=False),
    Column("limits_json", Text, nullable=False),
    Column("budget_window", Text, nullable=False),
    Column("timezone", Text, nullable=False),
    Column("warn_at_json", Text, nullable=False),
    *_figures("used"),
    *_figures("reserved"),
    # Decimal texts: no database of ours adds those up.
    Column("used_cost", Text, nullable=False),
    Column("reserved_cost", Text, nullable=False),
    Column("spent", Boolean, nullable=False),
    Column("reached_json", Text, nullable=False),
    Column("warned_json", Text, nullable=False),
    Column("counts_from", Instant, nullable=False),
    Column("resets_at", Instant),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("archived_at", Instant),
    CheckConstraint("scope IN ('turn', 'session', 'agent', 'api_key', 'project')", name="scope_known"),
    CheckConstraint("budget_window IN ('total', 'day', 'month')", name="window_known"),
    CheckConstraint("(budget_window = 'total') = (resets_at IS NULL)", name="window_has_an_end"),
)

model_prices: Final = Table(
    "model_prices",
    metadata,
    Column("project_id", Text, primary_key=True),
    Column("model", EscapedText, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("valid_from", Instant, primary_key=True),
    Column("amount", Text, nullable=False),
    Column("currency", Text, nullable=False),
    Column("position", Integer, nullable=False),
    CheckConstraint("kind IN ('input', 'cached_input', 'cache_write', 'output')", name="kind_known"),
)

IS_HELD: Final = budgets.c.archived_at.is_(None)
IS_RESOURCE: Final = budgets.c.scope != literal_column("'turn'")

Index("ix_budgets_held", budgets.c.scope_id, sqlite_where=IS_HELD, postgresql_where=IS_HELD)
Index("ix_budgets_list", budgets.c.project_id, budgets.c.id, sqlite_where=IS_RESOURCE, postgresql_where=IS_RESOURCE)
