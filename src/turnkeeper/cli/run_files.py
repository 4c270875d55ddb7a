"""What `run` reads from files: an agent, an output schema, a workspace. Held to the same rules as the API's bodies."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import orjson

from turnkeeper.acs.strictjson import JsonRejected, member_slices, parse_object
from turnkeeper.api.bodies import JsonBody
from turnkeeper.api.deps import ApiDeps
from turnkeeper.api.intake import parse_agent, parse_turn
from turnkeeper.api.problems import RequestRefused
from turnkeeper.api.skill_intake import wanted_skills
from turnkeeper.cli.exits import UsageRefused
from turnkeeper.cli.input_files import as_json, load_text
from turnkeeper.sandbox.local_model import MODEL_NAME
from turnkeeper.turns.ports import NewAgent, NewTurn

DEFAULT_AGENT: Final[Mapping[str, object]] = {
    "name": "run",
    "instructions": "Answer briefly.",
    "model": {"provider": "local", "id": MODEL_NAME},
}


def new_agent(file: Path | None, deps: ApiDeps) -> NewAgent:
    """The agent in a JSON or TOML file, or the plain one on the local model. Raises `UsageRefused`."""
    if file is None:
        if "local" not in deps.providers:
            raise UsageRefused("the settings have no provider `local`", hint="Name an agent's model: --agent FILE.")
        body = json_body(orjson.dumps(DEFAULT_AGENT), "the plain agent")
        return parse_agent(body, deps)
    try:
        body = json_body(as_json(file), str(file))
        if wanted_skills(body):
            raise UsageRefused(f"{file}: skills are kept by a server", hint="Use `serve` and `skills upload`.")
        return parse_agent(body, deps)
    except RequestRefused as refused:
        raise _explained(refused, str(file)) from refused


def new_turn(prompt: str, session_id: str, schema: Path | None, deps: ApiDeps, repairs: int) -> NewTurn:
    """The turn for a prompt. Raises `UsageRefused`."""
    members = b'"input":' + orjson.dumps(prompt)
    if schema is not None:
        members += b',"output_schema":' + load_text(schema)
    try:
        parsed = parse_turn(json_body(b"{" + members + b"}", str(schema or "the prompt")), deps.settings)
    except RequestRefused as refused:
        raise _explained(refused, str(schema or "the prompt")) from refused
    return NewTurn(
        session_id=session_id,
        input_text=parsed.input_text,
        input_json=parsed.input_json,
        output_schema_json=parsed.output_schema_json,
        metadata_json=parsed.metadata_json,
        budget=parsed.budget,
        max_repair_attempts=repairs,
        idempotency_key=None,
        fingerprint=None,
    )


def bind_workspace(workspaces: Path, session_id: str, folder: Path) -> None:
    """Puts a folder of the user's in the place of the session's workspace. Raises `UsageRefused`."""
    if not folder.is_dir():
        raise UsageRefused(f"{folder} is not a folder")
    (workspaces / session_id).symlink_to(folder.resolve(), target_is_directory=True)


def json_body(content: bytes, name: str) -> JsonBody:
    """A JSON object as the API takes it. Raises `UsageRefused`."""
    try:
        return JsonBody(parse_object(content), member_slices(content))
    except JsonRejected as rejected:
        raise UsageRefused(f"{name} is not usable JSON: {rejected.message}") from rejected


def _explained(refused: RequestRefused, name: str) -> UsageRefused:
    issues = "; ".join(issue.message for issue in refused.issues) or refused.message
    return UsageRefused(f"{name}: {issues}", hint=refused.hint)
