"""Texts while they are written: one state for all who follow, whatever comes twice or not at all (contract 11)."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.turns.open_texts import OpenText, OpenTexts, text_topic

BEGUN = OpenText("ses_1", "trn_1", "msg_1", 1, 7)


@dataclass
class Rung:
    """Whoever was told."""

    topics: list[str] = field(default_factory=list[str])

    def ring(self, topic: str) -> None:
        self.topics.append(topic)


def written(texts: OpenTexts, pieces: Sequence[str], begun: OpenText = BEGUN) -> OpenText:
    for piece in pieces:
        texts.write(begun, piece)
        begun = begun.with_more(piece)
    return begun


def test_what_is_written_is_there_whole_and_rings_each_time() -> None:
    rung = Rung()
    texts = OpenTexts(rung)
    written(texts, ["he", "llo"])

    assert [text.text for text in texts.of_session("ses_1")] == ["hello"]
    assert rung.topics == [text_topic("ses_1")] * 2


def test_a_message_that_is_closed_is_gone_with_its_reasoning() -> None:
    texts = OpenTexts(Rung())
    written(texts, ["hm"], replace(BEGUN, kind="reasoning"))
    written(texts, ["hello"])
    texts.close("msg_1")

    assert texts.of_session("ses_1") == ()


def test_the_text_that_was_touched_least_goes_first() -> None:
    texts = OpenTexts(Rung(), max_texts=2)
    for name in ("msg_1", "msg_2", "msg_1", "msg_3"):
        texts.write(replace(BEGUN, message_id=name), "x")

    assert [text.message_id for text in texts.of_session("ses_1")] == ["msg_1", "msg_3"]


def test_no_agent_fills_the_memory() -> None:
    texts = OpenTexts(Rung(), max_characters=100)
    for number in range(50):
        texts.write(replace(BEGUN, message_id=f"msg_{number}"), "x" * 30)

    assert sum(text.offset for text in texts.of_session("ses_1")) <= 100


@given(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=8), st.data())
def test_pieces_that_come_twice_or_late_never_change_the_text(pieces: list[str], data: st.DataObject) -> None:
    whole = "".join(pieces)
    starts = [len("".join(pieces[:index])) for index in range(len(pieces))]
    notes = list(zip(starts, pieces, strict=True))
    asked: list[str] = []
    texts = OpenTexts(Rung())
    texts.missing = asked.append
    for offset, piece in data.draw(st.lists(st.sampled_from(notes), max_size=20)) + notes:
        texts.hear(replace(BEGUN, text=piece), offset)
        assert whole.startswith("".join(text.text for text in texts.of_session("ses_1")))

    assert [text.text for text in texts.of_session("ses_1")] == [whole]


def test_a_piece_behind_a_gap_is_asked_for_and_not_taken() -> None:
    asked: list[str] = []
    texts = OpenTexts(Rung())
    texts.missing = asked.append
    texts.hear(replace(BEGUN, text="lo"), 3)

    assert (asked, texts.of_session("ses_1")) == (["msg_1"], ())
