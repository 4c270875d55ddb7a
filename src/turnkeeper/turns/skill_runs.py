"""The skills of one turn (contract 2.13, 10.3 and 16.3; CORE-SKILL-01, 02, 04, 07): registered, offered, loaded.

Answers for a skill being registered before its agent hears of it, once in a session, for one that was denied being
offered to nobody, and for a load that states the SHA-256 of the bytes that are there. Must never give the model or its
box anything of a skill whose load was not let through, nor of bytes other than those that the agent version names.
"""

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson
import structlog

from turnkeeper.acs import JsonValue, Marks
from turnkeeper.events.envelope import NewEvent
from turnkeeper.events.skills import SKILL_TYPES, skill_loaded
from turnkeeper.sandbox.protocol import ToolSpec
from turnkeeper.turns import payloads
from turnkeeper.turns.contents import ContentMissing
from turnkeeper.turns.exchange import Party
from turnkeeper.turns.model import Claim, Draft, Fence, SkillRef, Step
from turnkeeper.turns.rulings import Ruling
from turnkeeper.turns.skill_archives import SkillBundle, SkillRefused, read_skill
from turnkeeper.turns.skill_folder import SkillFolder, SkillsUnusable
from turnkeeper.turns.skill_steps import (
    load_payload,
    open_loads,
    register_payload,
    registrations_in,
)
from turnkeeper.turns.skills import LOAD_SKILL
from turnkeeper.turns.tool_runs import ToolOutput, cut_text
from turnkeeper.turns.workbench import Workbench

SKILLS_DIR: Final = Path("/skills")
"""Where a box finds them."""
NAME: Final = "name"
PAGE_STEPS: Final = 100
MAX_EVENTS: Final = 1_000
"""Loads of one turn that are looked at when it goes on."""
MAX_PAGES: Final = 100
"""How far back is read for what was registered; past it, a skill is registered once more."""

_PARAMETERS: Final[dict[str, object]] = {
    "type": "object",
    "properties": {NAME: {"type": "string", "description": "The skill's name, as your instructions have it."}},
    "required": [NAME],
    "additionalProperties": False,
}
_SPEC: Final = ToolSpec(LOAD_SKILL, "Load a skill: you get its instructions, and its files can be read.", _PARAMETERS)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Archive:
    """What is there of a skill; `bundle` only where the bytes are those that the agent version names."""

    sha256: str
    bundle: SkillBundle | None


class SkillRuns:
    """What an agent's skills are in one turn."""

    def __init__(self, bench: Workbench, claim: Claim, fence: Callable[[], Fence]) -> None:
        self._bench = bench
        self._turn = claim.turn
        self._fence = fence
        self._party = Party(claim.turn.session_id, claim.turn.agent_id)
        self._skills = claim.agent.skills
        self._offered: dict[str, SkillRef] = {}
        self._registrations: dict[tuple[str, str], str] = {}
        self._kept: tuple[str, ...] = ()
        self._folder = SkillFolder(bench.skill_folders / claim.turn.session_id)
        self._has_folder = False
        self._opened = False

    async def open(self) -> None:
        """Registers what the session's Guardian has not let be registered yet. Raises `StaleFence`."""
        if self._opened or not self._skills:
            return
        self._registrations = await self._registered_before()
        self._kept = await self._loaded_before()
        for skill in self._skills:
            ruling = None if _pair(skill) in self._registrations else await self._registered(skill)
            if ruling is None or ruling.allowed:
                self._offered[skill.name] = skill
            elif ruling.kind == "undecided":
                # Nobody answers, and each of the others would be waited for as long.
                break
        self._opened = True

    @property
    def specs(self) -> list[ToolSpec]:
        """The tool that loads them, where there are any."""
        return [_SPEC] if self._offered else []

    def added_to(self, instructions: str) -> str:
        """The agent's instructions with the skills that it may load."""
        if not self._offered:
            return instructions
        lines = [f"- {skill.name}: {' '.join(skill.description.split())}" for skill in self._offered.values()]
        told = f"You have skills. Before you do what one is for, load it with the tool `{LOAD_SKILL}`:"
        return "\n".join([*([instructions, ""] if instructions else []), told, *lines])

    def has(self, name: str) -> bool:
        """Whether this is the tool that loads skills, and the agent has it."""
        return name == LOAD_SKILL and bool(self._offered)

    async def load(self, arguments: Mapping[str, JsonValue], parent: str | None, *, attempt: int) -> ToolOutput:
        """The text of a skill, as a call that was allowed in the step `parent` gets it. Raises `StaleFence`."""
        since_ms = self._bench.clock.monotonic_ms()
        name = arguments.get(NAME)
        skill = self._offered.get(name) if isinstance(name, str) else None
        if skill is None:
            return _not_loaded("error", f"not loaded: the skills are {', '.join(self._offered)}")
        try:
            archive = await self._read(skill)
            ruling = await self._ask_to_load(skill, archive, parent, attempt)
            if not ruling.allowed:
                return _not_loaded("denied", f"denied: {ruling.reasoning or 'no reason given'}")
            if archive.bundle is None:
                return _not_loaded("denied", "denied: the skill's archive is not the one that the agent names")
            await self._put(skill, archive.bundle)
        except (ContentMissing, SkillsUnusable) as error:
            _log.error("skill_not_loaded", turn_id=self._turn.id, skill=skill.id, error=error.message)
            return _not_loaded("error", "not loaded: the skill cannot be read")
        # Where its files are comes first: what is too long is cut at its end.
        told = f"[The files of this skill are in {self._seen_at / skill.name}, read-only.]\n\n{archive.bundle.text}"
        text, cut = cut_text(told, self._bench.settings.tool_output_bytes)
        # The platform vouches for what it says, as for the agent's instructions: it is what was approved.
        return ToolOutput("ok", text, cut, self._bench.clock.monotonic_ms() - since_ms, by_platform=True)

    async def attached(self) -> Path | None:
        """The folder for a box that is about to be opened: None for an agent without skills.

        A turn that goes on finds in it what it had loaded. Raises `SkillsUnusable`.
        """
        if not self._skills:
            return None
        if not self._has_folder:
            await self._restored()
        return self._folder.path

    async def close(self) -> None:
        """Removes the folder."""
        if self._has_folder:
            self._has_folder = False
            try:
                await self._folder.close()
            except SkillsUnusable as error:
                _log.warning("skill_folder_left", turn_id=self._turn.id, error=error.message)

    @property
    def _seen_at(self) -> Path:
        return self._folder.path if self._bench.boxes.kind == "none" else SKILLS_DIR

    async def _put(self, skill: SkillRef, bundle: SkillBundle) -> None:
        if not self._has_folder:
            await self._restored()
        await self._folder.put(skill.name, bundle.files)

    async def _restored(self) -> None:
        await self._folder.open()
        self._has_folder = True
        for name in self._kept:
            bundle = await self._bundle(self._offered[name]) if name in self._offered else None
            if bundle is not None:
                await self._folder.put(name, bundle.files)

    async def _registered(self, skill: SkillRef) -> Ruling:
        bundle = await self._bundle(skill)
        text = None if bundle is None else bundle.text
        ruling = await self._bench.governor.ask(
            self._party,
            self._draft(payloads.SKILL_REGISTER, lambda marks: register_payload(marks, skill, text)),
            self._fence(),
        )
        if ruling.allowed and ruling.request_id is not None:
            self._registrations[_pair(skill)] = ruling.request_id
        if not ruling.allowed:
            _log.warning("skill_not_offered", turn_id=self._turn.id, skill=skill.id, reasons=ruling.reasons)
        return ruling

    async def _ask_to_load(self, skill: SkillRef, archive: _Archive, parent: str | None, attempt: int) -> Ruling:
        registration = self._registrations.get(_pair(skill))
        payload_json = load_payload(skill, archive.sha256, registration=registration, parent=parent)
        return await self._bench.governor.ask(
            self._party,
            self._draft(payloads.SKILL_LOAD, lambda _: payload_json),
            self._fence(),
            events_for=lambda ruling: self._loaded(skill, ruling, archive, attempt),
        )

    def _loaded(self, skill: SkillRef, ruling: Ruling, archive: _Archive, attempt: int) -> Sequence[NewEvent]:
        if not ruling.allowed or archive.bundle is None:
            return ()
        return [
            skill_loaded(
                turn_id=self._turn.id,
                attempt=attempt,
                name=skill.name,
                version=skill.version,
                sha256=archive.sha256,
            )
        ]

    def _draft(self, method: str, write: Callable[[Marks], str]) -> Draft:
        return Draft(self._bench.ids.uuid(), method, write, in_window=True, turn_id=self._turn.id)

    async def _registered_before(self) -> dict[tuple[str, str], str]:
        steps: list[Step] = []
        before: int | None = None
        for _ in range(MAX_PAGES):
            page = await self._bench.store.steps(self._turn.session_id, before=before, limit=PAGE_STEPS)
            steps[:0] = [step for step in page if step.method == payloads.SKILL_REGISTER]
            if len(page) < PAGE_STEPS:
                break
            before = page[0].ordinal
        return registrations_in(steps)

    async def _bundle(self, skill: SkillRef) -> SkillBundle | None:
        try:
            return (await self._read(skill)).bundle
        except ContentMissing as error:
            _log.error("skill_missing", turn_id=self._turn.id, skill=skill.id, error=error.message)
            return None

    async def _loaded_before(self) -> tuple[str, ...]:
        """What the turn had loaded when it was let go of: what was said to be loaded, and has no unload."""
        turn = self._turn
        events = await self._bench.store.events(
            turn.session_id, after=turn.first_sequence - 1, limit=MAX_EVENTS, types=SKILL_TYPES, turn_id=turn.id
        )
        told = {orjson.loads(event.data)["name"] for event in events}
        steps = await self._bench.store.steps(turn.session_id, turn_id=turn.id)
        return tuple(name for name in dict.fromkeys(open_loads(steps)) if name in told)

    async def _read(self, skill: SkillRef) -> _Archive:
        """Raises `ContentMissing`."""
        content = b"".join([piece async for piece in self._bench.contents.read(skill.sha256)])
        sha256 = hashlib.sha256(content).hexdigest()
        if sha256 != skill.sha256:
            return _Archive(sha256, None)
        try:
            return _Archive(sha256, await asyncio.to_thread(read_skill, content))
        except SkillRefused as error:
            _log.error("skill_unreadable", skill=skill.id, error=error.message)
            return _Archive(sha256, None)


def _pair(skill: SkillRef) -> tuple[str, str]:
    return skill.name, skill.sha256


def _not_loaded(status: str, text: str) -> ToolOutput:
    return ToolOutput("denied" if status == "denied" else "error", text, False, 0, by_platform=True)
