"""Who asks (ACS 10.1): an agent, its secret and the label both sides know it by."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from turnkeeper.acs import Keyring, ObservedSession, read_secret

DEFAULT_KEY_ID: Final = "default"


@dataclass(frozen=True, slots=True)
class Identity:
    """An agent as its Guardian knows it. Its repr shows no secret."""

    agent_id: str
    keyring: Keyring = field(repr=False)
    key_id: str = DEFAULT_KEY_ID
    tenant_id: str | None = None

    @classmethod
    def from_secret(cls, agent_id: str, secret: bytes, *, key_id: str = DEFAULT_KEY_ID) -> "Identity":
        """An agent with the bytes of its secret, 32 at least."""
        return cls(agent_id, Keyring({key_id: secret}), key_id)

    @classmethod
    def from_file(cls, agent_id: str, path: str | Path, *, key_id: str = DEFAULT_KEY_ID) -> "Identity":
        """An agent with a key file: its bytes without one trailing newline. Raises `OSError`, `SecretTooShort`."""
        return cls.from_secret(agent_id, read_secret(Path(path).read_bytes()), key_id=key_id)

    def observed(self, session_id: str) -> ObservedSession:
        """The signing half of one session. Raises `KeyUnknown`."""
        return ObservedSession.open(
            agent_id=self.agent_id,
            session_id=session_id,
            keyring=self.keyring,
            key_id=self.key_id,
            tenant_id=self.tenant_id,
        )
