"""The log: structured lines on standard error, for people on a terminal and as JSON elsewhere.

Standard output belongs to what a command was asked for. Nothing that could be a secret or a text of a turn is logged
by this module's own doing; a caller logs names, ids and sizes.
"""

import logging
import sys
from typing import Final, Literal, TextIO, TypeAlias

import structlog

LogFormat: TypeAlias = Literal["auto", "console", "json"]
LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

_LEVELS: Final[dict[LogLevel, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


_LIBRARIES: Final = ("uvicorn", "uvicorn.error", "uvicorn.access", "alembic")
"""Libraries that configure their own loggers where nobody tells them not to."""


def setup_logging(level: LogLevel = "info", *, log_format: LogFormat = "auto", stream: TextIO | None = None) -> None:
    """Sets the process's log up, the standard library's included (uvicorn, alembic)."""
    out = stream if stream is not None else sys.stderr
    for_people = log_format == "console" or (log_format == "auto" and out.isatty())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.StackInfoRenderer(),
        _event_first,
    ]
    finish: list[structlog.typing.Processor] = (
        [structlog.dev.ConsoleRenderer(colors=out.isatty())]
        if for_people
        else [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(sort_keys=False)]
    )
    structlog.configure(
        processors=[*shared, *finish],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(file=out),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=_unwrap(finish)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # What libraries say at `info` is about themselves; their warnings are about us.
    root.setLevel(max(_LEVELS[level], logging.WARNING))
    for name in _LIBRARIES:
        _give_back(logging.getLogger(name))


def _give_back(logger: logging.Logger) -> None:
    """Undoes what a library set for its own log, so that its lines come here like all others."""
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


def _event_first(
    _logger: structlog.typing.WrappedLogger, _method: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """A line begins with when, how bad and what."""
    head = {name: event.pop(name) for name in ("at", "level", "event") if name in event}
    return {**head, **event}


def _unwrap(finish: list[structlog.typing.Processor]) -> list[structlog.typing.Processor]:
    return [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *finish]
