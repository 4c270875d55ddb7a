"""Files and artifacts over the API: what a form may be, whose things are, and how bytes are handed out."""

import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import ClientDisconnect
from tests.integration.api_door import Api, Json, serve

from turnkeeper.api.auth import generate_secret
from turnkeeper.api.deps import ApiSettings
from turnkeeper.events.files import artifact_created
from turnkeeper.turns.access import NewKey

HELLO = b"hello"
SHA256 = hashlib.sha256(HELLO).hexdigest()
ELSEWHERE = "prj_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"
FORM = {"Content-Type": "multipart/form-data; boundary=b"}


async def uploaded(api: Api, data: bytes = HELLO, name: str = "a.txt", **fields: str) -> Json:
    answer = await api.client.post("/v1/files", files={"file": (name, data, "text/plain")}, data=fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


def form(*parts: str, end: str = "--b--\r\n") -> bytes:
    return "".join(f"--b\r\n{part}\r\n" for part in parts).encode() + end.encode()


def part(disposition: str, value: str = "x", *headers: str) -> str:
    return "\r\n".join([f"Content-Disposition: form-data; {disposition}", *headers, "", value])


FILE = part('name="file"; filename="a.txt"', "hello")


def test_a_file_comes_back_as_it_was_sent(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        file = await uploaded(api, purpose="turn_input", sha256=SHA256.upper())
        assert (file["name"], file["bytes"], file["sha256"], file["status"]) == ("a.txt", 5, SHA256, "ready")
        assert await api.seen(f"/v1/files/{file['id']}") == file
        assert (await api.seen("/v1/files"))["data"] == [file]
        content = await api.client.get(f"/v1/files/{file['id']}/content")
        assert content.content == HELLO
        assert content.headers["X-Content-Type-Options"] == "nosniff"
        assert content.headers["Content-Security-Policy"].startswith("sandbox")
        assert content.headers["Content-Disposition"].startswith("attachment;")

    serve(tmp_path, work)


def test_a_deleted_file_is_gone_and_its_bytes_with_it(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        file = await uploaded(api)
        gone = await api.client.delete(f"/v1/files/{file['id']}")
        assert gone.json() == {"id": file["id"], "object": "file", "deleted": True}
        for path in ("", "/content"):
            assert (await api.refused("GET", f"/v1/files/{file['id']}{path}"))["code"] == "not_found"
        assert (await api.refused("DELETE", f"/v1/files/{file['id']}"))["code"] == "not_found"
        assert (await api.seen("/v1/files"))["data"] == []

    serve(tmp_path, work)


def test_a_file_that_is_not_the_one_that_was_meant_is_refused(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        body = form(FILE, part('name="sha256"', "0" * 64))
        refused = await api.refused("POST", "/v1/files", content=body, headers=FORM)
        assert (refused["status"], refused["code"]) == (422, "sha256_mismatch")
        assert (await api.seen("/v1/files"))["data"] == []

    serve(tmp_path, work)


def test_a_file_over_the_limit_is_refused_and_one_at_the_limit_is_not(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        await uploaded(api, b"x" * 1_000)
        big = await api.refused("POST", "/v1/files", files={"file": ("a", b"x" * 1_001)})
        huge = await api.refused("POST", "/v1/files", files={"file": ("a", b"x" * 2_000_000)})
        assert [(found["status"], found["code"]) for found in (big, huge)] == [(413, "body_too_large")] * 2

    serve(tmp_path, work, ApiSettings(file_bytes=1_000, poll_ms=600_000))


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"", "invalid_field", None),
        (b"no form at all", "invalid_field", None),
        (form(FILE, end=""), "invalid_field", None),
        (form(FILE, end="--b\r\nContent-Dispo"), "invalid_field", None),
        (form(part('name="purpose"', "turn_input")), "invalid_field", "file"),
        (form(part('name="file"', "hello")), "invalid_field", "file"),
        (form(FILE, FILE), "invalid_field", "file"),
        (form(FILE, part('name="other"')), "unknown_field", "other"),
        (form(FILE, part('name="purpose"', "else")), "invalid_field", "purpose"),
        (form(FILE, part('name="sha256"', "abc")), "invalid_field", "sha256"),
        (form(FILE, part('name="purpose"', "x" * 2_000)), "invalid_field", "purpose"),
        (form(FILE, "Content-Disposition: attachment\r\n\r\nx"), "invalid_field", ""),
        (form(FILE, "X-Other: 1\r\n\r\nx"), "invalid_field", ""),
        (form(part('name="file"; filename="a"', "x", "Content-Type: a b")), "invalid_field", "file"),
        (form(part('name="file"; filename="a"', "x", "Content-Transfer-Encoding: base64")), "invalid_field", "file"),
        (form(part('name="file"; filename="a"', "x", *(f"X-{n}: 1" for n in range(20)))), "invalid_field", None),
        (form(part('name="file"; filename="a"', "x", "X: " + "y" * 9_000)), "invalid_field", None),
        (b'--b\r\nContent-Disposition: form-data; name="\xff"\r\n\r\nx\r\n--b--\r\n', "invalid_field", None),
    ],
)
def test_a_form_that_is_none_is_refused_by_what_is_wrong(
    tmp_path: Path, body: bytes, code: str, param: str | None
) -> None:
    async def work(api: Api) -> None:
        refused = await api.refused("POST", "/v1/files", content=body, headers=FORM)
        assert (refused["code"], refused["param"]) == (code, param)
        assert (await api.seen("/v1/files"))["data"] == []

    serve(tmp_path, work)


@pytest.mark.parametrize(
    ("content_type", "code"),
    [
        ("application/json", "media_type_unsupported"),
        ("multipart/mixed; boundary=b", "media_type_unsupported"),
        ("multipart/form-data", "invalid_field"),
        ("multipart/form-data; boundary=" + "b" * 71, "invalid_field"),
    ],
)
def test_a_body_that_is_no_form_is_refused(tmp_path: Path, content_type: str, code: str) -> None:
    async def work(api: Api) -> None:
        refused = await api.refused("POST", "/v1/files", content=form(FILE), headers={"Content-Type": content_type})
        assert refused["code"] == code

    serve(tmp_path, work)


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\\\temp\\\\a.txt", "a.txt"),
        ("a\tb.txt", "ab.txt"),
        ("Zürich.csv", "Zürich.csv"),
        ("", "file"),
        ("x" * 400, "x" * 255),
    ],
)
def test_a_name_is_shown_and_never_a_path(tmp_path: Path, sent: str, name: str) -> None:
    async def work(api: Api) -> None:
        body = form(part(f'name="file"; filename="{sent}"', "hello"))
        made = (await api.client.post("/v1/files", content=body, headers=FORM)).json()
        assert made["name"] == name
        assert sorted(path.name for path in (tmp_path / "contents").rglob("*") if path.is_file()) == [SHA256, "lock"]
        content = await api.client.get(f"/v1/files/{made['id']}/content")
        assert content.headers["Content-Disposition"].isascii()

    serve(tmp_path, work)


def test_a_sender_that_goes_away_leaves_nothing_to_see(tmp_path: Path) -> None:
    async def cut() -> AsyncIterator[bytes]:
        yield form(FILE, end="")
        raise ClientDisconnect

    async def work(api: Api) -> None:
        refused = await api.refused("POST", "/v1/files", content=cut(), headers=FORM)
        assert refused["code"] == "request_timeout"
        assert (await api.seen("/v1/files"))["data"] == []
        assert not [path for path in (tmp_path / "contents").rglob("*") if len(path.name) == 64]

    serve(tmp_path, work)


def test_the_same_key_and_file_are_the_same_file(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        key = {"Idempotency-Key": "k"}
        sent: Any = {"file": ("a.txt", HELLO)}
        first = await api.client.post("/v1/files", files=sent, headers=key)
        again = await api.client.post("/v1/files", files=sent, headers=key)
        assert (first.status_code, again.status_code) == (201, 200)
        assert again.json() == first.json()
        assert again.headers["Idempotent-Replayed"] == "true"
        other = await api.refused("POST", "/v1/files", files={"file": ("a.txt", b"other")}, headers=key)
        assert other["code"] == "idempotency_key_reused"

    serve(tmp_path, work)


def test_another_projects_files_and_artifacts_are_not_there(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        file, artifact_id = await uploaded(api), await an_artifact(api)
        made = generate_secret()
        await api.deps.access.make_key(NewKey("theirs", made.sha256, ELSEWHERE), actor=None)
        theirs = {"Authorization": f"Bearer {made.secret}"}
        for path in (f"/v1/files/{file['id']}", f"/v1/artifacts/{artifact_id}"):
            for method, end in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
                assert (await api.refused(method, path + end, headers=theirs))["code"] == "not_found"
        assert (await api.client.get("/v1/files", headers=theirs)).json()["data"] == []

    serve(tmp_path, work)


async def an_artifact(api: Api) -> str:
    """The id of something that a turn, which has ended, left."""
    session_id = await api.session()
    await api.turn(session_id)
    claim, artifact_id = await api.started(), api.deps.ids.new("art")
    event = artifact_created(
        turn_id=claim.turn.id,
        attempt=1,
        artifact_id=artifact_id,
        name="a.txt",
        path=None,
        media_type="text/plain; charset=utf-8",
        size_bytes=5,
        sha256=SHA256,
        kind="tool_output",
        content="hello",
    )
    await api.store.record(claim.fence, [event])
    await api.completed(claim)
    return artifact_id


def test_an_artifact_is_listed_shown_handed_out_and_deleted(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        artifact_id = await an_artifact(api)
        artifact = await api.seen(f"/v1/artifacts/{artifact_id}")
        assert (artifact["kind"], artifact["path"], artifact["bytes"]) == ("tool_output", None, 5)
        assert artifact["expires_at"] > artifact["created_at"]
        assert (await api.seen(f"/v1/turns/{artifact['turn_id']}/artifacts"))["data"] == [artifact]
        content = await api.client.get(f"/v1/artifacts/{artifact_id}/content")
        assert (content.content, content.headers["X-Content-Type-Options"]) == (HELLO, "nosniff")
        assert (await api.client.delete(f"/v1/artifacts/{artifact_id}")).status_code == 200
        assert (await api.seen(f"/v1/turns/{artifact['turn_id']}/artifacts"))["data"] == []
        assert (await api.refused("GET", f"/v1/artifacts/{artifact_id}/content"))["code"] == "not_found"

    serve(tmp_path, work)


def test_an_artifact_goes_with_its_session(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        artifact_id = await an_artifact(api)
        session_id = (await api.seen(f"/v1/artifacts/{artifact_id}"))["session_id"]
        assert (await api.client.delete(f"/v1/sessions/{session_id}")).status_code == 202
        assert (await api.refused("GET", f"/v1/artifacts/{artifact_id}"))["code"] == "session_deleted"

    serve(tmp_path, work)


def test_bytes_that_are_not_there_are_a_refusal_and_no_half_answer(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        file = await uploaded(api)
        (tmp_path / "contents" / SHA256[:2] / SHA256).unlink()
        assert (await api.refused("GET", f"/v1/files/{file['id']}/content"))["code"] == "content_missing"

    serve(tmp_path, work)


def test_a_turn_takes_files_that_are_there_and_points_at_those_that_are_not(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        file, session_id = await uploaded(api), await api.session()
        parts = [{"type": "file", "file_id": file["id"]}, {"type": "text", "text": "Sum it."}]
        turn = await api.turn(session_id, input=parts)
        assert turn["input"] == parts
        missing = [*parts[1:], {"type": "file", "file_id": "fil_" + "0" * 26}]
        for path, body in (
            (f"/v1/sessions/{session_id}/turns", {"input": missing}),
            ("/v1/turns", {"input": missing, "agent_id": turn["agent_id"]}),
        ):
            refused = await api.refused("POST", path, json=body)
            assert (refused["status"], refused["code"], refused["param"]) == (422, "file_not_ready", "/input/1/file_id")

    serve(tmp_path, work)


def test_a_turn_of_a_file_alone_is_a_turn_and_its_replay_outlives_the_file(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        file, session_id = await uploaded(api), await api.session()
        body, key = {"input": [{"type": "file", "file_id": file["id"]}]}, {"Idempotency-Key": "k"}
        path = f"/v1/sessions/{session_id}/turns"
        turn = await api.client.post(path, json=body, headers=key)
        assert turn.status_code == 202
        await api.client.delete(f"/v1/files/{file['id']}")
        again = await api.client.post(path, json=body, headers=key)
        assert (again.status_code, again.json()["id"]) == (200, turn.json()["id"])

    serve(tmp_path, work)


def test_a_retry_needs_the_files_of_the_turn_it_does_again(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        file, session_id = await uploaded(api), await api.session()
        await api.turn(session_id, input=[{"type": "file", "file_id": file["id"]}])
        claim = await api.started()
        await api.completed(claim)
        again = await api.made(f"/v1/turns/{claim.turn.id}/retry")
        assert [found.file_id for found in (await api.store.turn(again["id"])).input_files] == [file["id"]]
        await api.client.delete(f"/v1/files/{file['id']}")
        refused = await api.refused("POST", f"/v1/turns/{claim.turn.id}/retry")
        assert refused["code"] == "file_not_ready"

    serve(tmp_path, work)


def test_a_key_without_the_scope_can_neither_read_nor_write_files(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        made = generate_secret()
        new = NewKey("reader", made.sha256, api.key.project_id, scopes=("files:read",))
        await api.deps.access.make_key(new, actor=None)
        reader = {"Authorization": f"Bearer {made.secret}"}
        assert (await api.client.get("/v1/files", headers=reader)).status_code == 200
        refused = await api.refused("POST", "/v1/files", files={"file": ("a", b"x")}, headers=reader)
        assert refused["code"] == "scope_missing"
        nothing = generate_secret()
        await api.deps.access.make_key(replace(new, secret_sha256=nothing.sha256, scopes=("turns:read",)), actor=None)
        bare = {"Authorization": f"Bearer {nothing.secret}"}
        assert (await api.refused("GET", "/v1/files", headers=bare))["code"] == "scope_missing"

    serve(tmp_path, work)
