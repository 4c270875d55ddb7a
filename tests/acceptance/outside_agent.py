"""Any agent in the world: a plain ACS client with the key file a user is told to take, over HTTP."""

import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import httpx

from turnkeeper.acs.keys import Keyring, read_secret
from turnkeeper.acs.observed import Answer, ObservedSession, Verdict

METHODS = (
    "steps/sessionStart",
    "steps/agentTrigger",
    "steps/turnStart",
    "steps/userMessage",
    "steps/toolCallRequest",
    "steps/toolCallResult",
    "steps/agentResponse",
    "steps/turnEnd",
    "steps/sessionEnd",
    "agbom/snapshot",
    "system/ping",
)
HELLO: Mapping[str, object] = {
    "acs_versions_supported": ["0.1.0"],
    "methods_implemented": list(METHODS),
    "transports_supported": ["http"],
    "provenance_producer": "none",
    "profiles_supported": ["acs-core", "acs-audit"],
}


class OutsideAgent:
    """One ACS session against `/acs` of a `turnkeeper serve`."""

    def __init__(self, url: str, secret_file: Path, *, session_id: str | None = None, key_id: str = "default") -> None:
        keyring = Keyring({key_id: read_secret(secret_file.read_bytes())})
        self.session_id = session_id or str(uuid.uuid4())
        self._session = ObservedSession.open(
            agent_id="outside", session_id=self.session_id, keyring=keyring, key_id=key_id
        )
        self._url = url

    def signed(
        self, method: str, payload: Mapping[str, object], *, turn_id: str | None = None, request_id: str | None = None
    ) -> tuple[str, bytes]:
        """A request's id and its signed bytes, not sent."""
        request_id = request_id or str(uuid.uuid4())
        body = self._session.request(
            method,
            payload,
            request_id=request_id,
            timestamp=datetime.now(UTC).isoformat(),
            nonce=uuid.uuid4().hex,
            turn_id=turn_id,
        )
        return request_id, body

    def send(self, request_id: str, body: bytes) -> Answer:
        """Posts bytes and judges what comes back."""
        answer = httpx.post(self._url, content=body, headers={"Content-Type": "application/json"}, trust_env=False)
        assert answer.status_code == 200, answer.text
        return self._session.answer(answer.content, request_id=request_id)

    def ask(self, method: str, payload: Mapping[str, object], *, turn_id: str | None = None) -> Answer:
        """One step and its answer."""
        return self.send(*self.signed(method, payload, turn_id=turn_id))

    def decision(self, method: str, payload: Mapping[str, object], *, turn_id: str | None = None) -> str:
        """One step that must get a decision."""
        answer = self.ask(method, payload, turn_id=turn_id)
        assert isinstance(answer, Verdict), answer
        return str(answer.decision)

    def hello(self) -> None:
        """The handshake and sessionStart."""
        answer = self.ask("handshake/hello", HELLO)
        assert not isinstance(answer, Verdict)
        assert self.decision("steps/sessionStart", {}) == "allow"

    def call_tool(self, turn_id: str | None, name: str = "shell") -> str:
        """The decision on one tool call."""
        payload = {"tool": {"name": name}, "arguments": {"command": {"value": "true"}}}
        return self.decision("steps/toolCallRequest", payload, turn_id=turn_id)

    def start_turn(self, turn_id: str) -> str:
        """The decision on a turnStart."""
        payload = {"turn_id": turn_id, "triggered_by": "user_message"}
        return self.decision("steps/turnStart", payload, turn_id=turn_id)

    def end_turn(self, turn_id: str, **members: object) -> Answer:
        """The answer to a turnEnd with outcome `completed`."""
        return self.ask("steps/turnEnd", {"turn_id": turn_id, "outcome": "completed", **members}, turn_id=turn_id)
