"""Two libraries: the Observed Agent and the turn API.

The first puts any Python agent under any ACS 0.1.0 Guardian (ACS 4 to 6.5, 7, 9, 10). The second (`Turnkeeper`,
`AsyncTurnkeeper`) posts turns to a server and follows them (contract 2 and 9 to 13). This package is the public door of
both. It needs `turnkeeper.acs` and httpx and nothing of the server. What a decision means is decided in pure modules
(`posture`, `verdicts`, `recovery`); the rest carries it out.
"""

from turnkeeper.client.audit import AuditRecord, AuditSink, JsonLinesAudit, log_audit
from turnkeeper.client.blocking import SyncGuardianClient, SyncSession, SyncToolCall, SyncTurn
from turnkeeper.client.errors import (
    AuditFailed,
    ClientError,
    ScopeOver,
    SessionDenied,
    SessionNotStarted,
    SessionRefused,
    StepBlocked,
    StepDenied,
    StepInvalid,
    StepPending,
    TransportFailed,
    TurnDenied,
)
from turnkeeper.client.guardian import GuardianClient
from turnkeeper.client.heads import HeadBreak
from turnkeeper.client.identity import Identity
from turnkeeper.client.outcomes import Allowed, Denied, Outcome, Pending
from turnkeeper.client.posture import Failure, FailureKind, PostureRules, Stance
from turnkeeper.client.sessions import GuardedSession
from turnkeeper.client.settings import ClientSettings, SettingRefused, Timing
from turnkeeper.client.stdio import StdioTransport
from turnkeeper.client.steps import Digest, Retrieved, Step
from turnkeeper.client.terms import FileTerms, MemoryTerms, SavedTerms, TermsStore
from turnkeeper.client.timing import SystemTime, Time
from turnkeeper.client.transports import HttpTransport, InProcessTransport, Transport
from turnkeeper.client.turn_api.documents import AnswerUnreadable, Document
from turnkeeper.client.turn_api.file_views import Artifact, File
from turnkeeper.client.turn_api.following import StreamBroken
from turnkeeper.client.turn_api.handles import AsyncSession, AsyncTurn
from turnkeeper.client.turn_api.handles_blocking import Session, Turn
from turnkeeper.client.turn_api.problems import (
    ApiProblem,
    Conflict,
    Gone,
    KeyRefused,
    NotFound,
    NotPermitted,
    RequestInvalid,
    ServerFailed,
    ServerUnreachable,
    TooMany,
    WaitTimedOut,
)
from turnkeeper.client.turn_api.received import WebhookRejected, verify_webhook
from turnkeeper.client.turn_api.retries import Retries
from turnkeeper.client.turn_api.server import AsyncTurnkeeper
from turnkeeper.client.turn_api.server_blocking import Turnkeeper
from turnkeeper.client.turn_api.spending_views import (
    Budget,
    ModelPrice,
    ModelPrices,
    TurnUsage,
    Usage,
    UsageReport,
)
from turnkeeper.client.turn_api.streams import AsyncEventStream
from turnkeeper.client.turn_api.streams_blocking import EventStream
from turnkeeper.client.turn_api.views import (
    Agent,
    ApiKey,
    Approval,
    ApprovalRule,
    Drain,
    Event,
    Pause,
    QueueState,
    Secret,
    SessionSnapshot,
    Skill,
    StreamToken,
    Submission,
    TextPiece,
    WebhookDelivery,
    WebhookEndpoint,
)
from turnkeeper.client.turn_api.written import Written, WrittenTexts
from turnkeeper.client.turns import GuardedTurn, ToolCall
from turnkeeper.client.verdicts import Abilities

__all__ = [
    "Abilities",
    "Agent",
    "Allowed",
    "AnswerUnreadable",
    "ApiKey",
    "ApiProblem",
    "Approval",
    "ApprovalRule",
    "Artifact",
    "AsyncEventStream",
    "AsyncSession",
    "AsyncTurn",
    "AsyncTurnkeeper",
    "AuditFailed",
    "AuditRecord",
    "AuditSink",
    "Budget",
    "ClientError",
    "ClientSettings",
    "Conflict",
    "Denied",
    "Digest",
    "Document",
    "Drain",
    "Event",
    "EventStream",
    "Failure",
    "FailureKind",
    "File",
    "FileTerms",
    "Gone",
    "GuardedSession",
    "GuardedTurn",
    "GuardianClient",
    "HeadBreak",
    "HttpTransport",
    "Identity",
    "InProcessTransport",
    "JsonLinesAudit",
    "KeyRefused",
    "MemoryTerms",
    "ModelPrice",
    "ModelPrices",
    "NotFound",
    "NotPermitted",
    "Outcome",
    "Pause",
    "Pending",
    "PostureRules",
    "QueueState",
    "RequestInvalid",
    "Retries",
    "Retrieved",
    "SavedTerms",
    "ScopeOver",
    "Secret",
    "ServerFailed",
    "ServerUnreachable",
    "Session",
    "SessionDenied",
    "SessionNotStarted",
    "SessionRefused",
    "SessionSnapshot",
    "SettingRefused",
    "Skill",
    "Stance",
    "StdioTransport",
    "Step",
    "StepBlocked",
    "StepDenied",
    "StepInvalid",
    "StepPending",
    "StreamBroken",
    "StreamToken",
    "Submission",
    "SyncGuardianClient",
    "SyncSession",
    "SyncToolCall",
    "SyncTurn",
    "SystemTime",
    "TermsStore",
    "TextPiece",
    "Time",
    "Timing",
    "TooMany",
    "ToolCall",
    "Transport",
    "TransportFailed",
    "Turn",
    "TurnDenied",
    "TurnUsage",
    "Turnkeeper",
    "Usage",
    "UsageReport",
    "WaitTimedOut",
    "WebhookDelivery",
    "WebhookEndpoint",
    "WebhookRejected",
    "Written",
    "WrittenTexts",
    "log_audit",
    "verify_webhook",
]
