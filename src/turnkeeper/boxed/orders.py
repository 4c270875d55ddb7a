"""What a client's box is ordered with: its command, the paths it may read, its settings, its variables. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from turnkeeper.boxed.clients import Client
from turnkeeper.boxed.places import HOOK_FILE


@dataclass(frozen=True, slots=True)
class BoxNeeds:
    """What there has to be in the box."""

    command: tuple[str, ...]
    files: Mapping[str, bytes]
    environment: Mapping[str, str]


def box_needs(kind: str, client: Client, *, python: str, model: str) -> BoxNeeds:
    """For one agent: `python` runs the runner and the hooks inside."""
    hook = (python, "-I", "-S", HOOK_FILE)
    files = {path: text.encode() for path, text in client.files(hook, model).items()}
    return BoxNeeds((python, "-I", "-m", "turnkeeper.boxed", kind), files, client.environment)
