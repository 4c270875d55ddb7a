"""Members of metadata are found by their name and text, however they were spelled and however many there are."""

from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.turns.metadata import MAX_FILTER_CHARACTERS, MAX_INDEXED_MEMBERS, term_of, terms_of


def test_a_member_is_found_by_its_text_as_the_app_spelled_it() -> None:
    terms = terms_of("turn", '{"a":"x","b":4711,"c":1.0,"d":true,"e":null,"f":123456789012345678901234567890}')

    wanted = {"a": "x", "b": "4711", "c": "1.0", "d": "true", "e": "null", "f": "123456789012345678901234567890"}
    assert terms == [term_of("turn", name, text) for name, text in wanted.items()]


def test_objects_lists_and_texts_longer_than_a_filter_are_not_found_by() -> None:
    longest, longer = "x" * MAX_FILTER_CHARACTERS, "x" * (MAX_FILTER_CHARACTERS + 1)

    terms = terms_of("turn", f'{{"a":[1],"b":{{"c":1}},"d":"{longest}","e":"{longer}","{longer}":1}}')

    assert terms == [term_of("turn", "d", longest)]


def test_as_many_members_as_the_limit_says_are_found_by() -> None:
    members = ",".join(f'"k{number}":{number}' for number in range(MAX_INDEXED_MEMBERS + 1))

    terms = terms_of("session", f'{{"list":[],{members}}}')

    assert len(terms) == MAX_INDEXED_MEMBERS
    assert terms[-1] == term_of("session", f"k{MAX_INDEXED_MEMBERS - 1}", str(MAX_INDEXED_MEMBERS - 1))


_TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
_MEMBERS = st.tuples(st.sampled_from(("session", "turn")), _TEXTS, _TEXTS)


@given(_MEMBERS, _MEMBERS)
def test_two_members_share_a_term_only_where_they_are_the_same(
    one: tuple[str, str, str], other: tuple[str, str, str]
) -> None:
    assert (term_of(*one) == term_of(*other)) == (one == other)  # pyright: ignore[reportArgumentType]
