"""Typed steps for agents that await (ACS 5): each asks for one hook and returns what the agent may go on with.

`turnkeeper.client.helpers_blocking` is this module for agents that do not await, made from it by a test's script; a
test compares the two. Every step raises `StepDenied`, `StepPending` where the settings say so, and `StepInvalid`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TypeVar

from turnkeeper.acs.lineage import Marks, Origin
from turnkeeper.client import steps
from turnkeeper.client.errors import StepInvalid
from turnkeeper.client.outcomes import Allowed
from turnkeeper.client.steps import Digest, Payload, Retrieved, Step

T = TypeVar("T")


class Steps(ABC):
    """What sessions and turns can both ask for."""

    @property
    @abstractmethod
    def session_id(self) -> str:
        """The session's id on the wire."""

    @property
    @abstractmethod
    def head(self) -> str | None:
        """The chain head the Guardian published last; None where none was or a later answer was lost."""

    @abstractmethod
    def marks(self) -> Marks:
        """Labels for the values of one step."""

    @abstractmethod
    async def settle(self, step: Step[T]) -> Allowed:
        """The step, allowed. Raises `StepDenied`, `StepPending`, `StepInvalid`."""

    async def permit(self, step: Step[T]) -> T:
        """What the step hands back once it is allowed. Raises as `settle` does."""
        allowed = await self.settle(step)
        return step.read(allowed.payload)

    async def agbom_changed(
        self, *, diff: Payload | None = None, full_snapshot: Payload | None = None, reason: str | None = None
    ) -> None:
        """`agbom/changed` (INSP-04)."""
        await self.permit(steps.agbom_changed(diff=diff, full_snapshot=full_snapshot, reason=reason))

    async def pre_compact(
        self,
        entries: Sequence[str],
        triggered_by: steps.CompactionTrigger = "framework_initiated",
        *,
        provenance_summary: Payload | None = None,
        estimated_input_tokens: int | None = None,
        target_summary_tokens: int | None = None,
    ) -> None:
        """`steps/preCompact` (CORE-CMP-01): `entries` are the step ids about to be summarized."""
        await self.permit(
            steps.pre_compact(
                entries,
                triggered_by,
                provenance_summary=provenance_summary,
                estimated_input_tokens=estimated_input_tokens,
                target_summary_tokens=target_summary_tokens,
            )
        )

    async def post_compact(
        self,
        summary: str,
        entries: Sequence[str],
        *,
        derived_from: Sequence[str],
        head_before: str | None = None,
        lineage_depth_after: int | None = None,
    ) -> str:
        """`steps/postCompact` (CORE-CMP-02): the summary to keep. Raises `StepInvalid` where no head is known."""
        head = head_before or self.head
        if head is None:
            raise StepInvalid("no chain head is known to compact from")
        step = steps.post_compact(
            self.marks(),
            summary,
            entries,
            derived_from=derived_from,
            head_before=head,
            lineage_depth_after=lineage_depth_after,
        )
        return await self.permit(step)

    async def subagent_start(
        self,
        subagent_session_id: str,
        parent_step_id: str,
        *,
        intent_derivation: steps.IntentDerivation = "inherit_full",
        intent: Payload | None = None,
        descriptor: Payload | None = None,
    ) -> None:
        """`steps/subagentStart` (CORE-SUB-01): the subagent's session is then opened under its own id."""
        await self.permit(
            steps.subagent_start(
                subagent_session_id,
                self.session_id,
                parent_step_id,
                intent_derivation=intent_derivation,
                intent=intent,
                descriptor=descriptor,
            )
        )

    async def subagent_stop(
        self,
        subagent_session_id: str,
        outcome: steps.SubagentOutcome,
        *,
        final_chain_hash: str | None = None,
        step_count: int | None = None,
    ) -> None:
        """`steps/subagentStop` (CORE-SUB-04)."""
        await self.permit(
            steps.subagent_stop(
                self.marks(), subagent_session_id, outcome, final_chain_hash=final_chain_hash, step_count=step_count
            )
        )

    async def skill_register(
        self,
        skill_id: str,
        digest: Digest,
        declared_capabilities: Sequence[str],
        *,
        ref: str | None = None,
        body: str | None = None,
        composition: Payload | None = None,
        skill: Payload | None = None,
    ) -> None:
        """`steps/skillRegister` (CORE-SKILL-01): a skill that is denied must not become loadable."""
        await self.permit(
            steps.skill_register(
                self.marks(),
                skill_id,
                digest,
                declared_capabilities,
                ref=ref,
                body=body,
                composition=composition,
                skill=skill,
            )
        )

    async def skill_load(
        self,
        skill_id: str,
        digest: Digest,
        *,
        load_trigger: steps.LoadTrigger = "agent_decision",
        load_path: Sequence[str] = (),
        registration_ref: str | None = None,
        parent_step_id: str | None = None,
        declared_capabilities: Sequence[str] | None = None,
    ) -> None:
        """`steps/skillLoad` (CORE-SKILL-07)."""
        await self.permit(
            steps.skill_load(
                skill_id,
                digest,
                load_trigger=load_trigger,
                load_path=load_path,
                registration_ref=registration_ref,
                parent_step_id=parent_step_id,
                declared_capabilities=declared_capabilities,
            )
        )

    async def skill_unload(self, skill_id: str, reason: steps.UnloadReason, *, replaced_by: str | None = None) -> None:
        """`steps/skillUnload` (CORE-SKILL-08)."""
        await self.permit(steps.skill_unload(skill_id, reason, replaced_by=replaced_by))

    async def mcp(self, message: Payload, *, answers: str | None = None) -> Payload:
        """An MCP message in either direction (MCP-02): the message to forward or consume."""
        return await self.permit(steps.mcp(message, answers=answers))


class SessionSteps(Steps):
    """What a session can ask for outside its turns."""

    async def agent_trigger(
        self,
        trigger_type: steps.TriggerType = "user_message",
        *,
        source: Payload | None = None,
        intent: Payload | None = None,
    ) -> Payload:
        """`steps/agentTrigger` (CORE-HOOK-06): the trigger source as it may be used."""
        return await self.permit(steps.agent_trigger(trigger_type, source=source, intent=intent))

    async def agbom_snapshot(self, agbom: Payload, *, trigger: steps.AgbomTrigger = "session_start") -> None:
        """`agbom/snapshot` (INSP-01)."""
        await self.permit(steps.agbom_snapshot(agbom, trigger=trigger))


class TurnSteps(Steps):
    """What a turn can ask for."""

    async def user_message(self, text: str, *, origin: Origin = "user_input", source_id: str | None = None) -> str:
        """`steps/userMessage` (CORE-HOOK-07): what the agent may read."""
        return await self.permit(steps.user_message(self.marks(), text, origin=origin, source_id=source_id))

    async def agent_response(self, text: str) -> str:
        """`steps/agentResponse` (CORE-HOOK-07): what may be shown."""
        return await self.permit(steps.agent_response(self.marks(), text))

    async def tool_call_request(
        self,
        name: str,
        arguments: Mapping[str, object],
        *,
        provider: str | None = None,
        version: str | None = None,
        operation: str | None = None,
        capability: str | None = None,
        raw_command: str | None = None,
        goal: str | None = None,
    ) -> dict[str, object]:
        """`steps/toolCallRequest` (CORE-HOOK-10) on its own: the arguments to act with."""
        step = steps.tool_call_request(
            self.marks(),
            name,
            arguments,
            provider=provider,
            version=version,
            operation=operation,
            capability=capability,
            raw_command=raw_command,
            goal=goal,
        )
        return await self.permit(step)

    async def tool_call_result(
        self,
        name: str,
        output: object,
        *,
        exit_status: steps.ExitStatus = "success",
        request_id_ref: str | None = None,
        duration_ms: int | None = None,
        operation: str | None = None,
    ) -> object:
        """`steps/toolCallResult` (CORE-HOOK-11) on its own: what the agent may read."""
        step = steps.tool_call_result(
            self.marks(),
            name,
            output,
            exit_status=exit_status,
            request_id_ref=request_id_ref,
            duration_ms=duration_ms,
            operation=operation,
        )
        return await self.permit(step)

    async def knowledge_retrieval(
        self, query: str, results: Sequence[Retrieved], *, source: Payload | None = None
    ) -> list[object]:
        """`steps/knowledgeRetrieval` (CORE-HOOK-08): the values the agent may read."""
        return await self.permit(steps.knowledge_retrieval(self.marks(), query, results, source=source))

    async def memory_context_retrieval(
        self,
        results: Sequence[Retrieved],
        *,
        query: str | None = None,
        store: str | None = None,
        scope: steps.MemoryScope | None = None,
    ) -> list[object]:
        """`steps/memoryContextRetrieval` (CORE-HOOK-08): the values the agent may read."""
        step = steps.memory_context_retrieval(self.marks(), results, query=query, store=store, scope=scope)
        return await self.permit(step)

    async def memory_store(
        self,
        value: object,
        *,
        operation: steps.MemoryOperation = "create",
        memory_id: str | None = None,
        store: str | None = None,
        scope: steps.MemoryScope | None = None,
    ) -> object:
        """`steps/memoryStore` (CORE-HOOK-09): what may be written."""
        step = steps.memory_store(
            self.marks(), value, operation=operation, memory_id=memory_id, store=store, scope=scope
        )
        return await self.permit(step)
