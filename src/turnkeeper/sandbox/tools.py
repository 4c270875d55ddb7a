"""The four tools of the tool box as a model is told about them: constant data.

`toolbox_agent` checks the arguments again inside the box; a unit test holds both to the same answer.
"""

from collections.abc import Mapping
from typing import Final

from turnkeeper.sandbox.protocol import ToolSpec


def _object(properties: dict[str, object], *required: str) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


# No NUL: neither a path nor a command line can carry one.
_PATH: Final[dict[str, object]] = {
    "type": "string",
    "pattern": "^[^\\u0000]*$",
    "description": "Relative to the workspace, or absolute.",
}


def _count(description: str) -> dict[str, object]:
    return {"type": "integer", "minimum": 0, "maximum": 2**53 - 1, "description": description}


SHELL: Final = ToolSpec(
    "shell",
    "Run a shell command in the workspace and get its output (stdout and stderr together) and exit status. "
    "There is no network. A process left in the background keeps running until the turn ends.",
    _object(
        {
            "command": {
                "type": "string",
                "pattern": "^[^\\u0000]*$",
                "description": "The command line, as for a shell.",
            },
            "timeout_ms": _count("Kill the command after this many milliseconds."),
        },
        "command",
    ),
)

READ_FILE: Final = ToolSpec(
    "read_file",
    "Read a text file. Long files are cut; read on with `offset`.",
    _object(
        {
            "path": _PATH,
            "offset": _count("Byte to start from; 0 if left out."),
            "max_bytes": _count("Read at most this many bytes."),
        },
        "path",
    ),
)

WRITE_FILE: Final = ToolSpec(
    "write_file",
    "Write a text file, replacing what was there. Missing folders are made.",
    _object({"path": _PATH, "content": {"type": "string", "description": "The whole text."}}, "path", "content"),
)

LIST_FILES: Final = ToolSpec(
    "list_files",
    "List the entries of one folder; the workspace itself if no path is given.",
    _object({"path": _PATH}),
)

TOOLS: Final[Mapping[str, ToolSpec]] = {tool.name: tool for tool in (SHELL, READ_FILE, WRITE_FILE, LIST_FILES)}
