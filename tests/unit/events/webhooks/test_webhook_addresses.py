from ipaddress import ip_address

import pytest

from turnkeeper.events.webhooks.addresses import (
    AddressRefused,
    check_address,
    check_url,
    parse_networks,
    pick_address,
)
from turnkeeper.events.webhooks.endpoints import WebhookInvalid

SPECIAL = [
    "127.0.0.1",
    "127.8.8.8",
    "0.0.0.0",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "100.64.0.1",
    "169.254.169.254",
    "198.18.0.1",
    "203.0.113.9",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "2001:db8::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::7f00:1",
    "2002:7f00:0001::",
    "2002:c0a8:0101::1",
    "fec0::1",
]


@pytest.mark.parametrize("text", SPECIAL)
def test_an_address_that_is_not_public_is_refused(text: str) -> None:
    with pytest.raises(AddressRefused):
        check_address(ip_address(text), allowed=())


@pytest.mark.parametrize("text", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::101:101"])
def test_a_public_address_is_taken(text: str) -> None:
    check_address(ip_address(text), allowed=())


def test_an_operator_may_list_a_network() -> None:
    allowed = parse_networks(["10.0.0.0/8", "::1/128"])
    for text in ("10.1.2.3", "::1", "::ffff:10.1.2.3"):
        check_address(ip_address(text), allowed=allowed)
    with pytest.raises(AddressRefused):
        check_address(ip_address("192.168.1.1"), allowed=allowed)


def test_a_name_with_a_public_and_a_private_address_is_refused() -> None:
    with pytest.raises(AddressRefused):
        pick_address(["1.1.1.1", "127.0.0.1"], allowed=())
    assert pick_address(["1.1.1.1", "1.0.0.1"], allowed=()) == "1.1.1.1"


def test_a_name_without_an_address_is_refused() -> None:
    with pytest.raises(AddressRefused):
        pick_address([], allowed=())


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/hook",
        "https://[::1]/hook",
        "https://[::ffff:10.0.0.1]/",
        "http://example.com/",
        "ftp://example.com/",
        "https:///hook",
        "https://user@example.com/",
        "https://example.com/#part",
        "https://example.com:99999/",
        "https://exa mple.com/",
        "https://ex\u00e4mple.com/",
        "https://example.com/" + "a" * 2048,
        "example.com",
        "",
        "https://[::1",
    ],
)
def test_a_url_that_cannot_be_an_endpoint_is_refused(url: str) -> None:
    with pytest.raises(WebhookInvalid):
        check_url(url, allow_http=False, allowed=())


def test_http_is_taken_where_the_operator_says_so() -> None:
    assert check_url("http://example.com:8000/a?b=c", allow_http=True, allowed=()).port == 8000
