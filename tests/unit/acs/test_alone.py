"""The package stands alone: others vendor it."""

import subprocess
import sys

import turnkeeper.acs

_FORBIDDEN = ("fastapi", "starlette", "uvicorn", "sqlalchemy", "httpx", "pydantic", "pydantic_ai", "typer")


def test_importing_the_package_loads_neither_server_nor_store() -> None:
    code = f"import sys, turnkeeper.acs; print([name for name in {_FORBIDDEN} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_the_public_door_names_everything_it_offers() -> None:
    exported = {name for name in vars(turnkeeper.acs) if name[0] != "_"}
    modules = {name.rpartition(".")[2] for name in sys.modules if name.startswith("turnkeeper.acs.")}
    assert exported - modules == set(turnkeeper.acs.__all__)
