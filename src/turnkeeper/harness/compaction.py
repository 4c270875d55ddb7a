"""An agent's context kept below its model's window: summarized by the model, if the worker allows it (contract 16.3).

Answers for asking before anything is summarized, for going on with the summary that the worker hands back and with no
other, and for the latest exchange staying as it was. Without a window that is known, and after a no, the context is
what it is. What a summary derives from is the worker's to say; nothing here has ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart, UserPromptPart
from pydantic_ai.usage import RequestUsage

from turnkeeper.harness.model import ModelFailed, Writer
from turnkeeper.harness.spoken import in_words, summary_words

COMPACT_AT_PERCENT: Final = 80
"""How full of the window a call may be before the context is summarized; the rest is for answers."""
BYTES_PER_TOKEN: Final = 3
"""The estimate for text that no model has counted yet: the gateway's own."""

REQUEST: Final = (
    "Below is the conversation of a user and an agent that works with tools. Summarize it, so that the agent can go on "
    "from your summary alone: what was asked, what was done and found out, names and values that matter, what was "
    "decided, what is left to do. Write the summary and nothing else."
)
CUT: Final = "\n[...]\n"


class CompactionDesk(Protocol):
    """Who decides about compactions: the worker."""

    async def may_compact(self) -> bool:
        """Whether the context may be summarized."""
        ...

    async def hand_in_summary(self, summary: str) -> str | None:
        """The summary to go on with; `None` where it was not taken."""
        ...


@dataclass(frozen=True, slots=True)
class _Counted:
    """What the provider counted: the first `messages` of a conversation, of so many bytes, and the answer to them."""

    messages: int
    size_bytes: int
    input_tokens: int
    output_tokens: int


class BoundedContext:
    """The context of one turn. `task` is what the turn was asked for; it is told again beside a summary."""

    def __init__(self, desk: CompactionDesk, *, window_tokens: int, task: str) -> None:
        self._desk = desk
        self._window = window_tokens
        self._task = task
        self._summary: str | None = None
        self._replaced = 0
        self._counted: _Counted | None = None
        self._given_up = window_tokens <= 0

    async def fitted(self, messages: Sequence[ModelMessage], beside_bytes: int, write: Writer) -> list[ModelMessage]:
        """The conversation as the model is to see it; `beside_bytes` go out with it. Raises what the desk raises."""
        view = self._view(messages)
        kept = _kept(messages)
        if self._given_up or len(messages) - kept <= self._replaced or not self._is_full(messages, view, beside_bytes):
            return view
        summary = await self._summarized(view, write)
        if summary is None:
            self._given_up = True
            return view
        self._summary, self._replaced, self._counted = summary, len(messages) - kept, None
        view = self._view(messages)
        # What is left is the latest exchange: another summary would not make it shorter.
        self._given_up = self._is_full(messages, view, beside_bytes)
        return view

    def count(self, messages: Sequence[ModelMessage], usage: RequestUsage) -> None:
        """A call with this conversation was answered."""
        if usage.input_tokens > 0:
            size = size_bytes(self._view(messages))
            self._counted = _Counted(len(messages), size, usage.input_tokens, usage.output_tokens)

    async def _summarized(self, view: Sequence[ModelMessage], write: Writer) -> str | None:
        if not await self._desk.may_compact():
            return None
        try:
            written = await write(f"{REQUEST}\n\n{self._transcript(view)}")
        except ModelFailed:
            written = ""
        return await self._desk.hand_in_summary(written)

    def _view(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        if self._summary is None:
            return list(messages)
        kept = messages[self._replaced :]
        said = [summary_words(self._summary)]
        if not any(self._task in text for _, text in in_words(kept)):
            said.append(self._task)
        return [ModelRequest(parts=[UserPromptPart(content=text) for text in said]), *kept]

    def _is_full(self, messages: Sequence[ModelMessage], view: Sequence[ModelMessage], beside_bytes: int) -> bool:
        if self._counted is None:
            tokens = _tokens(size_bytes(view) + beside_bytes)
        else:
            # The answer that was counted last is the message after those that were asked with.
            since = messages[self._counted.messages + 1 :]
            tokens = self._counted.input_tokens + self._counted.output_tokens + _tokens(size_bytes(since))
        return tokens * 100 >= self._window * COMPACT_AT_PERCENT

    def _transcript(self, view: Sequence[ModelMessage]) -> str:
        counted = self._counted
        bytes_per_token = BYTES_PER_TOKEN if counted is None else max(counted.size_bytes / counted.input_tokens, 1)
        return transcript(view, max_bytes=int(self._window * COMPACT_AT_PERCENT / 100 * bytes_per_token))


def size_bytes(messages: Sequence[ModelMessage]) -> int:
    """How long a conversation is in words."""
    return sum(len(text.encode()) for _, text in in_words(messages))


def transcript(messages: Sequence[ModelMessage], *, max_bytes: int) -> str:
    """The conversation as one text of about `max_bytes`; of texts that are too long, beginning and end are kept."""
    said = in_words(messages)
    longest = max_bytes
    while longest > 1 and sum(min(len(text.encode()), longest) for _, text in said) > max_bytes:
        longest //= 2
    return "\n\n".join(f"{speaker.capitalize()}: {_shortened(text, longest)}" for speaker, text in said)


def _shortened(text: str, max_bytes: int) -> str:
    encoded = text.encode()
    if len(encoded) <= max_bytes:
        return text
    half = max(max_bytes - len(CUT), 0) // 2
    return encoded[:half].decode(errors="ignore") + CUT + encoded[len(encoded) - half :].decode(errors="ignore")


def _tokens(size: int) -> int:
    return -(-size // BYTES_PER_TOKEN)


def _kept(messages: Sequence[ModelMessage]) -> int:
    """How many messages at the end stay as they are: what the model is to answer, with the calls it belongs to."""
    calls = messages[-2] if len(messages) > 1 else None
    is_answered = isinstance(calls, ModelResponse) and any(isinstance(part, ToolCallPart) for part in calls.parts)
    return 2 if is_answered else 1
