"""Labels come and go without a restart: rotation with overlap, revocation that holds from the next request on."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.unit.guardian.kit import TOOL_CALL, House, running

from turnkeeper.acs import Keyring, KeyUnknown, ServerHello, Verdict
from turnkeeper.guardian.calls import Door
from turnkeeper.guardian.keyfolder import MAX_LABELS, KeyFolder

OLD, NEW = b"o" * 32, b"n" * 32


@dataclass
class Files:
    """Key files in memory (`KeyFiles`)."""

    contents: dict[str, bytes] = field(default_factory=dict[str, bytes])
    reads: int = 0
    unreadable: bool = False

    def stamp(self, label: str) -> object | None:
        """The content itself: it changes when the file does."""
        return self.contents.get(label)

    def read(self, label: str) -> bytes:
        """The file's bytes."""
        self.reads += 1
        if self.unreadable:
            raise PermissionError(13, "Permission denied")
        return self.contents[label]


def test_a_label_is_rotated_with_overlap_and_revoked_at_once(tmp_path: Path) -> None:
    files = Files({"old": OLD})
    door = Door("http", KeyFolder(files))

    async def work(here: House) -> None:
        first = here.agent(key_id="old", keyring=Keyring({"old": OLD}))
        first.door = door
        assert isinstance(await first.hello(), ServerHello)
        files.contents["new"] = NEW
        second = here.agent(key_id="new", keyring=Keyring({"new": NEW}))
        second.door = door
        assert isinstance(await second.hello(), ServerHello)
        assert (await first.tool()).decision == (await second.tool()).decision == "allow"

        del files.contents["old"]
        raw = await here.guardian.answer(first.body("steps/toolCallRequest", TOOL_CALL), door)
        assert b'"code":-32004' in raw
        assert b"signature" not in raw.replace(b"signature names", b"").replace(b"signature invalid", b"")
        # Whoever has the new key does not come into the session of the old one.
        heir = here.agent(key_id="new", keyring=Keyring({"new": NEW}), session_id=first.session_id)
        heir.door = door
        refused = await heir.tool()
        assert (refused.decision, refused.reason_codes) == ("deny", ("key_not_bound",))
        assert isinstance(await second.tool(), Verdict)

    running(tmp_path, work)


def test_a_file_is_read_when_it_changes_and_not_before() -> None:
    files = Files({"a": OLD})
    folder = KeyFolder(files)
    first = folder.session_key("a", "s")
    assert folder.session_key("a", "s") == first
    assert files.reads == 1
    files.contents["a"] = NEW
    assert folder.session_key("a", "s") == Keyring({"a": NEW}).session_key("a", "s") != first


@pytest.mark.parametrize("content", [b"short", b""])
def test_a_key_that_cannot_be_used_opens_nothing_not_even_what_the_old_one_did(content: bytes) -> None:
    files = Files({"a": OLD})
    folder = KeyFolder(files)
    folder.session_key("a", "s")
    files.contents["a"] = content
    with pytest.raises(KeyUnknown):
        folder.session_key("a", "s")


def test_a_key_that_cannot_be_read_opens_nothing() -> None:
    folder = KeyFolder(Files({"a": OLD}, unreadable=True))
    with pytest.raises(KeyUnknown):
        folder.session_key("a", "s")


@pytest.mark.parametrize("label", ["../a", "", ".", "a/b", "a\0", "x" * 129, "\ud800", "platform"])
def test_a_label_from_the_wire_is_no_path(label: str) -> None:
    files = Files({label: OLD})
    with pytest.raises(KeyUnknown):
        KeyFolder(files, refused=frozenset({"platform"})).session_key(label, "s")
    assert files.reads == 0


def test_a_bounded_number_of_keys_is_held() -> None:
    files = Files({str(number): OLD for number in range(MAX_LABELS + 1)})
    folder = KeyFolder(files)
    for label in files.contents:
        folder.session_key(label, "s")
    folder.session_key("0", "s")
    assert files.reads == MAX_LABELS + 2
