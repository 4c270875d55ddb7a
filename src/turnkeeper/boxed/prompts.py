"""The words a client gets: what was said before, its input, how a result is handed in, what was wrong with one. Pure.

A client keeps nothing between turns: what it is told of earlier ones is what the platform has stored and allowed.
"""

from collections.abc import Sequence
from typing import Final

from turnkeeper.sandbox.protocol import HistoryItem, ResponseDenied, Start, SubmissionResult

FIRST_ANSWER: Final = "You stopped without a result. Give it now, in the form that was asked for."

_EARLIER: Final = "What was said and done in this session so far, oldest first:"
_NOW: Final = "What you are asked now:"
_GO_ON: Final = "You were interrupted. Go on where this ends; what was done is done and stands in the workspace."
_WAITED: Final = "You waited for an approval and have an answer now. Make exactly this call again:"


def first_prompt(start: Start) -> str:
    """The prompt that a turn begins with, or goes on with after a pause without its box."""
    earlier = _told(start.history)
    if start.pending is not None:
        waited = f"{_WAITED} {start.pending.name} with {start.pending.arguments}"
        return "\n\n".join([_EARLIER, *earlier, _GO_ON, waited])
    if not earlier:
        return start.input
    return "\n\n".join([_EARLIER, *earlier, _NOW, start.input])


def schema_words(output_schema: str) -> str:
    """How a client that has no form of its own for results hands one in."""
    return (
        "End your answer with one JSON value that is valid under this JSON Schema, in a code block marked json, "
        f"and write nothing after it:\n{output_schema}"
    )


def repair_prompt(result: SubmissionResult) -> str:
    """What was wrong with a result."""
    errors = "\n".join(f"- {error}" for error in result.errors) or "- it is not valid"
    return f"Your result was not accepted:\n{errors}\nGive it again in the form that was asked for."


def denial_prompt(denied: ResponseDenied) -> str:
    """Why an answer was refused."""
    reasons = "\n".join(f"- {reason}" for reason in denied.reasons) or "- no reason was given"
    return f"Your answer was refused:\n{reasons}\nAnswer again in a way that respects this."


def _told(history: Sequence[HistoryItem]) -> list[str]:
    return [_item(item) for item in history]


def _item(item: HistoryItem) -> str:
    if item.kind == "tool":
        return f"[you called {item.name} with {item.arguments} and were given]\n{item.text}"
    return f"[{'the user' if item.kind == 'user' else 'you'}]\n{item.text}"
