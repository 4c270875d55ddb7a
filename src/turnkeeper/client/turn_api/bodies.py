"""Paths and bodies of requests (contract 2). Nothing that was not given is sent, so that the server's defaults hold."""

import hashlib
import secrets
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from turnkeeper.client.settings import SettingRefused
from turnkeeper.client.turn_api.retries import Call, Upload

KEY_BYTES: Final = 16


def path_of(*parts: str) -> str:
    """`/v1/` and the parts; what an id contains cannot lead to another path. Raises `SettingRefused`."""
    if not all(parts) or {".", ".."} & set(parts):
        raise SettingRefused("a part of the path is empty or no id")
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def making(path: str, body: Mapping[str, Any] | None, key: str | None, *, upload: Upload | None = None) -> Call:
    """A request that makes something, at most once however often it is sent: under the key, or one of its own."""
    unique = secrets.token_hex(KEY_BYTES) if key is None else key
    return Call("POST", path, body, upload=upload, idempotency_key=unique, repeatable=True)


def given(extra: Mapping[str, Any] | None = None, **members: Any) -> dict[str, Any]:
    """The members that are not None, and `extra` beside them."""
    return {name: value for name, value in members.items() if value is not None} | dict(extra or {})


def turn_body(
    input_: str | Any, *, start_by: datetime | None, extra: Mapping[str, Any] | None, **members: Any
) -> dict[str, Any]:
    """The body of a turn."""
    shown = None if start_by is None else time_text(start_by, "start_by")
    return given(extra, input=input_, start_by=shown, **members)


def upload_of(
    content: bytes | Path, *, name: str | None, media_type: str, purpose: str | None, hashed: bool = True
) -> Upload:
    """The form for bytes, or for a file of this machine; `hashed`: with the hash they have now. Raises `OSError`."""
    data = content.read_bytes() if isinstance(content, Path) else content
    shown = name or (content.name if isinstance(content, Path) else "file")
    sha256 = hashlib.sha256(data).hexdigest() if hashed else None
    return Upload(shown, data, media_type, given(purpose=purpose, sha256=sha256))


def time_text(at: datetime, name: str) -> str:
    """The time as the API takes it. Raises `SettingRefused` for one without its offset."""
    if at.tzinfo is None:
        raise SettingRefused(f"{name} has no offset from UTC")
    return at.isoformat()


def narrowed(
    *,
    order: str,
    created_after: datetime | None = None,
    created_before: datetime | None = None,
    metadata: Mapping[str, str] | None = None,
    **filters: str | None,
) -> dict[str, str]:
    """The query of a list: what narrows it, and its order."""
    times = {"created_after": created_after, "created_before": created_before}
    texts = {name: time_text(at, name) for name, at in times.items() if at is not None}
    members = {f"metadata[{name}]": text for name, text in (metadata or {}).items()}
    return given(order=order) | texts | members | {name: value for name, value in filters.items() if value is not None}
