import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.events.cursors import MAX_CURSOR_CHARACTERS, CursorInvalid, parse_cursor, render_cursor

SECRET = b"s" * 32
LIST = {"path": "/v1/turns", "order": "desc", "status": None}
AFTER = "trn_01KBC3Y5M8Q2V7R9T4W6X1Z0AB"


@given(
    st.text(max_size=80).filter(lambda text: text.isprintable()),
    st.dictionaries(st.text("ab"), st.none() | st.text("xy")),
)
def test_a_cursor_says_where_it_was_made(after: str, filters: dict[str, str | None]) -> None:
    assert parse_cursor(render_cursor(after, filters, SECRET), filters, SECRET) == after


@pytest.mark.parametrize("changed", [{"path": "/v1/sessions"}, {"order": "asc"}, {"status": "failed"}])
def test_a_cursor_of_another_list_is_refused(changed: dict[str, str]) -> None:
    cursor = render_cursor(AFTER, LIST, SECRET)

    with pytest.raises(CursorInvalid, match="does not belong"):
        parse_cursor(cursor, {**LIST, **changed}, SECRET)


def test_a_cursor_made_with_another_secret_is_refused() -> None:
    with pytest.raises(CursorInvalid):
        parse_cursor(render_cursor(AFTER, LIST, b"t" * 32), LIST, SECRET)


@given(st.integers(min_value=0), st.characters(codec="ascii", categories=["L", "N"]))
def test_a_cursor_with_one_changed_character_says_nothing_new(place: int, character: str) -> None:
    cursor = render_cursor(AFTER, LIST, SECRET)
    place %= len(cursor)

    try:
        after = parse_cursor(cursor[:place] + character + cursor[place + 1 :], LIST, SECRET)
    except CursorInvalid:
        return
    assert after == AFTER


@pytest.mark.parametrize(
    "text", ["", "x", "not a cursor", "caf\u00e9", "A" * (MAX_CURSOR_CHARACTERS + 1), "====", "_w"]
)
def test_what_is_not_a_cursor_is_refused(text: str) -> None:
    with pytest.raises(CursorInvalid):
        parse_cursor(text, LIST, SECRET)
