"""`metadata[k]=v` on lists of sessions and turns (contract 2.2, 2.3 and 14)."""

from pathlib import Path

from tests.integration.api_door import Api, serve


def test_lists_are_narrowed_by_metadata_and_give_it_back_as_it_was_sent(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session(metadata={"customer": "a b"})
        turn = await api.turn(session_id, metadata={"z": 1, "customer": "a b"})
        await api.turn(session_id, metadata={"customer": "ab"})

        for path in ("/v1/turns", f"/v1/sessions/{session_id}/turns"):
            found = await api.client.get(path, params={"metadata[customer]": "a b", "status": "queued"})
            assert [one["id"] for one in found.json()["data"]] == [turn["id"]]
            assert '"metadata":{"z":1,"customer":"a b"}' in found.text
        sessions = await api.client.get("/v1/sessions", params={"metadata[customer]": "a b"})
        assert [one["id"] for one in sessions.json()["data"]] == [session_id]

    serve(tmp_path, work)


def test_a_cursor_belongs_to_the_members_that_were_asked_about(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        session_id = await api.session()
        for _ in range(2):
            await api.turn(session_id, metadata={"k": "v"})
        asked = {"metadata[k]": "v", "limit": "1"}
        first = (await api.client.get("/v1/turns", params=asked)).json()
        after = {"after": first["next_cursor"]}

        rest = (await api.client.get("/v1/turns", params=asked | after)).json()
        assert len(rest["data"]) == 1
        assert rest["data"] != first["data"]
        for other in ({"limit": "1"}, asked | {"metadata[k]": "w"}, asked | {"metadata[l]": "v"}):
            assert (await api.refused("GET", "/v1/turns", params=other | after))["code"] == "cursor_invalid"

    serve(tmp_path, work)


def test_more_members_or_longer_texts_than_the_limits_are_refused(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        many = {f"metadata[k{number}]": "v" for number in range(5)}
        for asked in (many, {"metadata[k]": "v" * 513}, {f"metadata[{'k' * 513}]": "v"}):
            problem = await api.refused("GET", "/v1/sessions", params=asked)
            assert (problem["status"], problem["code"]) == (400, "invalid_field")

    serve(tmp_path, work)


def test_a_list_without_metadata_does_not_take_the_filter(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        problem = await api.refused("GET", "/v1/agents", params={"metadata[k]": "v"})
        assert (problem["code"], problem["param"]) == ("unknown_field", "metadata[k]")

    serve(tmp_path, work)
