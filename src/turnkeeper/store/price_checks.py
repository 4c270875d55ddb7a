"""No cost budget over a model without a price (contract 8): refused when it is posted, as far as it can be known.

A budget of a key or a project holds models that nobody has named yet, so that is asked at each of its turns.
"""

from collections.abc import Mapping

from turnkeeper.store.budgets import accounts_over
from turnkeeper.store.ledger import model_of
from turnkeeper.store.prices import price_of
from turnkeeper.store.statements import load_row
from turnkeeper.store.tables import agents, sessions
from turnkeeper.store.tx import Tx
from turnkeeper.turns.budget_accounts import Account
from turnkeeper.turns.model import Budget
from turnkeeper.turns.prices import PriceUnknown


def require_price_of_turn(tx: Tx, turn: Mapping[str, object]) -> None:
    """Raises `PriceUnknown` where a cost budget holds the turn and its model has no price in that currency."""
    held = [account for account in accounts_over(tx.conn, turn, tx.now, locked=False) if account.limits.max_cost]
    if held:
        model = model_of(tx.conn, turn)
        for account in held:
            _require(tx, account.project_id, f"{model['model_provider']}/{model['model_id']}", account.limits)


def require_price_of(tx: Tx, account: Account) -> None:
    """Raises `PriceUnknown` where the budget is of a session or an agent whose model has no price."""
    if account.limits.max_cost is None or account.scope not in {"session", "agent"}:
        return
    if account.scope == "session":
        agent = model_of(tx.conn, load_row(tx.conn, sessions, account.scope_id))
    else:
        agent = load_row(tx.conn, agents, account.scope_id)
    _require(tx, account.project_id, f"{agent['model_provider']}/{agent['model_id']}", account.limits)


def _require(tx: Tx, project_id: str, model: str, limits: Budget) -> None:
    if limits.max_cost is None:
        return
    price = price_of(tx.conn, project_id, model, tx.now)
    if price is None or price.currency != limits.max_cost.currency:
        raise PriceUnknown(
            f"{model} has no price in {limits.max_cost.currency}",
            hint="Put its price with PUT /v1/model_prices, or use a budget of tokens or calls.",
        )
