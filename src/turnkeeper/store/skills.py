"""Skills and their versions: `SkillStore` on SQL (contract 2.13)."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, RowMapping, func, insert, select

from turnkeeper.store.idempotency import once
from turnkeeper.store.pages import load_page
from turnkeeper.store.skill_tables import skills
from turnkeeper.store.statements import find
from turnkeeper.store.tx import Tx
from turnkeeper.store.webhook_store import Reads, Writes
from turnkeeper.turns.creations import Created
from turnkeeper.turns.idempotency import KeyedRequest
from turnkeeper.turns.ports import NotFound, Page, PageRequest, StoreUnavailable
from turnkeeper.turns.skills import MAX_STORED_SKILLS, NewSkill, Skill, SkillsFull, SkillStore, WantedSkill

_LOCK: Final = "skills"


class SqlSkillStore(SkillStore):
    """Skills, in the turn store's database."""

    def __init__(self, read: Reads, write: Writes) -> None:
        self._read = read
        self._write = write

    async def add_skill(self, new: NewSkill, request: KeyedRequest | None = None) -> Created[Skill]:
        return await self._write(lambda tx: once(tx, request, lambda tx: _added(tx, new), _by_id))

    async def skill(self, skill_id: str) -> Skill:
        return await self._read(lambda conn: _by_id(conn, skill_id))

    async def skills(self, project_id: str, page: PageRequest, *, name: str | None = None) -> Page[Skill]:
        query = select(skills).where(skills.c.project_id == project_id)
        if name is not None:
            query = query.where(skills.c.name == name)
        return await self._read(
            lambda conn: load_page(conn, query, skills.c.id, page, lambda rows: [_to_skill(row) for row in rows])
        )

    async def wanted(self, project_id: str, wanted: Sequence[WantedSkill]) -> tuple[Skill | None, ...]:
        return await self._read(lambda conn: tuple(_wanted(conn, project_id, one) for one in wanted))


def _added(tx: Tx, new: NewSkill) -> Skill:
    if not tx.lock_name(tx.conn, f"{_LOCK} {new.project_id}", tx.limits.idempotency_wait_ms):
        raise StoreUnavailable("other skills of the project are being added")
    newest = _wanted(tx.conn, new.project_id, WantedSkill(name=new.name))
    if newest is not None and newest.sha256 == new.sha256:
        return newest
    count = select(func.count()).select_from(skills).where(skills.c.project_id == new.project_id)
    if tx.conn.execute(count).scalar_one() >= MAX_STORED_SKILLS:
        raise SkillsFull(f"a project keeps at most {MAX_STORED_SKILLS} versions of skills")
    version = 1 if newest is None else newest.version + 1
    values: dict[str, object] = {
        "id": tx.ids.new("skl"),
        "project_id": new.project_id,
        "name": new.name,
        "version": version,
        "description": new.description,
        "sha256": new.sha256,
        "bytes": new.size_bytes,
        "created_at": tx.now,
    }
    return _to_skill(tx.conn.execute(insert(skills).returning(skills), values).mappings().one())


def _wanted(conn: Connection, project_id: str, wanted: WantedSkill) -> Skill | None:
    query = select(skills).where(skills.c.project_id == project_id)
    if wanted.id is not None:
        query = query.where(skills.c.id == wanted.id)
    if wanted.name is not None:
        query = query.where(skills.c.name == wanted.name)
    if wanted.version is not None:
        query = query.where(skills.c.version == wanted.version)
    row = conn.execute(query.order_by(skills.c.version.desc()).limit(1)).mappings().one_or_none()
    return None if row is None else _to_skill(row)


def _by_id(conn: Connection, skill_id: str) -> Skill:
    row = find(conn, skills, id=skill_id)
    if row is None:
        raise NotFound(f"there is no skill {skill_id}")
    return _to_skill(row)


def _to_skill(row: RowMapping) -> Skill:
    return Skill(
        id=row["id"],
        project_id=row["project_id"],
        name=row["name"],
        version=row["version"],
        description=row["description"],
        sha256=row["sha256"],
        size_bytes=row["bytes"],
        created_at=row["created_at"],
    )
