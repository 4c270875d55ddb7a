"""What the agent submits for the turn's output schema (contract 5.3): checked at once, counted here.

Answers for the count of submissions and of repairs, whatever the harness says of either. A later valid value replaces
an earlier one, an invalid one never erases a valid one. What a refused value held is told to the agent alone
(amendment 7).
"""

from collections.abc import Callable, Mapping
from typing import Final

from turnkeeper.acs import JsonLimits, JsonRejected, minify, parse_strict
from turnkeeper.events import catalogue
from turnkeeper.sandbox.protocol import SubmissionResult
from turnkeeper.turns.model import Fence, Submission, Turn
from turnkeeper.turns.ports import TurnStore
from turnkeeper.turns.results import SubmissionTally
from turnkeeper.turns.schema_check import SchemaCheckBusy, SchemaChecker, SchemaError

MAX_TOLD_ERRORS: Final = 20
MAX_TOLD_CHARACTERS: Final = 500


class Repairs:
    """How often the agent may try again in this turn, for a refused value or a denied answer alike."""

    def __init__(self, attempts: int) -> None:
        self.left = attempts

    def take(self) -> bool:
        """Uses one attempt; False where none is left."""
        if self.left == 0:
            return False
        self.left -= 1
        return True


class Submissions:
    """The submissions of one turn."""

    def __init__(
        self,
        turn: Turn,
        store: TurnStore,
        checker: SchemaChecker,
        repairs: Repairs,
        fence: Callable[[], Fence],
        *,
        result_bytes: int,
        max_submissions: int,
        tally: SubmissionTally | None = None,
    ) -> None:
        self._turn = turn
        self._schema_json = turn.output_schema_json
        self._store = store
        self._checker = checker
        self._repairs = repairs
        self._fence = fence
        self._limits = JsonLimits(max_bytes=result_bytes)
        self._max_submissions = max_submissions
        self.tally = tally or SubmissionTally()
        self._closed = self._schema_json is None or self.tally.count >= max_submissions

    async def take(self, value_text: str) -> SubmissionResult:
        """One submitted value (JSON text). Raises `StaleFence`."""
        if self._closed or self._schema_json is None:
            return self._told(accepted=False, errors=["no further value is taken; end the turn with a text"])
        value_json, errors = await self.judge(value_text)
        count = self.tally.count + 1
        self.tally = SubmissionTally(count, self.tally.valid_json if errors else value_json)
        exhausted = bool(errors) and not self._repairs.take()
        self._closed = exhausted or count >= self._max_submissions
        submission = Submission(count, not errors, value_json, tuple(_as_members(error) for error in errors))
        await self._write(submission, len(value_text.encode()))
        return self._told(accepted=not errors, errors=[_in_words(error) for error in errors])

    async def judge(self, value_text: str) -> tuple[str, tuple[SchemaError, ...]]:
        """The value in the form it is kept in, and what is wrong with it."""
        try:
            parse_strict(value_text.encode(), self._limits)
        except JsonRejected as error:
            return "null", (SchemaError("", "", error.error_code, error.message),)
        value_json = minify(value_text)
        try:
            return value_json, await self._checker.check(self._schema_json or "true", value_json)
        except SchemaCheckBusy as error:
            return value_json, (SchemaError("", "", "deadline", error.message),)

    async def _write(self, submission: Submission, size_bytes: int) -> None:
        event = catalogue.turn_result_submitted(
            turn_id=self._turn.id,
            attempt=self._turn.attempt,
            submission=submission.submission,
            valid=submission.valid,
            size_bytes=size_bytes,
            errors=[_without_content(error) for error in submission.errors],
            attempts_left=self._repairs.left,
        )
        await self._store.submit(self._fence(), submission, [event])

    def _told(self, *, accepted: bool, errors: list[str]) -> SubmissionResult:
        return SubmissionResult(
            submission=self.tally.count,
            accepted=accepted,
            closed=self._closed,
            attempts_left=0 if self._closed else self._repairs.left,
            errors=errors[:MAX_TOLD_ERRORS],
        )


def _as_members(error: SchemaError) -> dict[str, str]:
    return {
        "instance_path": error.instance_path,
        "schema_path": error.schema_path,
        "keyword": error.keyword,
        "message": error.message,
    }


def _without_content(error: Mapping[str, str]) -> dict[str, str]:
    # Path and message can quote the value, which nobody has allowed yet; the schema's side is the app's own.
    return dict(error) | {"instance_path": "", "message": "withheld"}


def _in_words(error: SchemaError) -> str:
    return f"{error.instance_path or '/'}: {error.message}"[:MAX_TOLD_CHARACTERS]
