"""An app on Turnkeeper: python examples/turn_app.py ORDER TEXT. Kill it where you like; started again it goes on."""

import json
import os
import sys
from pathlib import Path

from turnkeeper.client import Session, Turnkeeper

AGENT = json.loads(Path(os.environ.get("AGENT_FILE", "agent.json")).read_text())
order, text = sys.argv[1:]
notes = Path(f"order-{order}.json")


def open_session(turnkeeper: Turnkeeper) -> Session:
    if notes.exists():
        return turnkeeper.sessions.get(json.loads(notes.read_text())["session"])
    agent = turnkeeper.agents.create(AGENT["name"], AGENT["model"], extra=AGENT)
    session = turnkeeper.sessions.create(agent, title=f"order {order}")
    keep(session.id, 0)
    return session


def keep(session_id: str, sequence: int) -> None:
    fresh = notes.with_suffix(".new")
    fresh.write_text(json.dumps({"session": session_id, "sequence": sequence}))
    fresh.replace(notes)


with Turnkeeper(os.environ["TURNKEEPER_URL"], os.environ["TURNKEEPER_KEY"]) as turnkeeper:
    session = open_session(turnkeeper)
    # The key is the order's: however often this line runs, it is one turn.
    turn = session.post_turn(text, idempotency_key=f"order-{order}")
    print("again" if turn.replayed else "posted", turn.id, flush=True)
    for event in turn.stream(after=json.loads(notes.read_text())["sequence"]):
        print(event.sequence, event.type, flush=True)
        if event.type == "approval.requested" and event.data is not None:
            print("asks", event.data["approval_id"], event.data["question"], flush=True)
        if event.sequence is not None:
            keep(session.id, event.sequence)
    print("answer", turn.wait().text, flush=True)
