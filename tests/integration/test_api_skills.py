"""Skills over the API (contract 2.13): archives in versions, one project's alone."""

from pathlib import Path

import pytest
from tests.integration.api_door import AGENT, Api, Json, serve
from tests.unit.turns.test_skill_archives import SKILL, tarred, zipped

from turnkeeper.turns.skills import WantedSkill

NAMELESS: Json = {}


async def posted(api: Api, archive: bytes) -> tuple[int, dict[str, object]]:
    answer = await api.client.post("/v1/skills", files={"file": ("skill.zip", archive, "application/zip")})
    return answer.status_code, answer.json()


def test_an_archive_is_kept_in_versions_and_the_newest_one_again_is_no_other(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        status, first = await posted(api, zipped({"SKILL.md": SKILL}))
        assert (status, first["name"], first["version"]) == (201, "pdf-forms", 1)
        _, again = await posted(api, zipped({"SKILL.md": SKILL}))
        assert again["id"] == first["id"]
        _, second = await posted(api, tarred({"pdf-forms/SKILL.md": SKILL}))
        assert second["version"] == 2
        assert (await api.seen("/v1/skills"))["data"] == [second, first]
        assert await api.seen(f"/v1/skills/{second['id']}") == second

    serve(tmp_path, work)


def test_what_is_no_skill_is_refused_by_name_and_not_kept(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        status, problem = await posted(api, zipped({"SKILL.md": SKILL, "../evil": b"x"}))
        assert (status, problem["code"]) == (422, "skill_refused")
        assert "'../evil'" in str(problem["detail"])
        assert (await api.seen("/v1/skills"))["data"] == []

    serve(tmp_path, work)


async def uploaded(api: Api, archive: bytes | None = None) -> Json:
    status, skill = await posted(api, archive or zipped({"SKILL.md": SKILL}))
    assert status in {200, 201}
    return skill


def test_an_agent_names_a_skill_and_has_the_version_that_is_the_newest_then(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        first = await uploaded(api)
        named: list[Json] = [{"name": "pdf-forms"}, {"id": first["id"]}, {"name": "pdf-forms", "version": 1}]
        agents = [await api.made("/v1/agents", {**AGENT, "skills": [one]}) for one in named]
        await uploaded(api, tarred({"SKILL.md": SKILL}))
        shown = [(await api.seen(f"/v1/agents/{agent['id']}"))["skills"] for agent in agents]
        assert shown == [[{"id": first["id"], "name": "pdf-forms", "version": 1}]] * 3

    serve(tmp_path, work)


def test_a_new_version_of_an_agent_keeps_its_skills_until_others_are_named(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        first = await uploaded(api)
        agent = await api.made("/v1/agents", {**AGENT, "skills": [{"name": "pdf-forms"}]})
        second = await uploaded(api, tarred({"SKILL.md": SKILL}))
        seen: list[list[str]] = []
        changes: tuple[Json, ...] = ({"name": "b"}, {"skills": [{"name": "pdf-forms"}]}, {"skills": []})
        for version, change in enumerate(changes, start=1):
            agent = await api.made(f"/v1/agents/{agent['id']}", {**change, "expected_version": version})
            seen.append([skill["id"] for skill in agent["skills"]])
        assert seen == [[first["id"]], [second["id"]], []]

    serve(tmp_path, work)


@pytest.mark.parametrize(
    ("skills", "param"),
    [
        ("pdf-forms", "/skills"),
        ([NAMELESS], "/skills/0"),
        ([{"name": "other"}], "/skills/0"),
        ([{"name": "pdf-forms", "version": 2}], "/skills/0"),
        ([{"name": "pdf-forms", "version": 0}], "/skills/0/version"),
        ([{"id": "skl_1"}], "/skills/0/id"),
        ([{"name": "pdf-forms"}, {"name": "pdf-forms", "version": 1}], "/skills/1"),
        ([{"name": "pdf-forms"}] * 33, "/skills"),
    ],
)
def test_what_names_no_skill_of_the_project_is_refused(tmp_path: Path, skills: object, param: str) -> None:
    async def work(api: Api) -> None:
        await uploaded(api)
        problem = await api.refused("POST", "/v1/agents", json={**AGENT, "skills": skills})
        assert (problem["status"], problem["code"], problem["param"]) == (400, "invalid_field", param)

    serve(tmp_path, work)


def test_a_skill_of_another_project_is_no_skill(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        skill = await uploaded(api)
        found = await api.deps.skills.wanted("prj_01KBC3Y5M8Q2V7R9T4W6X1Z0AB", [WantedSkill(id=skill["id"])])
        assert found == (None,)

    serve(tmp_path, work)


def test_nothing_else_of_an_agent_may_be_called_as_the_tool_that_loads_skills(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        tool = {"kind": "client", "name": "load_skill", "description": "Mine.", "input_schema": {"type": "object"}}
        problem = await api.refused("POST", "/v1/agents", json={**AGENT, "tools": [tool]})
        assert problem["param"] == "/tools/0/name"

    serve(tmp_path, work)


def test_an_upload_that_is_repeated_with_its_key_is_one_version(tmp_path: Path) -> None:
    async def work(api: Api) -> None:
        form = {"file": ("skill.zip", zipped({"SKILL.md": SKILL}), "application/zip")}
        answers = [
            await api.client.post("/v1/skills", files=form, headers={"Idempotency-Key": "k" * 20}) for _ in range(2)
        ]
        assert answers[0].json() == answers[1].json()
        assert answers[1].headers["Idempotent-Replayed"] == "true"

    serve(tmp_path, work)
