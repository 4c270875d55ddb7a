"""`turnkeeper guardian` with its record on PostgreSQL: the same agent, the same commands, by one setting."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from tests.acceptance.server import run_command
from tests.acceptance.test_standalone_guardian import Place, deleting, listening, over_stdio
from tests.integration.postgres_place import PostgresPlace, postgres_place

from turnkeeper.client import HttpTransport, StepDenied

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.timeout(180)]


class PlaceOnPostgres(Place):
    """A place whose record is elsewhere: commands find it in the settings file, the Guardian is told on its command."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        (folder / "turnkeeper.toml").write_text(f'[guardian]\ndatabase_url = "{url}"\n')
        super().__init__(folder)

    @property
    def options(self) -> list[str]:
        """What the Guardian is told."""
        return [*super().options, "--database-url", self.url]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresPlace]:
    with postgres_place() as running:
        yield running


@pytest.fixture
def place(tmp_path: Path, server: PostgresPlace) -> PlaceOnPostgres:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS turnkeeper_guardian CASCADE")
    return PlaceOnPostgres(tmp_path, server.url)


def test_an_agent_waits_for_a_person_and_every_command_finds_what_happened(place: PlaceOnPostgres) -> None:
    async def main(url: str) -> None:
        async with place.client(HttpTransport(f"{url}/acs")) as guardian:
            told, question = await asyncio.gather(deleting(guardian), place.answer("approve"))
        assert told == {"path": "a"}
        assert question["question"] == "Delete it?"

    with listening(place) as url:
        asyncio.run(main(url))
    (session,) = json.loads(place.run("guardian", "sessions", "--json").stdout)
    turns = json.loads(place.run("guardian", "turns", session["session_id"], "--json").stdout)
    assert [turn["outcome"] for turn in turns] == ["completed"]
    assert json.loads(place.run("guardian", "findings", session["session_id"], "--json").stdout) == []
    assert len(place.run("export", session["session_id"]).stdout.splitlines()) > session["entries"]
    verified = place.run("verify", "--secret-file", str(place.secret))
    assert (verified.returncode, "intact: 1 sessions" in verified.stdout) == (0, True), verified.stdout
    assert "guardian's record: can be read" in place.run("doctor").stdout
    assert "Guardian's record is at 1" in place.run("migrate").stdout
    assert not (place.data_dir / "guardian" / "guardian.db").exists()


def test_a_second_guardian_on_the_database_is_refused_whatever_its_data_dir(
    place: PlaceOnPostgres, tmp_path: Path
) -> None:
    with listening(place):
        second = run_command("guardian", "--stdio", "--data-dir", str(tmp_path / "elsewhere"), home=tmp_path)
    assert second.returncode == 1
    assert "another Guardian works on this database" in second.stderr


def test_a_server_that_goes_away_denies_steps_and_comes_back_to_the_same_guardian(
    place: PlaceOnPostgres, server: PostgresPlace
) -> None:
    async def main() -> None:
        async with place.client(over_stdio(place)) as guardian, guardian.session() as session, session.turn() as turn:
            await turn.tool_call_request("shell", {"command": "ls"})
            server.kill()
            with pytest.raises(StepDenied) as denied:
                await turn.tool_call_request("shell", {"command": "ls"})
            assert denied.value.reason_codes == ("store_failed",)
            await asyncio.to_thread(server.start)
            await turn.tool_call_request("shell", {"command": "ls"})

    asyncio.run(main())
    assert place.run("verify", "--secret-file", str(place.secret)).returncode == 0


def test_a_password_in_the_url_is_shown_nowhere(place: PlaceOnPostgres, tmp_path: Path) -> None:
    (tmp_path / "turnkeeper.toml").write_text(
        '[guardian]\ndatabase_url = "postgresql://ana:sesame@127.0.0.1:1/nowhere?x=sesame"\n'
    )
    for words in (("guardian", "sessions"), ("guardian", "--stdio"), ("doctor",), ("config", "show"), ("verify",)):
        done = place.run(*words)
        assert "sesame@" not in done.stdout + done.stderr, words
