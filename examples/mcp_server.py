"""A small MCP server over stdio, with nothing but the standard library: one tool, one resource, one prompt.

How an agent gets it is in docs/how-to/mcp.md.
"""

import json
import sys
from pathlib import Path

NOTES = Path("notes.txt")
TOOL = {
    "name": "add_note",
    "description": "Keep a note.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def initialize(params: dict) -> dict:
    return {
        "protocolVersion": params["protocolVersion"],
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
        "serverInfo": {"name": "notes", "version": "1"},
    }


def call_tool(params: dict) -> dict:
    with NOTES.open("a", encoding="utf-8") as notes:
        notes.write(params["arguments"]["text"] + "\n")
    return {"content": [{"type": "text", "text": "noted"}]}


def read_resource(params: dict) -> dict:
    text = NOTES.read_text(encoding="utf-8") if NOTES.exists() else ""
    return {"contents": [{"uri": params["uri"], "mimeType": "text/plain", "text": text}]}


METHODS = {
    "initialize": initialize,
    "tools/list": lambda _: {"tools": [TOOL]},
    "tools/call": call_tool,
    "resources/list": lambda _: {"resources": [{"uri": "notes://all", "name": "all notes"}]},
    "resources/read": read_resource,
    "prompts/list": lambda _: {"prompts": [{"name": "summarize"}]},
    "prompts/get": lambda _: {
        "messages": [{"role": "user", "content": {"type": "text", "text": "Summarize the notes."}}]
    },
}

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    try:
        reply = {"result": METHODS[message["method"]](message.get("params", {}))}
    except (LookupError, OSError) as error:
        reply = {"error": {"code": -32603, "message": repr(error)}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)
