"""The `sandbox` of an agent that is created (contract 2.1): what its tool box may use, within what operators lend,
or whose runners it is run by.
"""

from collections.abc import Collection
from typing import Final

from turnkeeper.acs.strictjson import JsonObject
from turnkeeper.api.fields import Fields
from turnkeeper.api.networks import network_document
from turnkeeper.api.unbuilt import SANDBOX_FIELDS
from turnkeeper.turns.model import REMOTE, BoxSize, Network

LEAST_CPU_MILLIS: Final = 50
LEAST_MEMORY_MIB: Final = 64
LEAST_DISK_MIB: Final = 1
MAX_POOL_CHARACTERS: Final = 64


def parse_sandbox(fields: Fields | None, largest: BoxSize) -> BoxSize:
    """What the agent asks for; what is wrong with it, or more than `largest`, is noted."""
    if fields is None:
        return BoxSize()
    fields.close({"cpu", "memory_mib", "disk_mib", "network", "kind", "pool"}, SANDBOX_FIELDS)
    return BoxSize(
        cpu_millis=_cpu_millis(fields, largest.cpu_millis),
        memory_mib=_mebibytes(fields, "memory_mib", LEAST_MEMORY_MIB, largest.memory_mib),
        disk_mib=_mebibytes(fields, "disk_mib", LEAST_DISK_MIB, largest.disk_mib),
    )


def parse_pool(agent: Fields, fields: Fields | None, pools: Collection[str]) -> str | None:
    """Whose runners run the agent's turns; None where this server's boxes do. What is wrong with it is noted."""
    kind = None if fields is None else fields.choice("kind", (REMOTE, ""), "")
    if fields is None or kind != REMOTE:
        if fields is not None and fields.has("pool"):
            fields.note("pool", "invalid_field", f"{fields.pointer('pool')} goes with the kind {REMOTE} alone")
        return None
    pool = fields.required_text("pool", max_characters=MAX_POOL_CHARACTERS)
    if pool and pool not in pools:
        served = ", ".join(sorted(pools)) or "none"
        fields.note("pool", "invalid_field", f"{fields.pointer('pool')} is no pool of this server; served: {served}")
    _check_elsewhere(agent, fields)
    return pool


def _check_elsewhere(agent: Fields, fields: Fields) -> None:
    """What a runner elsewhere has of its own, nobody can be promised."""
    for name in ("cpu", "memory_mib", "disk_mib"):
        if fields.has(name):
            fields.note(name, "invalid_field", f"{fields.pointer(name)} is for boxes of this server")
    network = fields.object("network")
    if network is not None and network.value("allow"):
        fields.note("network", "invalid_field", f"{fields.pointer('network')} is for boxes of this server")
    for name in ("tools", "mcp_servers"):
        if agent.value(name):
            agent.note(name, "invalid_field", f"/{name} is not empty, and a runner elsewhere brings its own tools")
    harness = agent.object("harness")
    if harness is not None and harness.value("kind") not in {None, "builtin"}:
        agent.note("harness", "invalid_field", "/harness is the runner's own choice where it runs elsewhere")


def sandbox_document(size: BoxSize, network: Network, pool: str | None) -> JsonObject:
    """An agent's `sandbox` as it is shown, which is also how it may be sent."""
    cpu = None if size.cpu_millis is None else size.cpu_millis / 1000
    return {
        "kind": None if pool is None else REMOTE,
        "pool": pool,
        "cpu": cpu,
        "memory_mib": size.memory_mib,
        "disk_mib": size.disk_mib,
        "network": network_document(network),
    }


def _cpu_millis(fields: Fields, largest: int | None) -> int | None:
    value = fields.value("cpu")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        fields.note("cpu", "invalid_field", f"{fields.pointer('cpu')} is not a number of processors")
        return None
    if not value >= LEAST_CPU_MILLIS / 1000 or (largest is not None and value > largest / 1000):
        most = "" if largest is None else f" and at most {largest / 1000:g}"
        fields.note(
            "cpu", "invalid_field", f"{fields.pointer('cpu')} is not at least {LEAST_CPU_MILLIS / 1000:g}{most}"
        )
        return None
    return round(value * 1000)


def _mebibytes(fields: Fields, name: str, least: int, largest: int | None) -> int | None:
    if largest is None:
        return fields.integer(name, low=least)
    return fields.integer(name, low=min(least, largest), high=largest)
