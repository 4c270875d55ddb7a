"""`multipart/form-data` with one file, read as it comes (contract 2.6).

Answers for a body whose parts are all known, each there once, and whose file goes on piece by piece without ever being
held. The parsing is python-multipart's; what a part may be is decided here. Must never use the name that a client gives
a file for anything but showing it.
"""

import re
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from turnkeeper.api.problems import RequestRefused
from turnkeeper.turns.files import DEFAULT_MEDIA_TYPE
from turnkeeper.turns.turn_files import shown_name

FILE_FIELD: Final = "file"
MAX_FIELD_BYTES: Final = 1_024
MAX_OVERHEAD_BYTES: Final = 65_536
"""What a body may have around its file: boundaries, headers, the other fields."""

_MEDIA_TYPE: Final = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,63}/[A-Za-z0-9!#$&^_.+-]{1,63}\Z")
_PLAIN_ENCODINGS: Final = frozenset({b"", b"7bit", b"8bit", b"binary"})


@dataclass(slots=True)
class _Part:
    headers: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    name: str | None = None
    value: bytearray = field(default_factory=bytearray)

    @property
    def is_file(self) -> bool:
        return self.name == FILE_FIELD


class UploadForm:
    """One form: iterate over it for the bytes of its file; then it has the rest. Raises `RequestRefused`.

    `known` are the names of the fields beside the file.
    """

    def __init__(self, chunks: AsyncIterable[bytes], content_type: str, *, known: frozenset[str]) -> None:
        self._chunks = chunks
        self._known = known
        self._part = _Part()
        self._header: tuple[bytearray, bytearray] = (bytearray(), bytearray())
        self._pieces: list[bytes] = []
        self._seen: set[str] = set()
        self._ended = False
        self.file_name = ""
        self.media_type = DEFAULT_MEDIA_TYPE
        self.fields: dict[str, str] = {}
        self._parser = MultipartParser(
            _boundary(content_type),
            {
                "on_part_begin": self._part_begins,
                "on_header_field": self._header_name,
                "on_header_value": self._header_value,
                "on_header_end": self._header_ends,
                "on_headers_finished": self._headers_end,
                "on_part_data": self._data,
                "on_part_end": self._part_ends,
                "on_end": self._all_ends,
            },
        )

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._chunks:
            try:
                self._parser.write(chunk)
            except FormParserError as error:
                raise _refused("The body is not multipart/form-data as its boundary says.") from error
            for piece in self._pieces:
                yield piece
            self._pieces.clear()
        if not self._ended:
            raise _refused("The body ends before its last boundary.")
        if FILE_FIELD not in self._seen:
            raise _refused("The form has no part named file.", FILE_FIELD)

    def _part_begins(self) -> None:
        self._part = _Part()

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._header[0].extend(data[start:end])

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1].extend(data[start:end])

    def _header_ends(self) -> None:
        name, value = (bytes(part) for part in self._header)
        self._header = (bytearray(), bytearray())
        if self._part.headers.setdefault(name.lower(), value) != value:
            raise _refused("A part has a header twice.")

    def _headers_end(self) -> None:
        part = self._part
        kind, options = parse_options_header(part.headers.get(b"content-disposition"))
        part.name = _text(options.get(b"name", b""), "The name of a part")
        if kind != b"form-data" or part.headers.get(b"content-transfer-encoding", b"").lower() not in _PLAIN_ENCODINGS:
            raise _refused("A part is not plain form-data.", part.name)
        if part.name not in self._known and not part.is_file:
            raise RequestRefused("unknown_field", f"{part.name[:100]!r} is not a field of this form.", param=part.name)
        if part.name in self._seen:
            raise _refused(f"{part.name} is there twice.", part.name)
        self._seen.add(part.name)
        if part.is_file:
            self._file_begins(options.get(b"filename"))

    def _file_begins(self, file_name: bytes | None) -> None:
        if file_name is None:
            raise _refused("The part named file has no filename.", FILE_FIELD)
        self.file_name = shown_name(_text(file_name, "The filename"))
        given = self._part.headers.get(b"content-type", b"").partition(b";")[0].strip().decode("latin-1")
        if given and _MEDIA_TYPE.match(given) is None:
            raise _refused("The media type of the file is not one.", FILE_FIELD)
        self.media_type = given.lower() or DEFAULT_MEDIA_TYPE

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._part.is_file:
            self._pieces.append(data[start:end])
            return
        self._part.value.extend(data[start:end])
        if len(self._part.value) > MAX_FIELD_BYTES:
            raise _refused(f"{self._part.name} is longer than {MAX_FIELD_BYTES} bytes.", self._part.name)

    def _part_ends(self) -> None:
        if self._part.name is not None and not self._part.is_file:
            self.fields[self._part.name] = _text(bytes(self._part.value), self._part.name)

    def _all_ends(self) -> None:
        self._ended = True


def _boundary(content_type: str) -> bytes:
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data":
        raise RequestRefused(
            "media_type_unsupported",
            "The body is not multipart/form-data.",
            param="Content-Type",
            hint="Send the file as a form: `curl -F file=@report.csv`.",
        )
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= 70:
        raise _refused("The Content-Type names no boundary of 1 to 70 characters.", "Content-Type")
    return boundary


def _text(raw: bytes, what: str) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise _refused(f"{what} is not UTF-8.") from error


def _refused(message: str, param: str | None = None) -> RequestRefused:
    return RequestRefused("invalid_field", message, param=param, hint="Send one form with a part named file.")
