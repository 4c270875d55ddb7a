"""The `sandbox` of an agent that is created (contract 2.1): what its tool box may use, within what operators lend."""

from typing import Final

from turnkeeper.acs.strictjson import JsonObject
from turnkeeper.api.fields import Fields
from turnkeeper.api.networks import network_document
from turnkeeper.api.unbuilt import SANDBOX_FIELDS
from turnkeeper.turns.model import BoxSize, Network

LEAST_CPU_MILLIS: Final = 50
LEAST_MEMORY_MIB: Final = 64
LEAST_DISK_MIB: Final = 1


def parse_sandbox(fields: Fields | None, largest: BoxSize) -> BoxSize:
    """What the agent asks for; what is wrong with it, or more than `largest`, is noted."""
    if fields is None:
        return BoxSize()
    fields.close({"cpu", "memory_mib", "disk_mib", "network"}, SANDBOX_FIELDS)
    return BoxSize(
        cpu_millis=_cpu_millis(fields, largest.cpu_millis),
        memory_mib=_mebibytes(fields, "memory_mib", LEAST_MEMORY_MIB, largest.memory_mib),
        disk_mib=_mebibytes(fields, "disk_mib", LEAST_DISK_MIB, largest.disk_mib),
    )


def sandbox_document(size: BoxSize, network: Network) -> JsonObject:
    """An agent's `sandbox` as it is shown, which is also how it may be sent."""
    cpu = None if size.cpu_millis is None else size.cpu_millis / 1000
    return {
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
