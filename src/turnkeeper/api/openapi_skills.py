"""The component schemas of skills in the OpenAPI document (contract 2.13)."""

from typing import Any, Final

from turnkeeper.api.openapi_schemas import id_schema, list_schema, open_object, whole_number

Schema = dict[str, Any]

SKILL_UPLOAD: Final[Schema] = {
    "requestBody": {
        "required": True,
        "content": {"multipart/form-data": {"schema": {"$ref": "#/components/schemas/NewSkill"}}},
    }
}
"""The body of an upload, for `openapi_extra`."""

SKILL_COMPONENTS: Final[Schema] = {
    "NewSkill": {
        "type": "object",
        "additionalProperties": False,
        "required": ["file"],
        "properties": {
            "file": {
                "type": "string",
                "format": "binary",
                "description": "A zip or tar with SKILL.md in it, with a filename; at most 4 MiB.",
            }
        },
    },
    "Skill": open_object(
        {
            "id": id_schema("skl"),
            "object": {"const": "skill"},
            "project_id": id_schema("prj"),
            "name": {"type": "string"},
            "version": whole_number(1),
            "description": {"type": "string"},
            "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "bytes": whole_number(1),
            "created_at": {"type": "string", "format": "date-time"},
        }
    ),
    "SkillList": list_schema("Skill"),
}
