"""Secrets over the API (contract 2.13): kept, never shown, one project's alone."""

from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from tests.integration.api_door import AGENT, Api, Json, serve

from turnkeeper.sealing import Sealer
from turnkeeper.turns.model import SecretRef

VALUE = "sk-live-0123456789abcdef"
SECRET: Json = {"name": "github", "value": VALUE, "hosts": ["api.github.test", "*.git.test:8443"]}


def test_a_secret_is_kept_listed_and_deleted_and_its_value_is_in_no_answer(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        answer = await api.client.post("/v1/secrets", json=SECRET)
        made = answer.json()
        assert (answer.status_code, answer.headers["Location"]) == (201, f"/v1/secrets/{made['id']}")
        assert (made["name"], made["hosts"]) == ("github", SECRET["hosts"])
        listed = await api.client.get("/v1/secrets")
        assert listed.json()["data"] == [made] == [await api.seen(f"/v1/secrets/{made['id']}")]
        assert VALUE not in answer.text + listed.text
        again = await api.refused("POST", "/v1/secrets", json=SECRET)
        assert (again["status"], again["code"]) == (409, "secret_exists")
        assert (await api.client.delete(f"/v1/secrets/{made['id']}")).json()["deleted"] is True
        assert (await api.seen("/v1/secrets"))["data"] == []
        assert (await api.refused("GET", f"/v1/secrets/{made['id']}"))["status"] == 404

    serve(tmp_path, work)


def test_the_database_has_neither_the_value_nor_a_hash_of_it(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        await api.made("/v1/secrets", SECRET, Idempotency_Key="one")
        other = {**SECRET, "value": VALUE[::-1]}
        problem = await api.refused("POST", "/v1/secrets", json=other, headers={"Idempotency-Key": "one"})
        assert problem["code"] == "idempotency_key_reused"
        assert (
            await api.client.post("/v1/secrets", json=SECRET, headers={"Idempotency-Key": "one"})
        ).status_code == 200

    serve(tmp_path, work)
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("turnkeeper.db*"))
    assert b"api.github.test" in stored
    assert VALUE.encode() not in stored


def test_a_value_opens_for_its_own_project_and_hosts_and_this_key_alone(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        await api.made("/v1/secrets", SECRET)
        vault, project_id = api.deps.secrets, api.key.project_id
        opened = await vault.opened(project_id, {"github", "other"})
        assert {name: (one.value, one.hosts) for name, one in opened.items()} == {
            "github": (VALUE, ("api.github.test", "*.git.test:8443"))
        }
        assert VALUE not in repr(opened)
        assert await vault.opened("prj_other", {"github"}) == {}
        assert await api.store.secrets(Sealer(b"6f" * 32)).opened(project_id, {"github"}) == {}
        engine = create_engine(f"sqlite:///{tmp_path}/turnkeeper.db")
        with engine.begin() as connection:
            connection.execute(text("UPDATE secrets SET hosts_json = '[\"evil.test\"]'"))
        engine.dispose()
        assert await vault.opened(project_id, {"github"}) == {}

    serve(tmp_path, work)


def test_a_session_names_secrets_that_there_are(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        await api.made("/v1/secrets", SECRET)
        agent = await api.made("/v1/agents", AGENT)
        wanted = [{"name": "GITHUB_TOKEN", "ref": "github"}]
        session = await api.made("/v1/sessions", {"agent_id": agent["id"], "secrets": wanted})
        assert session["secrets"] == wanted
        assert (await api.store.session(session["id"])).secrets == (SecretRef("GITHUB_TOKEN", "github"),)
        missing = {"agent_id": agent["id"], "secrets": [{"name": "A", "ref": "nothing"}]}
        assert (await api.refused("POST", "/v1/sessions", json=missing))["param"] == "/secrets/0/ref"

    serve(tmp_path, work)


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"value": "short"}, "/value"),
        ({"value": "with space inside"}, "/value"),
        ({"value": "line\r\nX-Evil: 1"}, "/value"),
        ({"value": None}, "/value"),
        ({"hosts": []}, "/hosts"),
        ({"hosts": ["*"]}, "/hosts"),
        ({"hosts": ["10.0.0.0/8"]}, "/hosts"),
        ({"name": "a b"}, "/name"),
        ({"more": 1}, "/more"),
    ],
)
def test_what_cannot_be_kept_is_refused_without_repeating_it(tmp_path: Path, change: Json, at: str) -> None:
    async def work(api: Api) -> None:
        problem = await api.refused("POST", "/v1/secrets", json={**SECRET, **change})
        assert (problem["status"], problem["param"]) == (400, at)
        assert VALUE not in str(problem)

    serve(tmp_path, work)


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "HTTPS_PROXY", "lower", "SSL_CERT_FILE", "1A"])
def test_a_secret_does_not_take_the_place_of_the_boxs_own_variables(tmp_path: Path, name: str) -> None:
    async def work(api: Api) -> None:
        await api.made("/v1/secrets", SECRET)
        agent = await api.made("/v1/agents", AGENT)
        body = {"agent_id": agent["id"], "secrets": [{"name": name, "ref": "github"}]}
        assert (await api.refused("POST", "/v1/sessions", json=body))["param"] == "/secrets/0/name"

    serve(tmp_path, work)
