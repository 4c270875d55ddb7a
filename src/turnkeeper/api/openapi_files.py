"""The component schemas of files and artifacts in the OpenAPI document (contract 2.6)."""

from typing import Any, Final, get_args

from turnkeeper.api.openapi_schemas import id_schema, list_schema, nullable, open_object, whole_number
from turnkeeper.turns.files import PURPOSES, ArtifactKind

Schema = dict[str, Any]

_SHA256: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_TIME: Final[Schema] = {"type": "string", "format": "date-time"}
_BYTES: Final[Schema] = {"name": {"type": "string"}, "media_type": {"type": "string"}, "bytes": whole_number(0)}

UPLOAD: Final[Schema] = {
    "requestBody": {
        "required": True,
        "content": {"multipart/form-data": {"schema": {"$ref": "#/components/schemas/NewFile"}}},
    }
}
"""The body of an upload, for `openapi_extra`."""
CONTENT: Final[dict[int | str, Schema]] = {
    200: {
        "description": "The bytes, as an attachment.",
        "content": {"*/*": {"schema": {"type": "string", "format": "binary"}}},
    }
}

FILE_COMPONENTS: Final[Schema] = {
    "NewFile": {
        "type": "object",
        "additionalProperties": False,
        "required": ["file"],
        "properties": {
            "file": {"type": "string", "format": "binary", "description": "The file, with a filename."},
            "purpose": {"enum": list(PURPOSES), "default": PURPOSES[0]},
            "sha256": {
                "type": "string",
                "pattern": "^[0-9a-fA-F]{64}$",
                "description": "Checked against the bytes that arrive.",
            },
        },
    },
    "File": open_object(
        {
            "id": id_schema("fil"),
            "object": {"const": "file"},
            **_BYTES,
            "purpose": {"enum": list(PURPOSES)},
            "sha256": _SHA256,
            "status": {"const": "ready"},
            "created_at": _TIME,
        }
    ),
    "FileList": list_schema("File"),
    "Artifact": open_object(
        {
            "id": id_schema("art"),
            "object": {"const": "artifact"},
            "turn_id": id_schema("trn"),
            "session_id": id_schema("ses"),
            **_BYTES,
            "path": {"type": ["string", "null"], "description": "Relative to the workspace."},
            "sha256": _SHA256,
            "kind": {"enum": list(get_args(ArtifactKind))},
            "created_at": _TIME,
            "expires_at": nullable(_TIME),
        }
    ),
    "ArtifactList": list_schema("Artifact"),
    "DeletedFile": open_object(
        {"id": {"type": "string"}, "object": {"enum": ["file", "artifact"]}, "deleted": {"const": True}}
    ),
}
