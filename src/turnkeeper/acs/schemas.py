"""The standard's JSON Schemas as we ship them, compiled (ledger sections 2 to 6).

Answers for which documents are valid on the wire: the schema decides, views and models follow. Reads the package's
own files once, at first use. Must never fetch a reference: one that is not shipped is refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import islice
from types import MappingProxyType
from typing import Final, NoReturn, TypeAlias, cast

import orjson
from jsonschema_rs import Draft202012Validator, ReferencingError, RegexOptions, Registry, ValidationError

from turnkeeper.errors import LocalProtocolError, RemoteProtocolError

SchemaName: TypeAlias = str
"""A file's path without `.json` ("hooks/turn-end"), or one of `handshake/client-hello`, `handshake/server-hello` and
`handshake/response`."""

MAX_VIOLATIONS: Final = 20
OWN_BASE: Final = "https://turnkeeper.dev/schemas/acs/v0.1.0/"
# The standard moved house; its files name each other from both addresses.
BASES: Final = (
    OWN_BASE,
    "https://acs.org/schema/v0.1.0/",
    "https://genai-security-project.github.io/agent-control-standard/schema/v0.1.0/",
)

_ROOT = files("turnkeeper.acs") / "schemas" / "v0_1_0"
_SUFFIX = ".json"
_MAX_MESSAGE_CHARACTERS = 300
_MASK = "the value"
_COMPOSED: Final[Mapping[SchemaName, dict[str, object]]] = MappingProxyType(
    {
        "handshake/client-hello": {"$ref": f"{OWN_BASE}handshake.json#/$defs/ClientHello"},
        "handshake/server-hello": {"$ref": f"{OWN_BASE}handshake.json#/$defs/ServerHello"},
        "handshake/response": {
            "type": "object",
            "required": ["jsonrpc", "id", "result"],
            "additionalProperties": False,
            "properties": {
                "jsonrpc": {"const": "2.0"},
                "id": {"type": ["string", "number"]},
                "result": {
                    "$ref": f"{OWN_BASE}handshake.json#/$defs/ServerHello",
                    "properties": {"signature": {"$ref": f"{OWN_BASE}request-envelope.json#/$defs/Signature"}},
                },
            },
        },
    }
)


class SchemaUnknown(LocalProtocolError):
    """No schema of this name is shipped."""

    code = "schema_unknown"


class SchemaUnusable(LocalProtocolError):
    """A schema does not compile, or names a document that was not given with it."""

    code = "schema_unusable"


@dataclass(frozen=True, slots=True)
class Violation:
    """One place where a document breaks its schema; both paths are JSON Pointers."""

    instance_path: str
    schema_path: str
    keyword: str
    message: str


class SchemaViolation(RemoteProtocolError):
    """A document breaks its schema. `violations` holds the first of them, `MAX_VIOLATIONS` at most."""

    code = "schema_violation"

    def __init__(self, violations: tuple[Violation, ...]) -> None:
        first = violations[0]
        super().__init__(
            f"{first.instance_path or 'the root'}: {first.message}",
            detail={"pointer": first.instance_path, "keyword": first.keyword},
        )
        self.violations = violations


class Validator:
    """A compiled schema. Formats are asserted, patterns run in linear time, no reference is ever fetched."""

    def __init__(self, schema: Mapping[str, object], resources: Mapping[str, object]) -> None:
        """Compiles `schema`; `resources` are the documents its references may name. Raises `SchemaUnusable`."""
        documents = [(uri, cast("dict[str, object]", document)) for uri, document in resources.items()]
        try:
            self._compiled = Draft202012Validator(
                dict(schema),
                registry=Registry(documents, retriever=_refuse),
                retriever=_refuse,
                validate_formats=True,
                pattern_options=RegexOptions(),
                mask=_MASK,
            )
        except (ValueError, ReferencingError) as error:
            raise SchemaUnusable(f"the schema cannot be compiled: {error}"[:_MAX_MESSAGE_CHARACTERS]) from error

    def is_valid(self, document: object) -> bool:
        """Whether the document obeys the schema."""
        return self._compiled.is_valid(document)

    def check(self, document: object) -> None:
        """Returns for a valid document. Raises `SchemaViolation`; only then the errors are collected."""
        if self._compiled.is_valid(document):
            return
        found = islice(self._compiled.iter_errors(document), MAX_VIOLATIONS)
        raise SchemaViolation(tuple(_violation(error) for error in found))


@cache
def validator(name: SchemaName) -> Validator:
    """The validator of a shipped schema, compiled at first use. Raises `SchemaUnknown`."""
    schema = _COMPOSED.get(name)
    if schema is None:
        schema = _documents().get(name + _SUFFIX)
    if schema is None:
        raise SchemaUnknown(f"no schema is named {name!r}")
    return Validator(schema, _resources())


def schema_text(path: str) -> bytes:
    """A schema file as shipped, byte for byte; `path` is one of `schema_paths()`. Raises `SchemaUnknown`."""
    text = _texts().get(path)
    if text is None:
        raise SchemaUnknown(f"no schema has the path {path!r}")
    return text


def schema_paths() -> tuple[str, ...]:
    """The relative paths of all shipped schema files, sorted."""
    return tuple(_texts())


@cache
def _texts() -> Mapping[str, bytes]:
    return MappingProxyType(dict(sorted(_read(_ROOT, ""))))


def _read(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for item in folder.iterdir():
        if item.is_dir():
            yield from _read(item, f"{prefix}{item.name}/")
        elif item.name.endswith(_SUFFIX):
            yield prefix + item.name, item.read_bytes()


@cache
def _documents() -> Mapping[str, dict[str, object]]:
    return MappingProxyType({path: orjson.loads(text) for path, text in _texts().items()})


@cache
def _resources() -> Mapping[str, object]:
    return MappingProxyType({base + path: document for path, document in _documents().items() for base in BASES})


def _refuse(uri: str) -> NoReturn:
    raise SchemaUnknown(f"the reference {uri!r} is not shipped and never fetched")


def _violation(error: ValidationError) -> Violation:
    return Violation(
        instance_path=render_pointer(error.instance_path),
        schema_path=render_pointer(error.schema_path),
        keyword=error.kind.name,
        message=error.message[:_MAX_MESSAGE_CHARACTERS],
    )


def render_pointer(segments: list[str | int]) -> str:
    """The JSON Pointer (RFC 6901) of a path."""
    return "".join("/" + str(segment).replace("~", "~0").replace("/", "~1") for segment in segments)
