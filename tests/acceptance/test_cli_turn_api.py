"""The commands over the API, typed beside a running server."""

import json
import subprocess
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook
from tests.acceptance.server import NO_WARM_BOXES, TURNKEEPER, Json, Server, clean_environment, run_command
from tests.acceptance.stub import RESULT_SCHEMA, StubModel
from tests.docs.test_how_tos import blocks

pytestmark = [pytest.mark.slow, pytest.mark.sandbox, pytest.mark.timeout(240)]

OPEN_TO_LOOPBACK = '[webhooks]\nallow_http = true\nnetworks = ["127.0.0.0/8"]\npoll_ms = 100\n'
DEADLINE_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the commands, on the address that its settings name."""
    folder = tmp_path_factory.mktemp("remote")
    with StubModel() as model:
        running = Server(folder, model.config(NO_WARM_BOXES + OPEN_TO_LOOPBACK), environment={"STUB_KEY": "k"})
        running.config_file.write_text(f"{running.config_file.read_text()}[server]\nport = {running.port}\n")
        with running:
            yield running


def said(server: Server, *words: str) -> str:
    """What a command that succeeds prints."""
    done = server.command(*words)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout.strip()


def agent_file(server: Server) -> Path:
    """An agent with a shell, to be created."""
    file = server.home / "agent.toml"
    file.write_text('name = "a"\ninstructions = "Work."\ntools = ["shell"]\n[model]\nprovider = "stub"\nid = "m"\n')
    return file


def session(server: Server) -> str:
    """A session with an agent, both made on the command line."""
    agent_id = said(server, "agents", "create", str(agent_file(server)))
    return said(server, "sessions", "create", agent_id, "--title", "by hand")


def test_a_turn_is_posted_and_waited_for_on_the_command_line(server: Server) -> None:
    """With a key that the data dir keeps, and no address but the settings'."""
    session_id = session(server)
    schema = server.home / "schema.json"
    schema.write_text(json.dumps(RESULT_SCHEMA))
    ended = said(server, "turns", "post", session_id, "tools=1 text=hi", "--schema", str(schema), "--wait", "--json")
    turn = json.loads(ended)
    assert (turn["status"], turn["result"]) == ("completed", {"calls": 1})
    assert [row["id"] for row in json.loads(said(server, "turns", "list", "--session", session_id, "--json"))] == [
        turn["id"]
    ]
    assert turn["id"] in said(server, "turns", "list")
    assert "by hand" in said(server, "sessions", "list")
    assert json.loads(said(server, "turns", "submissions", turn["id"], "--json"))[0]["valid"] is True
    assert (server.data_dir / "cli.key").stat().st_mode & 0o777 == 0o600


def test_the_how_to_of_files_works_as_it_is_shown(server: Server) -> None:
    """From a file of this machine to what a real tool in a real box made of it."""
    report, out = server.home / "report.csv", server.home / "out.csv"
    report.write_text("a,b\n")
    file_id = said(server, "files", "upload", str(report))
    assert file_id in said(server, "files", "list")
    assert said(server, "files", "get", file_id) == "a,b"
    command = "mkdir+outputs;tr+a-z+A-Z+<inputs/report.csv>outputs/out.csv;ln+-s+/etc/passwd+outputs/link"
    asked = "Write the file in capitals to outputs/out.csv."
    script = blocks("files", "python")[0].replace(asked, f"tools=1 command={command}")
    printed: list[object] = []

    def show(*shown: object) -> None:
        printed.append(shown)

    agent_id = said(server, "agents", "create", str(agent_file(server)))
    names: dict[str, object] = {"URL": server.url, "KEY": server.secret, "PATH": report, "AGENT_ID": agent_id}
    names["print"] = show
    exec(script, names)
    assert printed == [("outputs/out.csv", b"A,B\n")]
    turn_id = json.loads(said(server, "turns", "list", "--json"))[0]["id"]
    (artifact,) = json.loads(said(server, "artifacts", "list", turn_id, "--json"))
    said(server, "artifacts", "get", artifact["id"], "--output", str(out))
    assert out.read_text() == "A,B\n"
    assert server.command("artifacts", "get", artifact["id"], "--output", str(out)).returncode == 2
    assert server.command("files", "delete", file_id).returncode == 0


def test_events_are_tailed_to_the_end_of_a_turn(server: Server) -> None:
    """As one event a line, the same as the API's, or as a line for a person."""
    session_id = session(server)
    turn_id = said(server, "turns", "post", session_id, "text=hi")
    tailed = [json.loads(line) for line in said(server, "events", "tail", turn_id, "--json").splitlines()]
    assert tailed == [event for event in server.events(session_id) if event["turn_id"] == turn_id]
    assert "turn.completed" in said(server, "events", "tail", turn_id)
    assert said(server, "events", "show", tailed[0]["id"], "--json").startswith("{")


def test_a_tail_goes_on_when_the_server_is_killed_and_comes_back(server: Server) -> None:
    """Every event once, from before and after."""
    session_id = session(server)
    tail = process(server, "events", "tail", session_id, "--after", "0", "--json")
    assert tail.stdout is not None
    first = json.loads(tail.stdout.readline())
    server.kill()
    server.start()
    said(server, "turns", "post", session_id, "text=hi", "--wait")
    said(server, "sessions", "close", session_id)
    rest = [json.loads(line) for line in tail.communicate(timeout=DEADLINE_S)[0].splitlines()]
    assert tail.returncode == 0
    assert [first, *rest] == server.events(session_id)


def test_what_went_wrong_is_a_sentence_and_an_exit_code(server: Server, tmp_path: Path) -> None:
    """2 for what was typed, 1 for what failed."""
    unknown = server.command("turns", "show", "trn_nobody")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "not_found" in unknown.stderr
    keyless = run_command("turns", "list", "--url", server.url, home=tmp_path)
    assert keyless.returncode == 2
    assert "--key" in keyless.stderr
    wrong = run_command("turns", "list", "--url", server.url, "--key", "tk_" + "x" * 43, home=tmp_path)
    assert wrong.returncode == 2
    assert "key_invalid" in wrong.stderr
    nowhere = run_command("turns", "list", home=tmp_path)
    assert nowhere.returncode == 2
    assert "holds no Turnkeeper data" in nowhere.stderr


def test_a_canceled_turn_and_a_short_wait_have_their_exit_codes(server: Server) -> None:
    """130 and 1."""
    session_id = session(server)
    turn_id = said(server, "turns", "post", session_id, "tools=1 command=sleep+60")
    assert server.command("turns", "wait", turn_id, "--timeout-ms", "50").returncode == 1
    assert server.command("turns", "cancel", turn_id, "--immediate").returncode == 0
    assert server.command("turns", "wait", turn_id).returncode == 130


class Inbox:
    """Takes what is posted to it."""

    def __init__(self) -> None:
        self.requests: Queue[tuple[dict[str, str], bytes]] = Queue()
        requests = self.requests

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                requests.put(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(204)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                return

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        self._thread = Thread(target=self._server.serve_forever)

    def __enter__(self) -> "Inbox":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def process(server: Server, *words: str) -> subprocess.Popen[str]:
    """A command that goes on, with pipes."""
    place = ("--config", str(server.config_file), "--data-dir", str(server.data_dir))
    return subprocess.Popen(
        [TURNKEEPER, *words[:2], *place, *words[2:]],
        env=clean_environment(server.home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_listener_prints_and_forwards_what_an_endpoint_gets_and_leaves_none(server: Server) -> None:
    """Signed with the secret that it shows, of sessions opened before and after it began."""
    before = session(server)
    words = ("webhooks", "listen", "--types", "turn.completed", "--limit", "2", "--json", "--forward-to")
    with Inbox() as inbox:
        listener = process(server, *words, inbox.url)
        assert listener.stderr is not None
        secret = listener.stderr.readline().split()[-1]
        assert listener.stderr.readline() == "listening\n"
        after = session(server)
        for session_id in (before, after):
            said(server, "turns", "post", session_id, "text=hi", "--wait")
        printed = [json.loads(line) for line in listener.communicate(timeout=DEADLINE_S)[0].splitlines()]
        forwarded = [inbox.requests.get(timeout=DEADLINE_S) for _ in printed]
    assert [Webhook(secret).verify(body, headers)["session_id"] for headers, body in forwarded] == [before, after]
    assert [row["body"] for row in printed] == [body.decode() for _, body in forwarded]
    ends: list[Json] = [event for one in (before, after) for event in server.events(one)]
    assert [json.loads(row["body"]) for row in printed] == [one for one in ends if one["type"] == "turn.completed"]
    assert json.loads(said(server, "webhooks", "list", "--json")) == []


def test_a_secret_is_kept_from_standard_input_and_never_shown(server: Server) -> None:
    value = "token-of-a-tracker"
    made = server.command("secrets", "create", "tracker", "--host", "api.example.com", given=value + "\n")
    assert made.returncode == 0, made.stderr
    listed = said(server, "secrets", "list", "--json")
    assert value not in listed
    [row] = json.loads(listed)
    assert (row["id"], row["hosts"]) == (made.stdout.strip(), ["api.example.com"])
    said(server, "secrets", "delete", row["id"])
    assert json.loads(said(server, "secrets", "list", "--json")) == []


def test_no_secret_is_made_of_nothing(server: Server) -> None:
    refused = server.command("secrets", "create", "empty", "--host", "api.example.com", given="\n")
    assert refused.returncode == 2
    assert "no value" in refused.stderr


def test_endpoints_and_deliveries_are_managed_on_the_command_line(server: Server) -> None:
    """Made, tested, looked at, sent once more, switched off, deleted."""
    with Inbox() as inbox:
        secret = said(server, "webhooks", "create", inbox.url, "--types", "webhook_endpoint.*")
        assert secret.startswith("whsec_")
        endpoint = json.loads(said(server, "webhooks", "list", "--json"))[0]
        delivery = json.loads(said(server, "webhooks", "test", endpoint["id"], "--json"))
        headers, body = inbox.requests.get(timeout=DEADLINE_S)
        assert Webhook(secret).verify(body, headers)["type"] == "webhook_endpoint.test"
        until_succeeded(server, delivery["id"])
        said(server, "webhooks", "retry", delivery["id"])
        assert inbox.requests.get(timeout=DEADLINE_S)[0]["webhook-id"] == headers["webhook-id"]
    assert said(server, "webhooks", "replay", endpoint["id"], "--since", "2026-01-01T00:00:00Z") == "0"
    said(server, "webhooks", "enable", endpoint["id"], "--off")
    assert delivery["id"] in said(server, "webhooks", "deliveries", endpoint["id"])
    assert said(server, "webhooks", "rotate", endpoint["id"]) != secret
    said(server, "webhooks", "delete", endpoint["id"])
    assert json.loads(said(server, "webhooks", "list", "--json")) == []


def until_succeeded(server: Server, delivery_id: str) -> None:
    """Returns once the delivery has ended well."""
    deadline = time.monotonic() + DEADLINE_S
    while json.loads(said(server, "webhooks", "delivery", delivery_id, "--json"))["status"] == "pending":
        assert time.monotonic() < deadline
