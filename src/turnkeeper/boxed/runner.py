"""A turn of a client in its box: prompt it, take its hooks' questions to the worker, hand in its result, report.

Proposes everything and decides nothing. A call that the client's own output shows and that no hook asked about ends the
turn: then the hooks do not hold what they are there for.
"""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from turnkeeper import __version__
from turnkeeper.boxed.clients import Client, Heard, Task
from turnkeeper.boxed.hook import ADDRESS
from turnkeeper.boxed.hook_door import HookDesk, HookDoor
from turnkeeper.boxed.loopback import Loopback
from turnkeeper.boxed.places import CLIENTS, HOME, MODEL_PORT, SCHEMA_NAME
from turnkeeper.boxed.process import ClientFloods, Ran, run_client
from turnkeeper.boxed.prompts import FIRST_ANSWER, denial_prompt, first_prompt, repair_prompt, schema_words
from turnkeeper.boxed.worker_link import WorkerLink
from turnkeeper.harness.channel import FrameChannel, WorkerGone
from turnkeeper.sandbox.protocol import (
    Canceled,
    Done,
    HarnessProtocolError,
    Ready,
    Report,
    ResponseDenied,
    Start,
    Started,
    SubmissionResult,
    Submit,
    Ungoverned,
)

BUDGET_WORDS: Final = ("budget_reached", "budget reached")
"""How the gateway's refusal is found again in what clients make of it."""
MAX_ERROR_CHARACTERS: Final = 500
MAX_TEXT_CHARACTERS: Final = 256 * 1024


class CalledUngoverned(Exception):
    """The client called a tool that its hooks had not asked about; the text is its name."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where things are; other than in a box only in tests."""

    clients: str = CLIENTS
    home: str = HOME
    hooks: str = ADDRESS
    model_port: int = MODEL_PORT


class ClientTurn:
    """The one turn of this process."""

    def __init__(self, client: Client, start: Start, link: WorkerLink, place: Place) -> None:
        self._client = client
        self._start = start
        self._link = link
        self._place = place
        self._desk = HookDesk(link)
        self._heard = Heard()
        self._since_ns = time.monotonic_ns()
        self._accepted = start.accepted
        self._submissions = start.submissions

    @property
    def said(self) -> str:
        """What the agent said last."""
        return self._heard.text[:MAX_TEXT_CHARACTERS]

    async def run(self) -> None:
        """Converses and reports, and again for as long as the Guardian refuses the answer."""
        door = HookDoor(self._client.dialect, self._desk)
        loopback = Loopback(self._start.gateway_socket)
        try:
            await door.listen(self._place.hooks)
            await loopback.listen(self._place.model_port)
            self._furnish()
            await self._converse()
        except CalledUngoverned as called:
            await self._link.tell(Ungoverned(str(called)))
        finally:
            await door.close()
            await loopback.close()

    async def _converse(self) -> None:
        prompt = first_prompt(self._start)
        if self._start.output_schema is not None and self._client.wire == "chat_completions":
            prompt = f"{prompt}\n\n{schema_words(self._start.output_schema)}"
        while True:
            error = await self._answered(prompt)
            verdict = await self._report(error)
            if isinstance(verdict, Done) or verdict.attempts_left <= 0:
                return
            prompt = denial_prompt(verdict)

    async def _answered(self, prompt: str) -> str | None:
        """An answer, its result handed in where there is one; why there is none."""
        asked_again = False
        while True:
            error = await self._prompted(prompt)
            if error is not None or self._start.output_schema is None:
                return error
            if self._heard.value_json is None:
                if asked_again or self._accepted is not None:
                    return None
                asked_again, prompt = True, FIRST_ANSWER
                continue
            result = await self._link.ask(Submit(self._heard.value_json), SubmissionResult)
            self._submissions += 1
            if result.accepted:
                self._accepted = self._heard.value_json
            if result.accepted or result.closed or result.attempts_left <= 0:
                return None
            prompt = repair_prompt(result)

    async def _prompted(self, prompt: str) -> str | None:
        task = Task(self._start.model, self._start.output_schema, self._heard.session)
        output, before = self._client.output(task), len(self._desk.asked)

        def check() -> None:
            name = output.ungoverned(self._desk.asked, before)
            if name is not None:
                raise CalledUngoverned(name)

        argv = [f"{self._place.clients}/{self._client.program}", *self._client.words(task)]
        try:
            ran = await run_client(argv, prompt, output, check)
        except (ClientFloods, OSError) as error:
            return f"{type(error).__name__}: {error}"
        session = output.heard.session or self._heard.session
        self._heard = output.heard
        self._heard.session = session
        return _failure(output.heard, ran)

    async def _report(self, error: str | None) -> Done | ResponseDenied:
        report = Report(
            status="completed" if error is None or _is_budget(error) else "failed",
            stop_reason="end_turn" if error is None else _stop_reason(error),
            text=self.said,
            result=self._accepted,
            result_error=self._result_error(),
            usage={},
            duration_ms=(time.monotonic_ns() - self._since_ns) // 1_000_000,
            error=None if error is None else error[:MAX_ERROR_CHARACTERS],
        )
        return await self._link.ask(report, Verdict)

    def _result_error(self) -> Literal["not_submitted", "invalid"] | None:
        if self._start.output_schema is None or self._accepted is not None:
            return None
        return "invalid" if self._submissions else "not_submitted"

    def _furnish(self) -> None:
        """Puts into the client's home what it is to find there."""
        home, client = Path(self._place.home), self._client
        for name in (client.instructions_file, *client.home_files):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
        for name, text in {**client.home_files, client.instructions_file: self._start.instructions}.items():
            (home / name).write_text(text)
        if self._start.output_schema is not None:
            (home / SCHEMA_NAME).write_text(self._start.output_schema)


Verdict: Final = (Done, ResponseDenied)


async def serve(channel: FrameChannel, client: Client, place: Place | None = None) -> int:
    """Runs the one turn of this process. Its exit status: 0 done, 1 the worker broke the protocol."""
    await channel.send(Ready(harness="client", version=__version__))
    try:
        first = await channel.receive()
        if not isinstance(first, Start):
            await channel.send(Canceled())
            return 0
        await channel.send(Started(turn_id=first.turn_id))
        await _run(first, channel, client, place or Place())
    except WorkerGone:
        return 0
    except HarnessProtocolError:
        return 1
    return 0


async def _run(start: Start, channel: FrameChannel, client: Client, place: Place) -> None:
    link = WorkerLink(channel)
    turn = ClientTurn(client, start, link, place)
    listening = asyncio.ensure_future(link.listen())
    running = asyncio.ensure_future(turn.run())
    try:
        await asyncio.wait({listening, running}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            return running.result()
        listening.result()
        running.cancel()
        await asyncio.wait({running})
        await channel.send(Canceled(turn.said))
    finally:
        running.cancel()
        listening.cancel()


def _failure(heard: Heard, ran: Ran) -> str | None:
    if heard.failure is not None:
        return heard.failure
    if ran.exit_status != 0 or not heard.done:
        return f"the client ended with {ran.exit_status}: {ran.complaint[-MAX_ERROR_CHARACTERS:]}"
    return None


def _stop_reason(error: str) -> Literal["budget_reached", "agent_error"]:
    return "budget_reached" if _is_budget(error) else "agent_error"


def _is_budget(error: str) -> bool:
    return any(words in error for words in BUDGET_WORDS)
