"""Receives webhooks and handles each event once: python examples/webhook_receiver.py PORT < SECRET_FILE"""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from turnkeeper.client import WebhookRejected, verify_webhook

secret = sys.stdin.readline().strip()
handled: set[str | None] = set()  # a real app keeps these with what it did


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            event = verify_webhook(secret, dict(self.headers.items()), body)
        except WebhookRejected as rejected:
            self.send_error(400, rejected.message)
            return
        self.send_response(204)
        self.end_headers()
        if event.id not in handled:
            handled.add(event.id)
            print(event.type, event.turn_id, flush=True)


HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
