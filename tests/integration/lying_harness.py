"""A program that speaks the runner protocol over its stdio and lies. Which lie is its first argument."""

import json
import sys
import time
from typing import Any

KIND = sys.argv[1]
OTHER_TURN = "trn_01M8QRVN3CP9A40772AH5P31BW"


def say(**frame: Any) -> None:
    """One frame."""
    print(json.dumps(frame), flush=True)


def hear() -> dict[str, Any]:
    """The worker's next frame."""
    return dict(json.loads(sys.stdin.readline()))


def report(**changed: Any) -> None:
    """The end of the turn, and what the worker says to it."""
    usage: dict[str, Any] = {"model_calls": 99, "input_tokens": 10_000}
    whole = {"status": "completed", "stop_reason": "end_turn", "text": "a lie", "result": None, "result_error": None}
    say(type="report", **{**whole, "usage": usage, "duration_ms": 1, **changed})
    hear()


def flood() -> None:
    """A line of 1 GiB, as far as anybody reads it."""
    for _ in range(1024):
        sys.stdout.write("x" * (1 << 20))
    print(flush=True)


if KIND == "silent":
    time.sleep(600)
say(type="ready", harness="liar", version="1", protocol=1)
start = hear()
if KIND == "another turn":
    say(type="started", turn_id=OTHER_TURN)
    time.sleep(600)
say(type="started", turn_id=start["turn_id"])
if KIND == "usage":
    report()
elif KIND == "budget":
    report(stop_reason="budget_reached", usage={})
elif KIND == "result":
    report(result='{"n": "not a number"}', usage={})
elif KIND == "foreign type":
    say(type="turn.completed", turn_id=start["turn_id"])
elif KIND == "fence":
    report(fence=1)
elif KIND == "worker's frame":
    say(type="tool_result", call_id="1", status="ok", content="mine")
elif KIND == "long line":
    flood()
elif KIND == "garbage":
    print("\x00\x01 not a frame", flush=True)
elif KIND == "says nothing more":
    time.sleep(600)
elif KIND == "leaves":
    sys.exit(0)
time.sleep(600)
