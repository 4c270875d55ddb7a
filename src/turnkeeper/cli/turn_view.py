"""A turn on a terminal: each step as its verdict arrives, then how it ended. Shows only what was allowed to leave."""

from collections.abc import Mapping
from typing import Final, cast

import orjson
from rich.console import Console
from rich.text import Text

from turnkeeper.turns.model import Step, Turn, TurnStatus
from turnkeeper.turns.usage import render_usage

MAX_SHOWN_CHARACTERS: Final = 160
_STYLES: Final[Mapping[str, str]] = {"allow": "green", "deny": "bold red"}


def show_step(console: Console, step: Step) -> None:
    """One line: the verdict, the step, what it is about, and the reason if it was refused."""
    verdict = step.decision or (f"error {step.error_code}" if step.error_code is not None else step.state)
    line = Text.assemble(
        (f"  {verdict:<6}", _STYLES.get(verdict, "yellow")),
        " ",
        step.method.removeprefix("steps/"),
        (about(step), "dim"),
    )
    if step.reasoning and verdict != "allow":
        line.append(f"\n         {step.reasoning}", "red")
    console.print(line)


def about(step: Step) -> str:
    """What a step is about, in a few words: the tool and its arguments, or the end and its counts."""
    payload = cast("dict[str, object]", orjson.loads(step.payload_json or "{}"))
    tool = payload.get("tool")
    if isinstance(tool, dict):
        arguments = payload.get("arguments")
        shown = "" if arguments is None else " " + orjson.dumps(arguments).decode()
        return shorten(f"  {cast('dict[str, object]', tool).get('name')}{shown}")
    if "outcome" in payload:
        counts = f"{payload.get('step_count', '?')} steps, {payload.get('tool_call_count', '?')} tool calls"
        return f"  {payload['outcome']}, {counts}"
    return ""


def show_end(console: Console, turn: Turn) -> None:
    """How it ended: status, reason, result or why there is none, text, usage."""
    style = "green" if turn.status is TurnStatus.COMPLETED else "red"
    reason = turn.stop_reason.value if turn.stop_reason else "?"
    console.print(Text.assemble((f"{turn.status.value} ({reason})", style)))
    if turn.error is not None:
        console.print(Text(f"  {turn.error.message} ({turn.error.code})"))
    if turn.text:
        console.print(Text(f"  text    {turn.text}"))
    if turn.result_json is not None:
        console.print(Text(f"  result  {turn.result_json}"))
    elif turn.result_error is not None:
        console.print(Text(f"  no result: {turn.result_error}"))
    console.print(Text(f"  usage   {usage_line(turn)}"))


def usage_line(turn: Turn) -> str:
    """What a turn used, in one line."""
    usage = cast("dict[str, object]", orjson.loads(render_usage(turn.usage)))
    estimated = " (estimated)" if usage["estimated"] else ""
    return (
        f"{usage['input_tokens']} in + {usage['output_tokens']} out = {usage['total_tokens']} tokens{estimated}, "
        f"{usage['model_calls']} model calls, {usage['tool_calls']} tool calls, {usage['sandbox_ms']} ms in the box"
    )


def shorten(text: str) -> str:
    """Text cut for one line."""
    flat = " ".join(text.splitlines())
    return flat if len(flat) <= MAX_SHOWN_CHARACTERS else flat[: MAX_SHOWN_CHARACTERS - 1] + "…"
