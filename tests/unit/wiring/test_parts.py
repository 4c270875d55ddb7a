"""What wiring hands to each part: the settings' own values, nothing in between."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from pydantic import SecretStr

from turnkeeper.config import ConfigInvalid, load_configuration
from turnkeeper.sandbox.boxes import LOOP_LIMITS, TOOL_LIMITS, BoxLimits
from turnkeeper.sandbox.metering import BudgetExhausted, CallOutcome, CallUsage
from turnkeeper.settings import BoxLimitSettings, GatewaySettings, ProviderSettings, Settings
from turnkeeper.turns.model import CallGrant, CallRecord, ModelChoice
from turnkeeper.turns.ports import BudgetSpent
from turnkeeper.wiring.guardian import load_rules
from turnkeeper.wiring.models import (
    LedgerMeter,
    ModelWires,
    OutputModes,
    ToolCallings,
    gateway_limits,
    provider_sources,
)

REMOTE = ProviderSettings(kind="openai", base_url="http://127.0.0.1:9/v1")
LOCAL = ProviderSettings(kind="local")


class Ledger:
    """A turn's ledger with so many calls left."""

    def __init__(self, calls_left: int) -> None:
        self.calls_left = calls_left
        self.settled: list[CallRecord] = []
        self.retries: list[int] = []

    async def reserve(self, *, input_tokens: int, max_output_tokens: int) -> CallGrant:
        """A grant, or nothing is left."""
        if self.calls_left == 0:
            raise BudgetSpent(f"{input_tokens} and {max_output_tokens} are too much")
        self.calls_left -= 1
        return CallGrant(call=1, max_output_tokens=max_output_tokens // 2)

    async def settle(self, record: CallRecord) -> None:
        """Keeps the record."""
        self.settled.append(record)

    async def retrying(self, model: ModelChoice, *, status: int | None, delay_ms: int, try_number: int) -> None:
        """Keeps the number of the try."""
        self.retries.append(try_number)


def limits_of(settings: BoxLimitSettings) -> BoxLimits:
    """The settings as a driver has them."""
    return BoxLimits(**settings.model_dump())


def test_the_documented_limits_of_boxes_are_the_ones_a_driver_would_take_by_itself() -> None:
    """Two places, one truth."""
    sandbox = Settings(data_dir=Path("d")).sandbox
    assert limits_of(sandbox.loop_limits) == LOOP_LIMITS
    assert limits_of(sandbox.tool_limits) == TOOL_LIMITS


def test_a_spent_budget_reaches_the_gateway_in_its_own_words() -> None:
    """The gateway knows no turns, the ledger knows no gateway."""

    async def main() -> None:
        ledger = Ledger(calls_left=1)
        meter = LedgerMeter(ledger)
        grant = await meter.reserve(input_tokens=10, max_output_tokens=512)
        assert (grant.call, grant.max_output_tokens) == (1, 256)
        with pytest.raises(BudgetExhausted):
            await meter.reserve(input_tokens=10, max_output_tokens=512)

    asyncio.run(main())


def test_a_settlement_arrives_with_every_number_in_its_place() -> None:
    """Usage and outcome become one record."""
    ledger = Ledger(calls_left=0)
    usage = CallUsage(1, 2, 3, 4, 5, estimated=True)
    outcome = CallOutcome("p", "m", 6, 7, "stop", 8, accepted=True, status=200)
    asyncio.run(LedgerMeter(ledger).settle(9, usage, outcome))
    assert ledger.settled == [CallRecord(9, "p", "m", True, 1, 2, 3, 4, 5, True, 6, 7, "stop", 8)]


def test_a_remote_provider_carries_its_key_and_a_local_one_is_not_started_before_it_is_asked_for() -> None:
    """Nobody pays for a model that no agent names."""

    async def main() -> None:
        async with AsyncExitStack() as stack:
            sources = provider_sources(stack, {"far": REMOTE, "near": LOCAL}, {"far": SecretStr("hunter2")})
            assert sources.keys() == {"far", "near"}
            provider = await sources["far"]()
            assert provider.api_key == SecretStr("hunter2")
            assert "hunter2" not in repr(provider)

    asyncio.run(main())


def test_a_model_answers_in_the_schemas_own_form_where_its_server_can_force_that() -> None:
    """The local one can; of another one the operator says so."""
    forcing = ProviderSettings(kind="openai", base_url="http://127.0.0.1:9/v1", json_schema=True)
    modes = OutputModes({"far": REMOTE, "near": LOCAL, "forcing": forcing})
    chosen = [modes(ModelChoice(provider, "m")) for provider in ("far", "near", "forcing", "gone")]
    assert chosen == ["tool", "native", "native", "tool"]


def test_a_model_calls_tools_in_words_where_it_has_no_calls_of_its_own() -> None:
    """The local one has none; of another one the operator says so."""
    worded = ProviderSettings(kind="openai", base_url="http://127.0.0.1:9/v1", tool_calling="prompted")
    callings = ToolCallings({"far": REMOTE, "near": LOCAL, "worded": worded})
    chosen = [callings(ModelChoice(provider, "m")) for provider in ("far", "near", "worded", "gone")]
    assert chosen == ["native", "prompted", "prompted", "native"]


def test_a_model_is_spoken_to_in_the_protocol_of_its_provider() -> None:
    """The built-in agent; other agents bring their own client."""
    newer = ProviderSettings(kind="openai", base_url="http://127.0.0.1:9/v1", protocol="responses")
    claude = ProviderSettings(kind="anthropic", base_url="http://127.0.0.1:9/v1")
    wires = ModelWires({"far": REMOTE, "near": LOCAL, "newer": newer, "claude": claude})
    spoken = [wires(ModelChoice(provider, "m")) for provider in ("far", "near", "newer", "claude", "gone")]
    assert spoken == ["chat_completions", "chat_completions", "responses", "messages", "chat_completions"]


def test_a_providers_kind_and_limits_arrive_where_it_is_called() -> None:
    """A setting that stops half way limits nothing."""

    async def main() -> None:
        settings = ProviderSettings(
            kind="anthropic", base_url="http://127.0.0.1:9/v1", max_calls_at_once=3, max_wait_ms=7, read_timeout_ms=9
        )
        async with AsyncExitStack() as stack:
            provider = await provider_sources(stack, {"claude": settings}, {})["claude"]()
        limits = provider.limits
        assert (provider.kind, limits.max_calls_at_once, limits.max_calls_per_minute) == ("anthropic", 3, None)
        assert (limits.max_wait_ms, limits.read_timeout_ms) == (7, 9)

    asyncio.run(main())


def test_the_settings_of_the_gateway_are_its_limits() -> None:
    """Each in its place."""
    limits = gateway_limits(
        GatewaySettings(max_request_bytes=1, max_retries=0, max_stream_bytes=2, max_calls_at_once=5)
    )
    assert (limits.max_request_bytes, limits.max_calls_at_once) == (1, 5)
    assert (limits.upstream.max_retries, limits.upstream.max_stream_bytes) == (0, 2)


def test_a_rule_file_that_is_missing_huge_or_wrong_is_named_by_its_setting(tmp_path: Path) -> None:
    """Before anything starts."""
    huge = tmp_path / "huge.yaml"
    huge.write_bytes(b"#" * 1_048_577)
    half = tmp_path / "half.yaml"
    half.write_text("version: 1\nname: x\n")
    for policy in (tmp_path / "missing.yaml", huge, half):
        with pytest.raises(ConfigInvalid, match=r"guardian\.policy"):
            load_rules(policy)


def test_the_documented_defaults_come_from_an_empty_environment() -> None:
    """`Settings` and `load_configuration` agree."""
    loaded = load_configuration({"HOME": "/h"}).settings
    assert loaded == Settings(data_dir=loaded.data_dir)
