"""Hosts and ports in one spelling, and allow lists of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.destinations import (
    Destination,
    DestinationInvalid,
    HostRule,
    any_allows,
    parse_destination,
    parse_rule,
    parse_rules,
)

NAMES = st.from_regex(r"[a-z]{1,8}(\.[a-z]{1,8}){0,3}", fullmatch=True)
RULES = st.tuples(st.sampled_from(["", "*."]), NAMES, st.sampled_from(["", ":80", ":443", ":8080"])).map(
    lambda parts: parse_rule("".join(parts))
) | st.sampled_from([parse_rule("*"), parse_rule("*:8080")])


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("Example.COM:443", "example.com", 443),
        ("example.com.:80", "example.com", 80),
        ("10.0.0.1:8080", "10.0.0.1", 8080),
        ("[::1]:443", "::1", 443),
        ("[2001:DB8:0::1]:443", "2001:db8::1", 443),
        ("_dmarc.x-1.example:1", "_dmarc.x-1.example", 1),
    ],
)
def test_a_destination_has_one_spelling(text: str, host: str, port: int) -> None:
    assert parse_destination(text) == Destination(host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":80",
        "example.com",
        "example.com:0",
        "example.com:65536",
        "example.com:080808",
        "example.com:+80",
        "example.com:8 0",
        "user@example.com:80",
        "user:pw@example.com:80",
        "example.com:80/",
        "example.com\\.evil:80",
        "ex%61mple.com:80",
        "exämple.com:80",
        "a..b:80",
        "-a.b:80",
        "[fe80::1%25eth0]:80",
        "[fe80::1%eth0]:80",
        "[127.0.0.1]:80",
        "::1:80",
        "2130706433:80",
        "0x7f000001:80",
        "127.1:80",
        "0177.0.0.1:80",
        "1.2.3.256:80",
        "a" * 254 + ":80",
        "example.com\r\n:80",
        "*.example.com:80",
    ],
)
def test_a_destination_that_others_may_read_otherwise_is_refused(text: str) -> None:
    with pytest.raises(DestinationInvalid):
        parse_destination(text)


@pytest.mark.parametrize(
    ("rule", "text", "allowed"),
    [
        ("example.com", "example.com:443", True),
        ("example.com", "example.com:80", True),
        ("example.com", "example.com:8080", False),
        ("example.com:8080", "example.com:8080", True),
        ("example.com:8080", "example.com:443", False),
        ("example.com", "www.example.com:443", False),
        ("*.example.com", "www.example.com:443", True),
        ("*.example.com", "a.b.example.com:443", True),
        ("*.example.com", "example.com:443", False),
        ("*.example.com", "evilexample.com:443", False),
        ("example.com", "example.com.evil.test:443", False),
        ("*", "anything.test:443", True),
        ("*", "1.1.1.1:443", False),
        ("10.0.0.0/8", "10.2.3.4:80", True),
        ("10.0.0.0/8:9000", "10.2.3.4:9000", True),
        ("10.0.0.0/8", "11.2.3.4:80", False),
        ("10.0.0.1", "10.0.0.1:80", True),
        ("fd00::/8", "[fd00::1]:80", True),
        ("[::1]:9000", "[::1]:9000", True),
    ],
)
def test_a_rule_allows_what_it_names_and_no_neighbour(rule: str, text: str, allowed: bool) -> None:
    assert any_allows(parse_rules([rule]), parse_destination(text)) is allowed


@pytest.mark.parametrize(
    "text", ["", "*.", "**", "a.*.b", "*.10.0.0.1", "http://a.b", "a.b:", "a.b:99999", "10.0.0.1/8"]
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(DestinationInvalid):
        parse_rule(text)


@given(RULES, RULES, NAMES, st.sampled_from([80, 443, 8080]))
def test_what_a_covered_rule_allows_the_covering_one_allows(
    outer: HostRule, inner: HostRule, name: str, port: int
) -> None:
    destination = Destination(name, port)
    if outer.covers(inner) and inner.allows(destination):
        assert outer.allows(destination)
