"""Turns posted with a session of their own, and turns posted again; each is one transaction."""

from dataclasses import replace

from sqlalchemy import update

from turnkeeper.store.idempotency import hold_key
from turnkeeper.store.loading import load_session, load_turn
from turnkeeper.store.sessions import create_session
from turnkeeper.store.tables import sessions
from turnkeeper.store.turns import accept_turn, replay
from turnkeeper.store.tx import Tx
from turnkeeper.turns.model import Session, Turn
from turnkeeper.turns.ports import Accepted, NewSession, NewTurn
from turnkeeper.turns.posting import NewRetry, TurnNotTerminal


def accept_alone(tx: Tx, session: NewSession, new: NewTurn) -> Accepted:
    """The turn and its session, which closes once the turn has ended; or the turn that the key stands for.

    Raises as `TurnPosts.accept_alone` does.
    """
    if new.idempotency_key is not None:
        hold_key(tx, session.project_id, new.idempotency_key)
    replayed = replay(tx, new, session.project_id)
    if replayed is not None:
        return replayed
    opened = create_session(tx, replace(session, ephemeral=True))
    accepted = accept_turn(tx, replace(new, session_id=opened.id))
    tx.conn.execute(update(sessions).where(sessions.c.id == opened.id).values(status="closing"))
    return accepted


def retry_turn(tx: Tx, new: NewRetry) -> Accepted:
    """A new turn with another one's input. Raises as `TurnPosts.retry_turn` does."""
    turn = load_turn(tx.conn, new.turn_id, tx.now)
    session, again = load_session(tx.conn, turn.session_id), _again(turn, new)
    if again.idempotency_key is not None:
        hold_key(tx, session.project_id, again.idempotency_key)
    replayed = replay(tx, again, session.project_id)
    if replayed is not None:
        return replayed
    if not turn.status.terminal:
        raise TurnNotTerminal(
            f"{turn.id} is {turn.status.value}",
            detail={"turn_id": turn.id, "turn_status": turn.status.value},
            hint="Wait for its end, or cancel it.",
        )
    return accept_alone(tx, _like(session), again) if session.ephemeral else accept_turn(tx, again)


def _again(turn: Turn, new: NewRetry) -> NewTurn:
    return NewTurn(
        session_id=turn.session_id,
        input_text=turn.input_text,
        input_json=turn.input_json,
        output_schema_json=turn.output_schema_json,
        metadata_json=turn.metadata_json if new.metadata_json is None else new.metadata_json,
        budget=turn.budget if new.budget is None else new.budget,
        max_repair_attempts=turn.max_repair_attempts,
        idempotency_key=new.idempotency_key,
        fingerprint=new.fingerprint,
        max_attempts=turn.max_attempts,
        api_key_id=new.api_key_id,
        retry_of=turn.id,
        file_ids=tuple(file.file_id for file in turn.input_files),
    )


def _like(session: Session) -> NewSession:
    return NewSession(
        session.agent_id,
        session.title,
        session.metadata_json,
        None,
        project_id=session.project_id,
        agent_version=session.agent_version,
    )
