"""The child process that runs llama.cpp's server: `python -I -m turnkeeper.sandbox.local_server`.

Reads one line of JSON from standard input (so that the key stands in no argument list), writes one line of JSON with
the address or the error, and lives until its standard input ends, which it does when the parent dies.
"""

import importlib
import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import Any

_ENGINE = "xllamacpp"


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What the child is told. `port` 0 is a free one."""

    weights: str
    model_name: str
    api_key: str
    port: int
    context_tokens: int

    def render(self) -> bytes:
        """One line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"


def main() -> None:
    """Serves until standard input ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        options = ServerOptions(**json.loads(sys.stdin.readline()))
        # An extra: whoever reads `ServerOptions` need not have it.
        engine: Any = importlib.import_module(_ENGINE)
        server: Any = engine.Server(_parameters(engine, options))
        answers.write(json.dumps({"address": str(server.listening_address)}) + "\n")
    except (ImportError, RuntimeError, ValueError, TypeError, OSError) as error:
        answers.write(json.dumps({"error": str(error)[:500]}) + "\n")
        return
    sys.stdin.read()
    # The server's own shutdown waits for a generation to end; nobody is left to read it.
    os._exit(0)


def _parameters(engine: Any, options: ServerOptions) -> Any:
    parameters: Any = engine.CommonParams()
    parameters.model.path = options.weights
    parameters.model_alias = {options.model_name}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = options.port
    parameters.api_keys = [options.api_key]
    parameters.n_ctx = options.context_tokens
    parameters.n_parallel = 1
    # llama.cpp's threads wait for each other by spinning: one that loses its core to anybody else holds up all, and
    # a call takes ten times as long. So one core is left to the rest of the machine.
    threads = max(1, (os.cpu_count() or 1) - 1)
    parameters.cpuparams.n_threads = threads
    parameters.cpuparams_batch.n_threads = threads
    parameters.verbosity = 0
    parameters.ui = False
    parameters.endpoint_slots = False
    return parameters


if __name__ == "__main__":
    main()
