"""What a turn's calls are carried out with: the tool box, what it may reach, the agent's MCP servers and skills.

One for the whole turn, so that a server that runs in the box is there before the agent begins and as long as it works.
"""

from collections.abc import Callable

from turnkeeper.turns.egress import Egress
from turnkeeper.turns.mcp_servers import McpServers
from turnkeeper.turns.model import Claim, Fence
from turnkeeper.turns.skill_runs import SkillRuns
from turnkeeper.turns.tool_runs import ToolRuns
from turnkeeper.turns.workbench import Workbench


class Equipment:
    """The parts. Whether a call may be made is decided by whoever uses them."""

    def __init__(self, bench: Workbench, claim: Claim, fence: Callable[[], Fence]) -> None:
        self.egress = Egress(bench, claim, claim.turn, fence)
        self.skills = SkillRuns(bench, claim, fence)
        self.runs = ToolRuns(bench, claim.turn, fence, claim.agent.sandbox, self.egress, skills=self.skills.attached)
        self.servers = McpServers(bench, claim, fence, runs=self.runs, egress=self.egress)

    async def close(self) -> None:
        """Ends all of it; returns when the processes are gone."""
        try:
            await self.servers.close()
        finally:
            try:
                await self.runs.close()
            finally:
                await self.skills.close()
