"""What the API answers, as typed views of the members that came (contract 1 and 14).

Pure. A view keeps every member, known to this version or not, and reads one when it is asked for. Must never drop a
member, nor guess one: what is missing or of another kind is said when it is read.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, TypeAlias, TypeVar, cast

from turnkeeper.client.errors import ClientError
from turnkeeper.errors import RemoteProtocolError

Json: TypeAlias = Mapping[str, Any]
T = TypeVar("T")


class AnswerUnreadable(ClientError, RemoteProtocolError):
    """The server, or something before it, answered with what the contract does not have."""

    code = "answer_unreadable"


def parse_document(content: bytes | str) -> Json:
    """A JSON object, its whole numbers as long as they are. Raises `AnswerUnreadable`."""
    try:
        parsed: object = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise AnswerUnreadable("the answer is not JSON") from error
    if not isinstance(parsed, dict):
        raise AnswerUnreadable("the answer is no JSON object")
    return cast("Json", parsed)


class Document:
    """A document of the API. `members` are all that came, in their order; two are equal when these are."""

    __slots__ = ("members",)

    members: Json

    def __init__(self, members: Json) -> None:
        object.__setattr__(self, "members", members)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is read only")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Document) and self.members == other.members

    def __hash__(self) -> int:
        return hash((self.members.get("object"), self.members.get("id")))

    def __repr__(self) -> str:
        shown = {name: self.members[name] for name in ("id", "type", "status", "sequence") if name in self.members}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class Member(Generic[T]):
    """One member of a document, read when it is asked for. Reading raises `AnswerUnreadable`."""

    kinds: tuple[type, ...] = ()

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, document: Document, owner: type | None = None) -> T:
        return self.read(document.members.get(self.name))

    def read(self, value: Any) -> T:
        """The member's value, of the kind the contract gives it."""
        # JSON's true is no number, though Python's is.
        if not isinstance(value, self.kinds) or (isinstance(value, bool) and bool not in self.kinds):
            raise AnswerUnreadable(f"the member {self.name!r} is missing or of another kind")
        return cast("T", value)


class Text(Member[str]):
    """A text."""

    kinds = (str,)


class OptionalText(Member[str | None]):
    """A text or null; null too where an older server does not have it."""

    kinds = (str, type(None))


class Whole(Member[int]):
    """A whole number."""

    kinds = (int,)


class OptionalWhole(Member[int | None]):
    """A whole number or null."""

    kinds = (int, type(None))


class Switch(Member[bool]):
    """True or false."""

    kinds = (bool,)


class Anything(Member[Any]):
    """Any JSON value, as it came; null where it is missing."""

    kinds = (object,)

    def read(self, value: Any) -> Any:
        """The value."""
        return value


class Members(Member[Json]):
    """An object, as it came."""

    kinds = (dict,)


class OptionalMembers(Member[Json | None]):
    """An object or null, as it came."""

    kinds = (dict, type(None))


class Texts(Member[Sequence[str]]):
    """A list of texts; none where it is null."""

    def read(self, value: Any) -> Sequence[str]:
        """The texts."""
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, str) for item in cast("list[object]", value)):
            raise AnswerUnreadable(f"the member {self.name!r} is no list of texts")
        return tuple(cast("list[str]", value))


class Moment(Member[datetime]):
    """A time, aware."""

    def read(self, value: Any) -> datetime:
        """The time."""
        moment = _moment(value, self.name)
        if moment is None:
            raise AnswerUnreadable(f"the member {self.name!r} is missing")
        return moment


class OptionalMoment(Member[datetime | None]):
    """A time, aware, or null."""

    def read(self, value: Any) -> datetime | None:
        """The time."""
        return _moment(value, self.name)


D = TypeVar("D", bound=Document)


class Part(Member[D | None], Generic[D]):
    """A document inside of this one, or null."""

    def __init__(self, kind: type[D]) -> None:
        self._kind = kind

    def read(self, value: Any) -> D | None:
        """The view of it."""
        if value is None:
            return None
        if not isinstance(value, dict):
            raise AnswerUnreadable(f"the member {self.name!r} is no object")
        return self._kind(cast("Json", value))


class Parts(Member[Sequence[D]], Generic[D]):
    """A list of documents inside of this one."""

    def __init__(self, kind: type[D]) -> None:
        self._kind = kind

    def read(self, value: Any) -> Sequence[D]:
        """The views of them."""
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in cast("list[object]", value)):
            raise AnswerUnreadable(f"the member {self.name!r} is no list of objects")
        return tuple(self._kind(item) for item in cast("list[Json]", value))


def _moment(value: Any, name: str) -> datetime | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise AnswerUnreadable(f"the member {name!r} is no time") from error
    if moment.tzinfo is None:
        raise AnswerUnreadable(f"the member {name!r} is a time without its offset")
    return moment
