"""What budgets need of the turn store: a row per budget with its figures, prices, the cost of a call.

Before: the code of this version needs it. Written out and not taken from `store/budget_tables.py`, which moves on.
The limits that turns and sessions had in columns of their own become budgets with what was used of them.
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_FIGURES = ("model_calls", "total_tokens", "output_tokens", "tool_calls", "active_ms")
_OLD_LIMITS = ("max_model_calls", "max_total_tokens", "max_output_tokens")
_OLD_FIGURES = ("taken_model_calls", "taken_total_tokens", "taken_output_tokens", "budget_reached")


def upgrade() -> None:
    """Changes the tables."""
    _create_budgets()
    _create_prices()
    _add_columns()
    _move_limits()
    for column in (*_OLD_LIMITS, *_OLD_FIGURES):
        op.drop_column("sessions", column)
    for column in (*_OLD_LIMITS, "budget_reached"):
        op.drop_column("turns", column)


def downgrade() -> None:
    """Nothing is taken back: go back by restoring a copy."""
    raise NotImplementedError("go back by restoring a copy")


def _create_budgets() -> None:
    op.create_table(
        "budgets",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("scope_id", sa.Text(), nullable=False),
        sa.Column("limits_json", sa.Text(), nullable=False),
        sa.Column("budget_window", sa.Text(), nullable=False),
        sa.Column("timezone", sa.Text(), nullable=False),
        sa.Column("warn_at_json", sa.Text(), nullable=False),
        *(sa.Column(f"used_{name}", sa.BigInteger(), nullable=False) for name in _FIGURES),
        *(sa.Column(f"reserved_{name}", sa.BigInteger(), nullable=False) for name in _FIGURES),
        sa.Column("used_cost", sa.Text(), nullable=False),
        sa.Column("reserved_cost", sa.Text(), nullable=False),
        sa.Column("spent", sa.Boolean(), nullable=False),
        sa.Column("reached_json", sa.Text(), nullable=False),
        sa.Column("warned_json", sa.Text(), nullable=False),
        sa.Column("counts_from", sa.BigInteger(), nullable=False),
        sa.Column("resets_at", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("archived_at", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "scope IN ('turn', 'session', 'agent', 'api_key', 'project')", name=op.f("ck_budgets_scope_known")
        ),
        sa.CheckConstraint("budget_window IN ('total', 'day', 'month')", name=op.f("ck_budgets_window_known")),
        sa.CheckConstraint(
            "(budget_window = 'total') = (resets_at IS NULL)", name=op.f("ck_budgets_window_has_an_end")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_budgets")),
    )
    held, shown = sa.text("archived_at IS NULL"), sa.text("scope != 'turn'")
    op.create_index("ix_budgets_held", "budgets", ["scope_id"], sqlite_where=held, postgresql_where=held)
    op.create_index("ix_budgets_list", "budgets", ["project_id", "id"], sqlite_where=shown, postgresql_where=shown)


def _create_prices() -> None:
    op.create_table(
        "model_prices",
        sa.Column("project_id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("valid_from", sa.BigInteger(), nullable=False),
        sa.Column("amount", sa.Text(), nullable=False),
        sa.Column("currency", sa.Text(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.CheckConstraint(
            "kind IN ('input', 'cached_input', 'cache_write', 'output')", name=op.f("ck_model_prices_kind_known")
        ),
        sa.PrimaryKeyConstraint("project_id", "model", "kind", "valid_from", name=op.f("pk_model_prices")),
    )


def _add_columns() -> None:
    op.add_column("sessions", sa.Column("budget_id", sa.Text(), nullable=True))
    op.add_column("turns", sa.Column("budget_json", sa.Text(), nullable=True))
    op.add_column("turns", sa.Column("charged_ms", sa.BigInteger(), server_default="0", nullable=False))
    op.add_column("model_calls", sa.Column("price_json", sa.Text(), nullable=True))
    op.add_column("model_calls", sa.Column("cost_currency", sa.Text(), nullable=True))
    for name in ("cost_units", "cost_picos"):
        op.add_column("model_calls", sa.Column(name, sa.BigInteger(), server_default="0", nullable=False))
    op.create_index("ix_model_calls_session", "model_calls", ["session_id", "created_at"])
    op.create_index("ix_model_calls_time", "model_calls", ["created_at"])


def _move_limits() -> None:
    # An id is 26 characters after its prefix; a budget takes those of what it holds.
    op.execute(f"UPDATE turns SET budget_json = {_json()} WHERE {_limited()}")  # noqa: S608  constants of this file
    op.execute(f"UPDATE sessions SET budget_id = 'bud_' || substr(id, 5) WHERE {_limited()}")  # noqa: S608  as above
    _insert("session", "sessions", _limited())
    _insert("turn", "turns", f"{_limited()} AND terminal_event_id IS NULL")


def _insert(scope: str, table: str, where: str) -> None:
    used, reserved = _figures(scope, table, running=False), _figures(scope, table, running=True)
    op.execute(
        "INSERT INTO budgets (id, project_id, scope, scope_id, limits_json, budget_window, timezone, warn_at_json,"  # noqa: S608  as above
        " used_model_calls, used_total_tokens, used_output_tokens, used_tool_calls, used_active_ms,"
        " reserved_model_calls, reserved_total_tokens, reserved_output_tokens, reserved_tool_calls, reserved_active_ms,"
        " used_cost, reserved_cost, spent, reached_json, warned_json, counts_from, created_at, updated_at)"
        f" SELECT 'bud_' || substr(id, 5), project_id, '{scope}', id, {_json()}, 'total', 'UTC', '[80]',"
        f" {used}, 0, 0, {reserved}, 0, 0, '0', '0', FALSE, '{{}}', '[]', created_at, created_at, created_at"
        f" FROM {table} WHERE {where}"
    )


def _figures(scope: str, table: str, *, running: bool) -> str:
    """Calls, tokens and output tokens of the calls that run, or of those that are over."""
    kind, state = ("reserved_", "c.state = 'reserved'") if running else ("", "c.state <> 'reserved'")
    counted = "1" if running else "CASE WHEN c.accepted THEN 1 ELSE 0 END"
    sums = (counted, f"c.{kind}input_tokens + c.{kind}output_tokens", f"c.{kind}output_tokens")
    calls = f"FROM model_calls c WHERE c.{scope}_id = {table}.id AND {state}"
    return ", ".join(f"(SELECT COALESCE(SUM({figure}), 0) {calls})" for figure in sums)


def _limited() -> str:
    return "(" + " OR ".join(f"{name} IS NOT NULL" for name in _OLD_LIMITS) + ")"


def _json() -> str:
    parts = " || ".join(f"COALESCE(',\"{name}\":' || {name}, '')" for name in _OLD_LIMITS)
    return f"'{{' || substr({parts}, 2) || '}}'"
