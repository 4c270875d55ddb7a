"""Limits that stood in columns of turns and sessions become budgets with what was used of them."""

from pathlib import Path

from alembic import command
from sqlalchemy import column, create_engine, table, text

from turnkeeper.store.admin import alembic_config
from turnkeeper.store.budget_tables import budgets
from turnkeeper.store.budgets import to_account
from turnkeeper.turns.budgets import Taken
from turnkeeper.turns.model import Budget

TAIL = "01KBC3Y5M8Q2V7R9T4W6X1Z0AB"
TURN = "01KBC3Y5M8Q2V7R9T4W6X1Z0AC"
ROWS: tuple[tuple[str, dict[str, object]], ...] = (
    (
        "agents",
        {
            "id": f"agt_{TAIL}",
            "version": 1,
            "project_id": "prj",
            "name": '"a"',
            "model_provider": '"stub"',
            "model_id": '"m"',
            "model_params_json": "{}",
            "instructions": '""',
            "tools_json": "[]",
            "timeout_ms": 1,
            "max_repair_attempts": 3,
            "metadata_json": "{}",
            "created_at": 1,
        },
    ),
    (
        "sessions",
        {
            "id": f"ses_{TAIL}",
            "project_id": "prj",
            "agent_id": f"agt_{TAIL}",
            "agent_version": 1,
            "status": "open",
            "metadata_json": "{}",
            "max_total_tokens": 9_000,
            "taken_total_tokens": 150,
            "budget_reached": False,
            "acs_state": "new",
            "created_at": 7,
            "last_active_at": 7,
        },
    ),
    (
        "turns",
        {
            "id": f"trn_{TURN}",
            "project_id": "prj",
            "session_id": f"ses_{TAIL}",
            "agent_id": f"agt_{TAIL}",
            "agent_version": 1,
            "seq": 1,
            "status": "queued",
            "fence": 0,
            "input_text": '"hi"',
            "input_json": '"hi"',
            "metadata_json": "{}",
            "max_model_calls": 5,
            "max_output_tokens": 600,
            "budget_reached": False,
            "max_repair_attempts": 3,
            "attempt": 0,
            "tries": 0,
            "created_at": 7,
            "first_sequence": 1,
            "last_sequence": 1,
        },
    ),
    (
        "model_calls",
        {
            "turn_id": f"trn_{TURN}",
            "call": 1,
            "session_id": f"ses_{TAIL}",
            "state": "settled",
            "reserved_input_tokens": 1,
            "reserved_output_tokens": 1,
            "provider": '"stub"',
            "model": '"m"',
            "accepted": True,
            "input_tokens": 100,
            "output_tokens": 50,
            "estimated": False,
            "retries": 0,
            "created_at": 7,
        },
    ),
)


def test_limits_in_columns_become_budgets_with_their_figures(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/turns.db")
    with engine.begin() as connection:
        command.upgrade(alembic_config(connection), "0004")
        for name, values in ROWS:
            connection.execute(table(name, *map(column, values)).insert().values(values))
        command.upgrade(alembic_config(connection), "head")
        found = {row["scope"]: to_account(row) for row in connection.execute(budgets.select()).mappings()}
        kept = connection.execute(text("SELECT budget_id FROM sessions")).scalar_one()
    engine.dispose()

    session, turn = found["session"], found["turn"]
    assert (session.id, session.limits) == (kept, Budget(max_total_tokens=9_000))
    assert session.used == Taken(model_calls=1, total_tokens=150, output_tokens=50)
    assert turn.limits == Budget(max_model_calls=5, max_output_tokens=600)
    assert turn.used == Taken(model_calls=1, total_tokens=150, output_tokens=50)
