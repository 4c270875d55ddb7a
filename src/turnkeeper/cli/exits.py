"""Exit codes: the command line's one translation table. Nobody else knows a number.

0 done (a turn that ended at its budget too), 1 it failed or something was found broken, 2 used wrongly,
3 the Guardian denied the turn, 130 canceled.
"""

from enum import IntEnum
from typing import Final

from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.model import StopReason, Turn, TurnStatus


class Exit(IntEnum):
    """What the shell gets."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    DENIED = 3
    CANCELED = 130


class UsageRefused(TurnkeeperError):
    """What was typed, or a file that was named, cannot be used; nothing was started."""

    code = "usage_error"


USAGE_CODES: Final = frozenset(
    {
        "config_invalid",
        "data_dir_unusable",
        "invalid_field",
        "key_invalid",
        "model_params_refused",
        "not_found",
        "provider_misconfigured",
        "secret_too_short",
        "setting_refused",
        "store_url_invalid",
        "unknown_field",
        "usage_error",
    }
)
"""Errors whose cause was typed or written into a file by whoever started the command."""

DENIALS: Final = frozenset(
    {
        StopReason.DENIED_BEFORE_START,
        StopReason.DENIED_AT_START,
        StopReason.DENIED_INPUT,
        StopReason.DENIED_OUTPUT,
    }
)


def exit_of_error(error: TurnkeeperError) -> Exit:
    """The exit code of a command that an error ended."""
    return Exit.USAGE if error.error_code in USAGE_CODES else Exit.FAILED


def exit_of_turn(turn: Turn) -> Exit:
    """The exit code of `run` for an ended turn."""
    return exit_of_end(turn.status, turn.stop_reason)


def exit_of_end(status: str, stop_reason: str | None) -> Exit:
    """The exit code for an ended turn by the words of the contract."""
    if status == TurnStatus.COMPLETED:
        return Exit.DONE
    if status == TurnStatus.CANCELED:
        return Exit.CANCELED
    return Exit.DENIED if stop_reason in DENIALS else Exit.FAILED
