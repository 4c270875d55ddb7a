"""The model gateway: the one thing a loop box can reach, outside the box, one unix socket per turn.

Lends a turn its agent's own model and nothing else of the provider's account: the completion routes of the provider's
protocols, one model, listed parameters, caps on body, output, time, rate and calls at once, streamed or whole. Adds
the key, meters every call (contract 8). The key never enters a box, in neither direction. What happens to a call is
`gateway_calls`; what may be asked and how an answer is read is `protocols`.
"""

import asyncio
import os
from pathlib import Path
from typing import Final

from turnkeeper.clock import Clock, SystemClock
from turnkeeper.errors import TurnkeeperError
from turnkeeper.sandbox.gateway_calls import GatewayLimits, TurnCalls
from turnkeeper.sandbox.http_door import serve_connection
from turnkeeper.sandbox.metering import (
    BudgetExhausted,
    CallOutcome,
    CallUsage,
    Grant,
    Meter,
    ModelFailure,
    Retry,
)
from turnkeeper.sandbox.provider_gate import ProviderGate
from turnkeeper.sandbox.providers import ModelSpec, Provider, check_params
from turnkeeper.sandbox.upstream import RetryObserver, Upstream

__all__ = [
    "BudgetExhausted",
    "CallOutcome",
    "CallUsage",
    "GatewayHandle",
    "GatewayLimits",
    "Grant",
    "Meter",
    "ModelFailure",
    "ModelGateway",
    "ModelSpec",
    "Retry",
]

SOCKET_NAME: Final = "gateway.sock"
MAX_SOCKET_PATH_BYTES: Final = 107


class SocketPathTooLong(TurnkeeperError):
    """The directory for a turn's socket lies too deep for an AF_UNIX address."""

    code = "socket_path_too_long"


class ModelGateway:
    """Opens a socket per turn. One per process: it holds the connections to the providers."""

    def __init__(self, *, limits: GatewayLimits | None = None, clock: Clock | None = None) -> None:
        self._limits = limits or GatewayLimits()
        self._clock = clock or SystemClock()
        self._upstream = Upstream(self._limits.upstream)
        self._gates: dict[str, ProviderGate] = {}

    async def open(
        self, socket_dir: Path, model: ModelSpec, meter: Meter, *, on_retry: RetryObserver | None = None
    ) -> "GatewayHandle":
        """A turn's socket, `gateway.sock` in `socket_dir`, serving until the handle is closed.

        `on_retry` hears of each repeated attempt. Raises `SocketPathTooLong`, `ModelParamsRefused`.
        """
        check_params(model.params)
        path = socket_dir / SOCKET_NAME
        if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
            raise SocketPathTooLong(f"{path} is over {MAX_SOCKET_PATH_BYTES} bytes", hint="Use a shorter data dir.")
        calls = TurnCalls(
            model=model,
            meter=meter,
            upstream=self._upstream,
            gate=self._gate_of(model.provider),
            on_retry=on_retry,
            limits=self._limits,
            clock=self._clock,
        )
        handle = GatewayHandle(path, calls)
        await handle.listen(self._limits)
        return handle

    async def close(self) -> None:
        """Closes the connections to the providers. Handles are closed by whoever opened them."""
        await self._upstream.close()

    def _gate_of(self, provider: Provider) -> ProviderGate:
        return self._gates.setdefault(provider.name, ProviderGate(provider.limits, self._clock))


class GatewayHandle:
    """A turn's open socket, and what the worker wants to know of it when the turn ends."""

    def __init__(self, path: Path, calls: TurnCalls) -> None:
        self.path = path
        self._calls = calls
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def budget_reached(self) -> bool:
        """Whether a call was refused because the ledger had nothing left for it."""
        return self._calls.budget_reached

    @property
    def last_error(self) -> ModelFailure | None:
        """Why the most recent model call failed; `None` when it succeeded, or none was made."""
        return self._calls.last_error

    async def listen(self, limits: GatewayLimits) -> None:
        """Binds the socket. For `ModelGateway.open`."""

        def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(self._connections) >= limits.max_connections:
                writer.transport.abort()
                return
            task = asyncio.ensure_future(
                serve_connection(
                    reader,
                    writer,
                    self._calls.answer,
                    max_body_bytes=limits.max_request_bytes,
                    request_timeout_ms=limits.request_timeout_ms,
                )
            )
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

        self._server = await asyncio.start_unix_server(connected, self.path)
        # The box's process has another uid. Who can reach the socket is decided by its directory, which only
        # this one box has.
        self.path.chmod(0o666)

    async def close(self) -> None:
        """Aborts a running call, settles it, closes the socket. Safe to call again."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        for task in tuple(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        self.path.unlink(missing_ok=True)
