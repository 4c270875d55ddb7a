"""The index of metadata: written with the session or turn that it describes, asked by lists.

Answers for a page that is read from the index in the order of the list, as far as its limit, however many sessions and
turns there are; and for nothing of an erased session being left in it.
"""

from collections.abc import Collection
from typing import Any, TypeVar

from sqlalchemy import Column, ColumnElement, Select, delete, select

from turnkeeper.store.statements import add
from turnkeeper.store.tables import metadata_terms, turns
from turnkeeper.store.tx import Tx
from turnkeeper.turns.metadata import Described, MetadataFilter, term_of, terms_of

T = TypeVar("T", bound=tuple[Any, ...])


def keep_terms(tx: Tx, kind: Described, thing_id: str, project_id: str, metadata_json: str) -> None:
    """Writes the terms of something new."""
    terms = [] if metadata_json == "{}" else terms_of(kind, metadata_json)
    if terms:
        add(
            tx.conn,
            metadata_terms,
            [{"thing_id": thing_id, "term": term, "project_id": project_id} for term in terms],
        )


def replace_terms(tx: Tx, kind: Described, thing_id: str, project_id: str, metadata_json: str) -> None:
    """Writes the terms of something whose metadata has changed."""
    tx.conn.execute(delete(metadata_terms).where(metadata_terms.c.thing_id == thing_id))
    keep_terms(tx, kind, thing_id, project_id, metadata_json)


def erase_terms(tx: Tx, session_id: str) -> None:
    """Removes the terms of a session and of its turns."""
    of_turns = select(turns.c.id).where(turns.c.session_id == session_id)
    tx.conn.execute(delete(metadata_terms).where(metadata_terms.c.thing_id == session_id))
    tx.conn.execute(delete(metadata_terms).where(metadata_terms.c.thing_id.in_(of_turns)))


def with_metadata(
    query: Select[T], id_column: Column[str], kind: Described, wanted: MetadataFilter, project_id: str | None
) -> tuple[Select[T], Column[str]]:
    """The query narrowed to what all of `wanted` fits, and the column to order it by."""
    key = id_column
    for number, (name, text) in enumerate(wanted):
        terms = metadata_terms.alias(f"terms_{number}")
        fits: Collection[ColumnElement[bool]] = [
            terms.c.thing_id == id_column,
            terms.c.term == term_of(kind, name, text),
            *([] if project_id is None else [terms.c.project_id == project_id]),
        ]
        if number:
            query = query.where(select(terms.c.thing_id).where(*fits).exists())
        else:
            query, key = query.where(*fits), terms.c.thing_id
    return query, key
