"""Rows of one statement, many at a time: nothing is lost, doubled or moved."""

from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.store import chain_sql as sql
from turnkeeper.store.chain_postgres_batches import MAX_ROWS, batches

REPEATABLE = (sql.INSERT_NONCE, sql.INSERT_STEP, sql.UPDATE_SESSION)


@given(st.sampled_from(REPEATABLE), st.integers(0, 300))
def test_every_row_is_sent_once_and_in_order(statement: str, count: int) -> None:
    width = statement.count("?")
    rows = [tuple(range(number * width, (number + 1) * width)) for number in range(count)]
    sent = list(batches(statement, rows))
    assert [value for _, values in sent for value in values] == list(range(count * width))
    assert all(text.count("?") == len(values) for text, values in sent)


@given(st.integers(1, 300))
def test_there_are_few_statements_and_few_texts(count: int) -> None:
    sent = list(batches(sql.INSERT_NONCE, [("s", str(number)) for number in range(count)]))
    sizes = [len(values) // 2 for _, values in sent]
    assert all(size.bit_count() == 1 and size <= MAX_ROWS for size in sizes)
    assert len(sent) <= count // MAX_ROWS + MAX_ROWS.bit_length()


def test_what_meets_a_row_twice_goes_row_by_row() -> None:
    rows = [("s", "p", "r", None, "trusted", 0)] * 2
    assert list(batches(sql.REMEMBER, rows)) == [(sql.REMEMBER, row) for row in rows]
    assert [text for text, _ in batches(sql.CLOSE_TURN, [()])] == [sql.CLOSE_TURN]
