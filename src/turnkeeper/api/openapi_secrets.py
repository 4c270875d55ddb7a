"""The component schemas of secrets in the OpenAPI document (contract 2.13)."""

from typing import Any, Final

from turnkeeper.api.openapi_schemas import closed_object, id_schema, list_schema, open_object
from turnkeeper.api.secret_intake import NAME_PATTERN, VALUE_PATTERN
from turnkeeper.turns.secrets import MAX_SECRET_HOSTS, MAX_VALUE_CHARACTERS, MIN_VALUE_CHARACTERS

Schema = dict[str, Any]

_MEMBERS: Final[Schema] = {
    "name": {"type": "string", "pattern": NAME_PATTERN},
    "hosts": {
        "type": "array",
        "items": {"type": "string", "description": "`host` or `*.host`, port 443, or with `:port`."},
        "minItems": 1,
        "maxItems": MAX_SECRET_HOSTS,
        "uniqueItems": True,
    },
}

SECRET_COMPONENTS: Final[Schema] = {
    "NewSecret": closed_object(
        ("name", "value", "hosts"),
        {
            **_MEMBERS,
            "value": {
                "type": "string",
                "minLength": MIN_VALUE_CHARACTERS,
                "maxLength": MAX_VALUE_CHARACTERS,
                "pattern": VALUE_PATTERN,
                "writeOnly": True,
                "description": "Never shown again.",
            },
        },
    ),
    "Secret": open_object(
        {
            "id": id_schema("sec"),
            "object": {"const": "secret"},
            "project_id": id_schema("prj"),
            **_MEMBERS,
            "created_at": {"type": "string", "format": "date-time"},
        }
    ),
    "SecretList": list_schema("Secret"),
}
