"""The process that compiles and evaluates schemas an app sent (contract 5.3, amendment 13).

Run as `python -I -m turnkeeper.turns.schema_process`: one JSON request a line on stdin, one JSON answer a line on
stdout. Answers for limits that hold whatever the library does: memory, processor time per request, no files written.
Must never retrieve a reference or use a backtracking pattern engine. Who hits a limit is ended by the kernel; the
parent sees the pipe close.
"""

import json
import resource
import signal
import sys
from functools import lru_cache
from itertools import islice
from typing import Any, Final, NoReturn, cast

import jsonschema_rs
import orjson

MAX_ERRORS: Final = 20
MAX_MESSAGE_CHARACTERS: Final = 300
MAX_PATH_CHARACTERS: Final = 500
MAX_COMPILED: Final = 16

# What a schema is tried on when it is compiled, so that one that takes for ever is found at the door.
_PROBES: tuple[Any, ...] = tuple(
    json.loads(text) for text in ("null", "{}", "[]", '"a"', "1", "1.5", "true", '[1, "a", {}]', '{"a": 1, "b": []}')
)


def _refuse(uri: str) -> NoReturn:
    raise ValueError(f"{uri} is not part of the schema")


@lru_cache(maxsize=MAX_COMPILED)
def _validator(schema: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(
        schema, retriever=_refuse, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=False
    )


def _compile(schema: str) -> dict[str, object]:
    try:
        validator = _validator(schema)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        return {"invalid": {"message": _cut(str(error).split("\n")[0]), "path": _path_of(error)}}
    for probe in _PROBES:
        validator.is_valid(probe)
    return {"errors": []}


def _check(schema: str, value: str) -> dict[str, object]:
    validator = _validator(schema)
    instance = json.loads(value)
    if validator.is_valid(instance):
        return {"errors": []}
    return {"errors": [_described(error) for error in islice(validator.iter_errors(instance), MAX_ERRORS)]}


def _described(error: jsonschema_rs.ValidationError) -> dict[str, object]:
    return {
        "instance_path": _joined(error.instance_path),
        "schema_path": _joined(error.schema_path),
        "keyword": error.kind.name,
        "message": _cut(error.message),
    }


def _path_of(error: Exception) -> list[str | int]:
    return error.instance_path if isinstance(error, jsonschema_rs.ValidationError) else []


def _joined(path: list[str | int]) -> str:
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return "".join("/" + step for step in steps)[:MAX_PATH_CHARACTERS]


def _cut(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE_CHARACTERS else message[: MAX_MESSAGE_CHARACTERS - 1] + "…"


def answer(request: dict[str, Any]) -> dict[str, object]:
    """The answer to one request: `{"errors": […]}`, or `{"invalid": {message, path}}` for the schema itself."""
    if request["op"] == "compile":
        return _compile(request["schema"])
    return _check(request["schema"], request["value"])


def _limit(memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def main(memory_bytes: int, cpu_ms: int) -> None:
    """Serves until stdin ends. SIGPROF, left at its default, ends the process after `cpu_ms` in one request."""
    _limit(memory_bytes)
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, cpu_ms / 1000)
        reply = orjson.dumps(answer(cast("dict[str, Any]", orjson.loads(line))))
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.stdout.buffer.write(reply + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
