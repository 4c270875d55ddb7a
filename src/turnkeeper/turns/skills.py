"""Skills of a project (contract 2.13): archives by their SHA-256, in versions that never change.

Pure. Answers for what is kept of a skill and by which words an agent names one; what an archive may hold is
`skill_archives`' business, its bytes are `contents`'.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from turnkeeper.errors import TurnkeeperError
from turnkeeper.turns.creations import Created
from turnkeeper.turns.idempotency import KeyedRequest
from turnkeeper.turns.model import SkillRef
from turnkeeper.turns.ports import Page, PageRequest

LOAD_SKILL: Final = "load_skill"
"""The tool that an agent with skills has, and that nothing else may be called."""
MAX_STORED_SKILLS: Final = 1_000
"""Versions of skills that one project keeps."""


class SkillsFull(TurnkeeperError):
    """The project has as many skills as it may."""

    code = "skills_full"


@dataclass(frozen=True, slots=True)
class NewSkill:
    """A skill whose archive was looked into and is in the content store already."""

    project_id: str
    name: str
    description: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Skill:
    """A version of a skill. `version` counts from 1 for each name."""

    id: str
    project_id: str
    name: str
    version: int
    description: str
    sha256: str
    size_bytes: int
    created_at: datetime

    @property
    def ref(self) -> SkillRef:
        """The skill as an agent version has it."""
        return SkillRef(self.id, self.name, self.version, self.sha256, self.description)


@dataclass(frozen=True, slots=True)
class WantedSkill:
    """How an agent names a skill: by the id of a version, or by its name, the newest where no version is named."""

    id: str | None = None
    name: str | None = None
    version: int | None = None


class SkillStore(Protocol):
    """What the API needs. Every method is one transaction."""

    async def add_skill(self, new: NewSkill, request: KeyedRequest | None = None) -> Created[Skill]:
        """The next version of its name; the same archive as the newest version's is that version.

        Raises `SkillsFull`, and what an Idempotency-Key raises.
        """
        ...

    async def skill(self, skill_id: str) -> Skill:
        """Raises `NotFound`."""
        ...

    async def skills(self, project_id: str, page: PageRequest, *, name: str | None = None) -> Page[Skill]: ...

    async def wanted(self, project_id: str, wanted: Sequence[WantedSkill]) -> tuple[Skill | None, ...]:
        """The skills that are named so in the project, in their order; None for one that there is not."""
        ...
