"""Skills over the API (contract 2.13): archives in versions, one project's alone."""

from pathlib import Path

from tests.integration.api_door import Api, serve
from tests.unit.turns.test_skill_archives import SKILL, tarred, zipped


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
