"""What the demo's scripted model says. A model of 135 million parameters does not choose tools, so these steps are
written down here; wherever they appear, on the screen and in the events, their provider is named `scripted`."""

import json
from typing import Final

from turnkeeper.testing.scripted_model import ScriptedAnswer, ScriptedCall, SeenRequest

PROVIDER: Final = "scripted"
GUARDED_PROMPT: Final = "Count the words of note.txt, then look the topic up on the web."
BUDGET_PROMPT: Final = "Keep working until you are told to stop."
BUDGET_CALLS: Final = 2
AGENT: Final[dict[str, object]] = {
    "name": "scripted worker",
    "instructions": "You work in /workspace.",
    "tools": ["shell", "write_file"],
    "model": {"provider": PROVIDER, "id": "scripted-steps"},
}


def guarded_steps(text: str) -> tuple[ScriptedAnswer, ...]:
    """A file is written, its words are counted, a page is fetched: the last one meets the policy."""
    return (
        _call("write_file", path="note.txt", content=text),
        _call("shell", command="wc -w < note.txt"),
        _call("shell", command="curl -s https://example.com/"),
        ScriptedAnswer(text="I counted the words. I could not look the topic up: the policy does not allow it."),
    )


def play(text: str, seen: SeenRequest) -> ScriptedAnswer:
    """The next step, by how many tool calls the turn has made."""
    turn = turn_messages(seen)
    calls_made = sum(message["role"] == "tool" for message in turn)
    if BUDGET_PROMPT in str(turn[0].get("content")):
        return _call("shell", command=f"echo still working, step {calls_made + 1}")
    steps = guarded_steps(text)
    return steps[min(calls_made, len(steps) - 1)]


def turn_messages(seen: SeenRequest) -> list[dict[str, object]]:
    """The messages since the turn's prompt."""
    prompts = (GUARDED_PROMPT, BUDGET_PROMPT)
    for position in range(len(seen.messages) - 1, -1, -1):
        message = seen.messages[position]
        if message["role"] == "user" and any(prompt in str(message.get("content")) for prompt in prompts):
            return seen.messages[position:]
    return seen.messages


def _call(tool: str, **arguments: str) -> ScriptedAnswer:
    return ScriptedAnswer(tool_calls=(ScriptedCall(tool, json.dumps(arguments)),))
