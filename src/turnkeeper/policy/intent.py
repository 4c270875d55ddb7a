"""Intent-based access (ACS 8.4 and 12): is a step within what the session was declared to be for?

Answers for resources as URIs of one spelling, for a capability covering a step, and for what each `scope_mode` asks.
Must never guess what a relative or climbing path means: such a resource is unclear, and no capability that names a
resource covers it. Pure.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import urlsplit

STRICT: Final = "strict"
MODERATE: Final = "moderate"
PERMISSIVE: Final = "permissive"

RESOURCE_ARGUMENTS: Final = frozenset(
    {"path", "file", "file_path", "filename", "directory", "uri", "url", "resource", "source", "destination"}
)
"""Arguments that name a resource whatever their text looks like; any other does so when it holds a URI."""

MAX_RESOURCES: Final = 64
MAX_RESOURCE_CHARACTERS: Final = 4_096
UNCLEAR: Final = ""

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_FILE_SCHEMES = ("file", "posix")
# An encoded dot, slash or backslash would be another place for whoever decodes it.
_HIDDEN = re.compile(r"%(?:2e|2f|5c|00)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Capability:
    """One thing an intent permits. An empty member permits any; a `*` at the end stands for any rest."""

    tool: str = ""
    operation: str = ""
    resource: str = ""


@dataclass(frozen=True, slots=True)
class IntentFacts:
    """What the session is for, extensions granted included; all empty where nothing was declared."""

    raw: str = ""
    capabilities: tuple[Capability, ...] = ()
    scope_mode: str = ""

    @property
    def declared(self) -> bool:
        """Whether the session declared anything."""
        return bool(self.raw or self.capabilities or self.scope_mode)


@dataclass(frozen=True, slots=True)
class IntentMatch:
    """How a step stands to the intent. `covered` is what the scope mode asks for; `unclear` names no single place."""

    covered: bool = False
    covers_tool: bool = False
    unclear: bool = False
    resources: tuple[str, ...] = ()


def match_intent(intent: IntentFacts, payload: Mapping[str, object]) -> IntentMatch:
    """A tool call's standing under an intent.

    `strict`, and any mode unknown: one capability covers tool, operation and each resource. `moderate`: one covers
    tool and operation, wherever the resource is. `permissive`: everything is covered; `covers_tool` still tells.
    """
    tool, operations = _name(payload.get("tool")), _operations(payload)
    resources = step_resources(payload)
    able = [one for one in intent.capabilities if _fits(one.tool, (tool,)) and _fits(one.operation, operations)]
    if intent.scope_mode == PERMISSIVE:
        covered = True
    elif intent.scope_mode == MODERATE:
        covered = bool(able)
    else:
        covered = _all_reached(able, resources)
    return IntentMatch(covered, bool(able), UNCLEAR in resources, tuple(one for one in resources if one != UNCLEAR))


def step_resources(payload: Mapping[str, object]) -> tuple[str, ...]:
    """The resources that a tool call's arguments name, normalized, each once; `UNCLEAR` for one that is unclear."""
    found: dict[str, None] = {}
    for text in _resource_texts(payload):
        found[normalize_resource(text)] = None
        if len(found) > MAX_RESOURCES:
            return (UNCLEAR,)
    return tuple(found)


def normalize_resource(text: str) -> str:
    """A resource as the one URI that names it; `UNCLEAR` where it has none: a relative path, or one that climbs."""
    if _is_hidden(text):
        return UNCLEAR
    if _DRIVE.match(text):
        return _place("file", "", "/" + _as_path(text.replace("\\", "/")))
    if "\\" in text:
        return UNCLEAR
    if text.startswith("/") and not text.startswith("//"):
        return _place("posix", "", _as_path(text))
    return _normalized_uri(text) if _SCHEME.match(text) else UNCLEAR


def _as_path(text: str) -> str:
    """A path as part of a URI, in which these signs would mean something else."""
    return text.replace("%", "%25").replace("?", "%3F").replace("#", "%23")


def _is_hidden(text: str) -> bool:
    return (
        len(text) > MAX_RESOURCE_CHARACTERS
        or _HIDDEN.search(text) is not None
        or any(ord(sign) < 0x20 for sign in text)
    )


def _normalized_uri(text: str) -> str:
    try:
        parts = urlsplit(text)
    except ValueError:
        return UNCLEAR
    scheme = parts.scheme.lower()
    if scheme in _FILE_SCHEMES:
        if parts.netloc not in ("", "localhost") or parts.query or parts.fragment:
            return UNCLEAR
        return _place("file" if scheme == "file" and _DRIVE.match(parts.path[1:]) else "posix", "", parts.path)
    if "@" in parts.netloc:
        # What stands before it is no host, and is easily read as one.
        return UNCLEAR
    return _place(scheme, parts.netloc.lower(), parts.path or "/", "?" + parts.query if parts.query else "")


def _place(scheme: str, host: str, path: str, rest: str = "") -> str:
    segments = path.split("/")
    if ".." in segments:
        return UNCLEAR
    kept = [segment for segment in segments[1:-1] if segment not in ("", ".")]
    last = "" if segments[-1] == "." else segments[-1]
    if scheme == "file":
        kept = [segment.upper() if index == 0 else segment for index, segment in enumerate(kept)]
    return f"{scheme}://{host}/" + "/".join([*kept, last]) + rest


def _all_reached(able: Sequence[Capability], resources: Sequence[str]) -> bool:
    if not resources:
        # A capability for one resource says nothing about a step that names none.
        return any(not one.resource for one in able)
    return any(all(_reaches(one.resource, resource) for resource in resources) for one in able)


def _reaches(granted: str, resource: str) -> bool:
    if not granted:
        return True
    if resource == UNCLEAR:
        return False
    if granted.endswith("*"):
        within = normalize_resource(granted[:-1])
        return within != UNCLEAR and resource.startswith(within)
    return normalize_resource(granted) == resource


def _fits(granted: str, offered: Sequence[str]) -> bool:
    if not granted:
        return True
    if granted.endswith("*"):
        return any(one.startswith(granted[:-1]) for one in offered if one)
    return granted in offered


def _operations(payload: Mapping[str, object]) -> tuple[str, ...]:
    """What the step says it does: its own verb, and the abstract name of its capability."""
    return tuple(found for name in ("operation", "capability") if isinstance(found := payload.get(name), str))


def _resource_texts(payload: Mapping[str, object]) -> Iterator[str]:
    arguments = payload.get("arguments")
    if not isinstance(arguments, dict):
        return
    for name, argument in cast("dict[str, object]", arguments).items():
        value = cast("dict[str, object]", argument).get("value") if isinstance(argument, dict) else None
        for one in cast("list[object]", value) if isinstance(value, list) else (value,):
            if isinstance(one, str) and (name.lower() in RESOURCE_ARGUMENTS or _SCHEME.match(one)):
                yield one


def _name(tool: object) -> str:
    name = cast("dict[str, object]", tool).get("name") if isinstance(tool, dict) else None
    return name if isinstance(name, str) else ""
