"""No event is lost to an endpoint when the server is killed, and what comes twice has the same id and bytes."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from standardwebhooks.webhooks import Webhook, WebhookVerificationError
from tests.acceptance.server import Server
from tests.acceptance.stub import StubModel

OPEN_TO_LOOPBACK = '[webhooks]\nallow_http = true\nnetworks = ["127.0.0.0/8"]\npoll_ms = 100\n'
AGENT = {"name": "hooked", "model": {"provider": "stub", "id": "stub"}, "tools": ["shell"]}
DEADLINE_S = 90


class Inbox:
    """A receiver that refuses the first try of everything, and keeps what it takes."""

    def __init__(self) -> None:
        self.secret = ""
        self.bodies: dict[str, set[bytes]] = {}
        self.wrong: list[str] = []
        self.changed = threading.Condition()
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                body = self.rfile.read(length)
                if len(body) < length:  # its sender was killed in the middle: nothing was delivered
                    return
                taken = inbox.take(body, {name.lower(): value for name, value in self.headers.items()})
                self.send_response(204 if taken else 500)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"

    def take(self, body: bytes, headers: dict[str, str]) -> bool:
        with self.changed:
            try:
                Webhook(self.secret).verify(body, headers)
            except WebhookVerificationError as error:
                self.wrong.append(repr(error))
            taken = headers["webhook-attempt"] != "1"
            if taken:
                self.bodies.setdefault(headers["webhook-id"], set()).add(body)
            self.changed.notify_all()
            return taken

    def until(self, wanted: set[str]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: wanted <= set(self.bodies), DEADLINE_S), wanted - set(self.bodies)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


def test_every_event_arrives_signed_although_the_server_is_killed(tmp_path: Path) -> None:
    inbox = Inbox()
    with (
        StubModel() as model,
        Server(tmp_path, model.config(OPEN_TO_LOOPBACK), environment={"STUB_KEY": "k"}) as server,
    ):
        endpoint = server.post("/v1/webhook_endpoints", {"url": inbox.url, "types": ["*"]})
        inbox.secret = endpoint["secret"]
        agent = server.post("/v1/agents", AGENT)
        session = server.post("/v1/sessions", {"agent_id": agent["id"]})["id"]
        turn = server.post(f"/v1/sessions/{session}/turns", {"input": "tools=1 text=done"})
        server.ended(turn["id"])
        server.kill()
        server.start()
        events = server.events(session)
        inbox.until({event["id"] for event in events})
    inbox.close()
    assert inbox.wrong == []
    for event in events:
        [body] = inbox.bodies[event["id"]]
        assert json.loads(body) == event
