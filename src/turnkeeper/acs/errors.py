"""The error registry (ACS 17, ledger section 15) and the one translation from an error to its JSON-RPC document.

Answers for codes and for the shape of `error.data`. Must never put internal detail on the wire: what is not in
`message` and `data` stays here.
"""

from collections.abc import Mapping
from enum import IntEnum

from turnkeeper.acs.envelope import RpcId, build_error
from turnkeeper.errors import RemoteProtocolError, TurnkeeperError


class AcsErrorCode(IntEnum):
    """Every code a Guardian may answer with. Nothing else between -32000 and -32099 exists."""

    PARSE_ERROR = -32700
    INVALID_REQUEST = -32600
    METHOD_NOT_FOUND = -32601
    INVALID_PARAMS = -32602
    INTERNAL_ERROR = -32603
    SESSION_REFUSED = -32000
    UNSUPPORTED_VERSION = -32001
    PROVENANCE_REQUIRED = -32002
    CAPABILITY_NOT_NEGOTIATED = -32003
    SIGNATURE_INVALID = -32004
    REPLAY_DETECTED = -32005
    TIMESTAMP_OUT_OF_WINDOW = -32006
    CHAIN_MISMATCH = -32007

    @property
    def title(self) -> str:
        """The name as `error.message` gives it: lower case, with spaces."""
        return self.name.lower().replace("_", " ")


class AcsError(TurnkeeperError):
    """A request that is answered with an error instead of a decision.

    `rpc_code` is the registry's code, `reason` the stable word in `data.reason`, `data` what the code adds to it.
    """

    code = "acs_error"

    def __init__(self, code: AcsErrorCode, reason: str, message: str, data: Mapping[str, object] | None = None) -> None:
        super().__init__(message, code=reason, detail=data)
        self.rpc_code = code
        self.reason = reason
        self.data: dict[str, object] = dict(data or {})

    def to_document(self, rpc_id: RpcId) -> dict[str, object]:
        """The unsigned JSON-RPC answer: `data` holds `reason`, `message` and the code's own members."""
        data = {"reason": self.reason, "message": self.message} | self.data
        return build_error(rpc_id, self.rpc_code, self.rpc_code.title, data)


class AnswerRejected(RemoteProtocolError):
    """A Guardian's answer that cannot be trusted or understood: a decision failure (ACS 6.4).

    `error_code` is `answer_malformed`, `answer_not_bound`, `answer_unsigned` or `answer_signature_invalid`.
    """

    code = "answer_malformed"
