"""The component schemas of budgets, prices and usage in the OpenAPI document (contract 2.7, 2.13 and 4)."""

from typing import Any, Final

from turnkeeper.api.openapi_schemas import LIMITS, closed_object, id_schema, list_schema, nullable, open_object
from turnkeeper.turns.budget_accounts import MAX_WARN_AT, RESOURCE_SCOPES
from turnkeeper.turns.budget_ports import USAGE_GROUPS
from turnkeeper.turns.budget_windows import BUDGET_WINDOWS
from turnkeeper.turns.prices import MAX_PRICES, TOKEN_KINDS

Schema = dict[str, Any]

_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
_USAGE: Final[Schema] = {"$ref": "#/components/schemas/Usage"}
_PRICE: Final[Schema] = closed_object(
    ("amount", "currency"),
    {
        "amount": {"type": "string", "pattern": r"^(0|[1-9][0-9]{0,6})(\.[0-9]{1,6})?$"},
        "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
    },
)
_PRICE_ROW: Final[Schema] = {
    "model": {"type": "string", "maxLength": 401, "pattern": "/", "description": "The provider's name, `/`, the id."},
    "kind": {"enum": list(TOKEN_KINDS)},
    "per_million": _PRICE,
    "valid_from": _TIME,
}
_WARN_AT: Final[Schema] = {
    "type": "array",
    "items": {"type": "integer", "minimum": 1, "maximum": 99},
    "maxItems": MAX_WARN_AT,
    "uniqueItems": True,
    "description": "Percents of a limit.",
}
_SCOPE_TYPE: Final[Schema] = {"enum": list(RESOURCE_SCOPES)}
_WINDOW: Final[Schema] = {"enum": list(BUDGET_WINDOWS)}
_FIGURES: Final[Schema] = {"type": "object"}

BUDGET_COMPONENTS: Final[Schema] = {
    "NewBudget": closed_object(
        ("scope", "limits"),
        {
            "scope": closed_object(("type",), {"type": _SCOPE_TYPE, "id": {"type": "string"}}),
            "window": _WINDOW,
            "timezone": {"type": "string", "maxLength": 64, "description": "A name of the timezone database."},
            "limits": {**closed_object((), LIMITS), "minProperties": 1},
            "warn_at": _WARN_AT,
        },
    ),
    "BudgetChange": closed_object((), {"limits": closed_object((), LIMITS), "warn_at": _WARN_AT}),
    "BudgetResource": open_object(
        {
            "id": id_schema("bud"),
            "object": {"const": "budget"},
            "scope": open_object({"type": _SCOPE_TYPE, "id": {"type": "string"}}),
            "window": _WINDOW,
            "timezone": {"type": "string"},
            "limits": _FIGURES,
            "used": _FIGURES,
            "reserved": _FIGURES,
            "warn_at": _WARN_AT,
            "status": {"enum": ["active", "reached", "archived"]},
            "resets_at": nullable(_TIME),
            "created_at": _TIME,
            "updated_at": _TIME,
            "archived_at": nullable(_TIME),
        }
    ),
    "BudgetList": list_schema("BudgetResource"),
    "PutModelPrices": closed_object(
        ("prices",),
        {
            "prices": {
                "type": "array",
                "maxItems": MAX_PRICES,
                "items": closed_object(("model", "kind", "per_million"), _PRICE_ROW),
            }
        },
    ),
    "ModelPrices": open_object(
        {"object": {"const": "model_prices"}, "prices": {"type": "array", "items": open_object(_PRICE_ROW)}}
    ),
    "TurnUsage": open_object(
        {
            "object": {"const": "turn_usage"},
            "turn_id": id_schema("trn"),
            "usage": _USAGE,
            "calls": {
                "type": "array",
                "items": open_object(
                    {
                        "call": {"type": "integer", "minimum": 1},
                        "state": {"enum": ["reserved", "assumed", "settled"]},
                        "provider": {"type": "string"},
                        "model": {"type": "string"},
                        "began_at": _TIME,
                        "settled_at": nullable(_TIME),
                        "reserved": {"type": "object"},
                        "settled": nullable({"type": "object"}),
                    }
                ),
            },
        }
    ),
    "UsageGroups": open_object(
        {
            "object": {"const": "usage"},
            "group_by": {"enum": list(USAGE_GROUPS)},
            "from": _TIME,
            "to": _TIME,
            "data": {
                "type": "array",
                "items": open_object({"key": {"type": ["string", "null"]}, "usage": _USAGE}),
            },
        }
    ),
}
