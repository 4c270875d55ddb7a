"""Bodies of turns that bring their own session, and of turns that are done again (contract 2.3)."""

from collections.abc import Collection
from typing import Final

from turnkeeper.api.bodies import JsonBody
from turnkeeper.api.budget_intake import parse_limits
from turnkeeper.api.deps import ApiSettings
from turnkeeper.api.fields import Fields
from turnkeeper.api.intake import TurnBody, parse_metadata, parse_session, parse_turn
from turnkeeper.turns.model import Budget
from turnkeeper.turns.ports import NewSession

# `metadata` and `budget` are the turn's own here.
_OF_SESSION: Final = frozenset(
    {"agent_id", "agent_version", "title", "workspace", "network", "secrets", "retention_days"}
)


def parse_alone(body: JsonBody, settings: ApiSettings) -> tuple[NewSession, TurnBody]:
    """A turn and the session that is opened for it alone. Raises `RequestRefused`."""
    of_session = _part(body, _OF_SESSION & body.members.keys())
    if of_session.members.get("workspace") == {"mode": "ephemeral"}:
        of_session = _part(of_session, of_session.members.keys() - {"workspace"})
    session = parse_session(of_session, settings)
    return session, parse_turn(_part(body, body.members.keys() - _OF_SESSION), settings)


def parse_retry(body: JsonBody, settings: ApiSettings) -> tuple[str | None, Budget | None]:
    """The metadata and the budget of a turn that is done again, where they are other ones. Raises `RequestRefused`."""
    fields = Fields(body.members)
    fields.close({"metadata", "budget"}, {})
    metadata_json = parse_metadata(fields, body, settings) if fields.has("metadata") else None
    budget = parse_limits(fields.object("budget"))
    fields.finish()
    return metadata_json, budget


def _part(body: JsonBody, names: Collection[str]) -> JsonBody:
    return JsonBody(
        {name: value for name, value in body.members.items() if name in names},
        {name: text for name, text in body.slices.items() if name in names},
    )
