"""What a program may ask of the egress proxy: strictly read, newly written."""

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnkeeper.destinations import Destination
from turnkeeper.sandbox.egress_http import EgressRefused, answer_headers, read_inner_request, read_request


def parsed(text: str) -> h11.Request:
    """The head of a request as the proxy's own reader gives it."""
    connection = h11.Connection(our_role=h11.SERVER)
    connection.receive_data(text.encode("latin-1"))
    event = connection.next_event()
    assert isinstance(event, h11.Request)
    return event


def test_a_request_goes_on_in_origin_form_without_what_was_for_the_proxy() -> None:
    wanted = read_request(
        parsed(
            "POST HTTP://Site.test/a?b HTTP/1.1\r\nHost: SITE.test:80\r\nProxy-Authorization: Basic x\r\n"
            "Connection: close, X-Hop\r\nX-Hop: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nExpect: 100-continue\r\n"
            "Content-Length: 3\r\nX-Kept: yes\r\n\r\n"
        )
    )
    assert wanted.destination == Destination("site.test", 80)
    assert wanted.via == "http"
    assert wanted.forward is not None
    assert (wanted.forward.method, wanted.forward.target) == (b"POST", b"/a?b")
    assert sorted(wanted.forward.headers) == [
        (b"connection", b"close"),
        (b"content-length", b"3"),
        (b"host", b"site.test"),
        (b"x-kept", b"yes"),
    ]


def test_a_query_without_a_path_gets_one() -> None:
    wanted = read_request(parsed("GET http://site.test?x HTTP/1.1\r\nHost: site.test\r\n\r\n"))
    assert wanted.forward is not None
    assert wanted.forward.target == b"/?x"


def test_a_tunnel_may_leave_the_port_out_of_its_host_header() -> None:
    wanted = read_request(parsed("CONNECT [::1]:443 HTTP/1.1\r\nHost: [::1]\r\n\r\n"))
    assert (wanted.destination, wanted.forward, wanted.via) == (Destination("::1", 443), None, "connect")
    assert read_request(parsed("CONNECT [::1]:443 HTTP/1.0\r\n\r\n")) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "GET / HTTP/1.1\r\nHost: site.test\r\n\r\n",
        "GET https://site.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n",
        "GET ftp://site.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: site.test\r\n\r\n",
        "GET http://site.test/#x HTTP/1.1\r\nHost: site.test\r\n\r\n",
        "GET http:///x HTTP/1.1\r\nHost: site.test\r\n\r\n",
        "GET http://user:pw@site.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n",
        "GET http://site.test\\@evil.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n",
        "GET http://[fe80::1%25lo]/ HTTP/1.1\r\nHost: [fe80::1%25lo]\r\n\r\n",
        "GET http://site.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        "GET http://site.test/ HTTP/1.1\r\nHost: site.test:8080\r\n\r\n",
        "GET http://site.test/ HTTP/1.0\r\n\r\n",
        "POST http://site.test/ HTTP/1.1\r\nHost: site.test\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST http://site.test/ HTTP/1.1\r\nHost: site.test\r\nContent-Length: 3\r\nConnection: content-length\r\n\r\n",
        "CONNECT site.test HTTP/1.1\r\nHost: site.test\r\n\r\n",
        "CONNECT http://site.test:443 HTTP/1.1\r\nHost: site.test\r\n\r\n",
        "CONNECT site.test:443 HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        "CONNECT site.test:443 HTTP/1.1\r\nHost: site.test:80\r\n\r\n",
        "CONNECT user@site.test:443 HTTP/1.1\r\nHost: site.test\r\n\r\n",
        "CONNECT site.test:443 HTTP/1.1\r\nHost: site.test\r\nContent-Length: 3\r\n\r\n",
        "CONNECT site.test:443/ HTTP/1.1\r\nHost: site.test\r\n\r\n",
        "CONNECT 2130706433:443 HTTP/1.1\r\nHost: 2130706433\r\n\r\n",
    ],
)
def test_what_two_readers_could_understand_differently_is_refused(text: str) -> None:
    with pytest.raises(EgressRefused) as refused:
        read_request(parsed(text))
    assert refused.value.status == 400


@pytest.mark.parametrize(
    "text",
    [
        "GET http://site.test/ HTTP/1.1\r\nHost: site.test\r\nHost: evil.test\r\n\r\n",
        "POST http://site.test/ HTTP/1.1\r\nHost: site.test\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        "POST http://site.test/ HTTP/1.1\r\nHost: site.test\r\nContent-Length: +3\r\n\r\n",
        "POST http://site.test/ HTTP/1.1\r\nHost: site.test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        "POST http://site.test/ HTTP/1.1\r\nHost: site.test\r\nContent-Length : 3\r\n\r\n",
        "GET http://site.test/ HTTP/1.1\r\nHost: site.test\r\n X: folded\rinto\r\n\r\n",
    ],
)
def test_the_reader_itself_refuses_what_is_no_http(text: str) -> None:
    with pytest.raises(h11.RemoteProtocolError):
        parsed(text)


def test_a_request_inside_tls_keeps_its_path_and_names_the_host_it_was_connected_to() -> None:
    asked = parsed("GET /a?b HTTP/1.1\r\nHost: SITE.test\r\nConnection: keep-alive\r\nX: 1\r\n\r\n")
    request = read_inner_request(asked, Destination("site.test", 443))
    assert (request.target, dict(request.headers)) == (
        b"/a?b",
        {b"host": b"site.test", b"x": b"1", b"connection": b"close"},
    )


@pytest.mark.parametrize(
    "text",
    [
        "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: site.test:8443\r\n\r\n",
        "GET http://evil.test/ HTTP/1.1\r\nHost: site.test\r\n\r\n",
        "CONNECT site.test:443 HTTP/1.1\r\nHost: site.test\r\n\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: site.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_inside_tls_a_request_for_another_host_gets_no_secret(text: str) -> None:
    with pytest.raises(EgressRefused):
        read_inner_request(parsed(text), Destination("site.test", 443))


def test_an_answers_hop_headers_stay_with_us() -> None:
    given_headers = [(b"connection", b"x-a"), (b"x-a", b"1"), (b"transfer-encoding", b"chunked"), (b"etag", b"e")]
    assert answer_headers(given_headers) == [(b"etag", b"e"), (b"connection", b"close")]


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=40))
def test_the_connection_and_the_host_header_always_name_the_same(authority: str) -> None:
    try:
        text = f"GET http://{authority}/ HTTP/1.1\r\nHost: {authority}\r\n\r\n"
        wanted = read_request(parsed(text))
    except (EgressRefused, h11.RemoteProtocolError):
        return
    assert wanted.forward is not None
    host = dict(wanted.forward.headers)[b"host"].decode()
    assert host in {str(wanted.destination), wanted.destination.shown_host}
