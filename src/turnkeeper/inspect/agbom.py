"""The agent's bill of materials (ACS Inspect): which model and which tools an agent version is made of.

Pure: takes what the platform knows, returns the document that `agbom/snapshot` carries. Must never hold a secret,
an instruction text or a provider's address: components are named, not described.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from turnkeeper.acs import canonicalize

AGBOM_VERSION: Final = "0.1.0"
UNKNOWN_CONTEXT_WINDOW: Final = 0
"""The schema demands a number; a provider that tells us none gets this one."""

_BUILTIN_VERSION = "1"
_PROVIDER = "turnkeeper"


@dataclass(frozen=True, slots=True)
class ModelComponent:
    """The model an agent uses: a configured provider's name and the provider's model id."""

    provider: str
    model_id: str
    params: Mapping[str, object]
    context_window: int = UNKNOWN_CONTEXT_WINDOW


@dataclass(frozen=True, slots=True)
class ToolComponent:
    """A tool the agent may ask for. `capability` is what the tool lets it do."""

    name: str
    capability: str


def render_agbom(
    *, agent_id: str, agent_name: str, agent_version: int, model: ModelComponent, tools: Sequence[ToolComponent]
) -> dict[str, object]:
    """The document for `agbom/document`; the same agent version always gives the same one, hash included.

    Raises `CanonicalizationRejected` where a model parameter has no canonical form.
    """
    document: dict[str, object] = {
        "agbom_version": AGBOM_VERSION,
        "agent": {"agent_id": agent_id, "name": agent_name, "version": str(agent_version)},
        "components": [
            _registered(component)
            for component in (_model(model), *(_tool(tool) for tool in sorted(tools, key=lambda tool: tool.name)))
        ],
    }
    return document | {"agbom_hash": hashlib.sha256(canonicalize(document)).hexdigest()}


def _registered(component: Mapping[str, object]) -> dict[str, object]:
    # All of it was configured, nothing was found at run time (INSP-06).
    provenance = {"provenance_id": f"agbom:{component['id']}", "origin": "system", "source_id": _PROVIDER}
    return {**component, "registration_provenance": provenance}


def _model(model: ModelComponent) -> dict[str, object]:
    name = quote(f"{model.provider}/{model.model_id}", safe="")
    return {
        "id": f"model:{name}",
        "type": "model",
        "name": model.model_id,
        "version": model.model_id,
        "provider": model.provider,
        # An address may hold a host name that is nobody's business; a name identifies the component as well.
        "endpoint": f"urn:turnkeeper:model:{name}",
        "model_fields": {"context_window": model.context_window, "args": dict(model.params)},
    }


def _tool(tool: ToolComponent) -> dict[str, object]:
    return {
        "id": f"tool:{tool.name}",
        "type": "tool",
        "name": tool.name,
        "version": _BUILTIN_VERSION,
        "provider": _PROVIDER,
        "tool_fields": {"capability": tool.capability},
    }
