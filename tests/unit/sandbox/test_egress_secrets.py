"""Values go out for placeholders, and placeholders come back for values, however the bytes are cut."""

from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.destinations import parse_destination, parse_secret_host
from turnkeeper.sandbox.egress_secrets import BoxSecret, BoxSecrets, HostSecrets

LONG = BoxSecret("LONG", "tkp_long", (parse_secret_host("*.site.test"),), "abababab-secret")
SHORT = BoxSecret("SHORT", "tkp_short", (parse_secret_host("api.site.test"),), "abababab")
BOTH = HostSecrets([SHORT, LONG])
CUTS = st.lists(st.sampled_from([b"ab", b"abababab", b"-secret", b"a", b"b", b"x", b"tkp_long"]), max_size=12)


@given(CUTS)
def test_a_body_is_masked_the_same_however_it_is_cut(pieces: list[bytes]) -> None:
    mask = BOTH.mask()
    masked = b"".join(mask.feed(piece) for piece in pieces) + mask.rest()
    assert SHORT.content not in masked
    assert LONG.content not in masked


def test_what_cannot_begin_a_value_is_not_held_back() -> None:
    mask = BOTH.mask()
    assert mask.feed(b"data: hello\n\n") == b"data: hello\n\n"
    assert (mask.feed(b"x abab"), mask.feed(b"a y"), mask.rest()) == (b"x ", b"ababa y", b"")


def test_a_secret_is_for_its_hosts_and_says_so_to_nobody() -> None:
    secrets = BoxSecrets([LONG, SHORT])
    assert secrets.variables == {"LONG": "tkp_long", "SHORT": "tkp_short"}
    assert secrets.of(parse_destination("site.test:443")) is None
    assert secrets.of(parse_destination("www.site.test:80")) is None
    www = secrets.of(parse_destination("www.site.test:443"))
    assert www is not None
    assert www.added([(b"a", b"tkp_long tkp_short")])[0] == (b"a", b"abababab-secret tkp_short")
    assert "abababab" not in repr(secrets.rules) + repr(LONG)
