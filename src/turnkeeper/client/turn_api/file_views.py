"""Files and artifacts as the API shows them (contract 2.6). Pure."""

from turnkeeper.client.turn_api.documents import Document, Moment, OptionalMoment, OptionalText, Text, Whole


class File(Document):
    """A file that an app uploaded."""

    __slots__ = ()

    id = Text()
    name = Text()
    purpose = Text()
    media_type = Text()
    bytes = Whole()
    sha256 = Text()
    status = Text()
    created_at = Moment()


class Artifact(Document):
    """Something that a turn left. `path` is where the agent had it; None for what never was a file."""

    __slots__ = ()

    id = Text()
    turn_id = Text()
    session_id = Text()
    name = Text()
    path = OptionalText()
    media_type = Text()
    bytes = Whole()
    sha256 = Text()
    kind = Text()
    created_at = Moment()
    expires_at = OptionalMoment()
