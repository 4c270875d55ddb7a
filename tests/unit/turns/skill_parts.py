"""Parts for tests of skills: one kept in a rig, and a harness that loads it."""

from collections.abc import AsyncIterator, Callable
from typing import Final

import orjson
from tests.unit.turns.rig import Rig
from tests.unit.turns.test_skill_archives import zipped

from turnkeeper.sandbox.protocol import Start, ToolRequest, ToolResult
from turnkeeper.testing.recording_sandbox import ScriptedHarness
from turnkeeper.turns.model import PROJECT_ID, SkillRef
from turnkeeper.turns.skill_archives import read_skill
from turnkeeper.turns.skills import NewSkill

SECRET_WORDS: Final = "Fold every page twice."
TEXT: Final = f"---\nname: folding\ndescription: Folds paper.\n---\n{SECRET_WORDS}\n"
FILES: Final = {"SKILL.md": TEXT.encode(), "scripts/fold.txt": b"a crane"}
LOAD: Final = ToolRequest("load", "load_skill", '{"name":"folding"}')
READ: Final = ToolRequest("read", "shell", '{"command":"cat /skills/folding/scripts/fold.txt"}')
WRITE: Final = ToolRequest("write", "shell", '{"command":"touch /skills/x; rm /skills/folding/SKILL.md; ls /skills"}')


async def pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def keep(made: Rig, files: dict[str, bytes] | None = None) -> SkillRef:
    """A skill of the project that the rig's agents have."""
    archive = zipped(files or FILES)
    content = await made.bench.contents.put(pieces(archive), max_bytes=len(archive))
    bundle = read_skill(archive)
    new = NewSkill(PROJECT_ID, bundle.name, bundle.description, content.sha256, content.size_bytes)
    skill = (await made.store.skills().add_skill(new)).thing.ref
    made.skills = (*made.skills, skill)
    return skill


class Loading:
    """A harness that makes these calls, keeps what it was told, and does `after` each time."""

    def __init__(self, *requests: ToolRequest) -> None:
        self.requests = requests
        self.starts: list[Start] = []
        self.results: list[ToolResult] = []
        self.after: Callable[[], None] = lambda: None

    async def __call__(self, harness: ScriptedHarness) -> None:
        start = await harness.begin()
        self.starts.append(start)
        requests = self.requests
        if start.pending is not None:
            waited = [request.name for request in requests].index(start.pending.name)
            again = ToolRequest("again", start.pending.name, start.pending.arguments)
            requests = (again, *requests[waited + 1 :])
        for request in requests:
            result = await harness.ask(request)
            assert isinstance(result, ToolResult)
            self.results.append(result)
            self.after()
        await harness.report("done")

    @property
    def told(self) -> str:
        """Everything that reached the model, by whatever way."""
        return " ".join([*(start.instructions for start in self.starts), *(one.content for one in self.results)])

    @property
    def tools(self) -> list[str]:
        return [tool.name for tool in self.starts[-1].tools]


async def sent(made: Rig, session_id: str, method: str) -> list[dict[str, object]]:
    """The payloads of the steps of a method, in order."""
    steps = await made.store.steps(session_id)
    return [orjson.loads(step.payload_json or "{}") for step in steps if step.method == method]
