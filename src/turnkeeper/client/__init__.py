"""The Observed Agent library: any Python agent under any ACS 0.1.0 Guardian (ACS 4 to 6.5, 7, 9, 10).

This package is the public door of the client. It needs `turnkeeper.acs` and httpx and nothing of the server. What a
decision means is decided in pure modules (`posture`, `verdicts`, `recovery`); the rest carries it out.
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
from turnkeeper.client.turns import GuardedTurn, ToolCall
from turnkeeper.client.verdicts import Abilities

__all__ = [
    "Abilities",
    "Allowed",
    "AuditFailed",
    "AuditRecord",
    "AuditSink",
    "ClientError",
    "ClientSettings",
    "Denied",
    "Digest",
    "Failure",
    "FailureKind",
    "FileTerms",
    "GuardedSession",
    "GuardedTurn",
    "GuardianClient",
    "HeadBreak",
    "HttpTransport",
    "Identity",
    "InProcessTransport",
    "JsonLinesAudit",
    "MemoryTerms",
    "Outcome",
    "Pending",
    "PostureRules",
    "Retrieved",
    "SavedTerms",
    "ScopeOver",
    "SessionDenied",
    "SessionNotStarted",
    "SessionRefused",
    "SettingRefused",
    "Stance",
    "StdioTransport",
    "Step",
    "StepBlocked",
    "StepDenied",
    "StepInvalid",
    "StepPending",
    "SyncGuardianClient",
    "SyncSession",
    "SyncToolCall",
    "SyncTurn",
    "SystemTime",
    "TermsStore",
    "Time",
    "Timing",
    "ToolCall",
    "Transport",
    "TransportFailed",
    "TurnDenied",
    "log_audit",
]
