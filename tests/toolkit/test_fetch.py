"""Pages of allowed hosts only: no private address, no way around by redirect, name server or odd spelling."""

import socket
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from bridle import MisuseError
from bridle.ports.addresses import is_public
from bridle.sandbox.host_rules import HostRefused, HostRules
from bridle.toolkit import fetch, fetch_tool
from bridle.toolkit.fetch_tool import PageFetcher, extract_text
from tests.suite.patience import PATIENCE_SECONDS

PAGE = "<html><head><title>t</title><script>x()</script></head><body><h1>Title &amp; more</h1><p>One\n two</p><ul><li>a<li>b</ul></body></html>"


pause = threading.Event()


class Pages(BaseHTTPRequestHandler):
    seen: ClassVar[list] = []

    def do_GET(self):
        Pages.seen.append((self.path, dict(self.headers)))
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path[4:])
            self.end_headers()
            return
        kinds = {"/page": "text/html; charset=utf-8", "/json": "application/json", "/picture": "image/png"}
        self.send_response(404 if self.path == "/absent" else 200)
        self.send_header("Content-Type", kinds.get(self.path, "text/plain; charset=latin-1"))
        self.end_headers()
        try:
            if self.path == "/endless":
                while True:
                    self.wfile.write(b"x" * 65_536)
            elif self.path == "/slow":
                while True:
                    self.wfile.write(b"x")
                    self.wfile.flush()
                    pause.wait(0.05)
            elif self.path == "/page":
                self.wfile.write(PAGE.encode())
            else:
                self.wfile.write("é".encode("latin-1"))
        except OSError:
            return

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def port():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def local(port):
    return PageFetcher((), (f"localhost:{port}",))


@contextmanager
def names(monkeypatch, **addresses):
    """A name server that gives these addresses, one list per question, and counts the questions."""
    asked = []
    real = socket.getaddrinfo

    def answer(host, port, *rest, **named):
        if host not in addresses:
            return real(host, port, *rest, **named)
        asked.append(host)
        rows = addresses[host]
        found = rows[min(len(asked), len(rows)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    yield asked


def test_pages_become_text(local, port):
    url = f"http://localhost:{port}"
    assert local.fetch_page(f"{url}/page") == "Title & more\nOne\ntwo\na\nb"
    assert local.fetch_page(f"{url}/json") == "\ufffd"
    assert local.fetch_page(f"{url}/plain") == "é"
    assert local.fetch_page(f"{url}/picture") == f"[{url}/picture: status 200, image/png, not text]"
    with pytest.raises(ConnectionError, match="status 404"):
        local.fetch_page(f"{url}/absent")
    assert local.fetch_page(f"{url}/to//page").startswith("Title")
    assert not any("ookie" in name or "uthorization" in name for _, headers in Pages.seen for name in headers)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://example.org/", "is not allowed (allowed: docs.example.com, *.wild.com)"),
        ("http://docs.example.com.evil.org/", "is not allowed"),
        ("http://evil.org/docs.example.com", "is not allowed"),
        ("http://wild.com.evil.org/", "is not allowed"),
        ("http://notwild.com/", "is not allowed"),
        ("http://docs.example.com@evil.org/", "without user and password"),
        ("http://user:pw@docs.example.com/", "without user and password"),
        ("http://docs.example.com\\@evil.org/", "percent-encoded"),
        ("http://docs.example.com\r\nHost: evil.org/", "percent-encoded"),
        ("http://docs.exàmple.com/", "percent-encoded"),
        ("file:///etc/passwd", "only https:// and http://"),
        ("ftp://docs.example.com/", "only https:// and http://"),
        ("gopher://docs.example.com/", "only https:// and http://"),
        ("docs.example.com", "only https:// and http://"),
        ("http:///path", "write the host"),
        ("http://docs.example.com:99999/", "is not an address"),
        ("http://docs.example.com:22/", "port 22 of the host 'docs.example.com' is not allowed"),
        ("http://docs.example.com:0/", "port 0 of the host"),
        ("http://a.wild.com:8080/", "allow=['a.wild.com:8080'] or --allow-host a.wild.com:8080"),
        ("http://[::1", "is not an address"),
    ],
)
def test_other_addresses_are_refused(url, why, monkeypatch):
    """Before a name server is asked, which would learn the name."""
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: pytest.fail(f"asked for {host}"))
    with pytest.raises(HostRefused) as refused:
        PageFetcher(("docs.example.com", "*.wild.com"), ()).fetch_page(url)
    assert why in str(refused.value)


def test_the_refusal_says_how_to_allow_a_host():
    with pytest.raises(HostRefused, match=r"allow=\['a.org'\] or --allow-host a.org"):
        PageFetcher((), ()).fetch_page("https://a.org/x")
    for host in (
        "https://a.org",
        "a.org/x",
        "",
        "*",
        "a b",
        "a.org:http",
        ":80",
        "[a.org",
        "me@a.org",
        "*.*",
        "*.",
        ".",
        "a..b",
        "*a.org",
        "müller.de",
        "\uff11.2.3.4",
        "[a.org]:80",
        "[1.2.3.4]",
        "a.org:",
    ):
        with pytest.raises(MisuseError, match="is not a host"):
            fetch(allow=[host])
    for host in ("a.org:0", "a.org:65536", "a.org:999999", "[fd12::1]:0"):
        with pytest.raises(MisuseError, match=r"no valid port; ports are 1 to 65535"):
            fetch(allow=[host])


@pytest.mark.parametrize(
    "url",
    ["http://[2001:4860::8888]/", "http://[2001:4860::8888]:8080/", "http://a.org:8080/", "http://1.2.3.4/"],
)
def test_what_a_refusal_proposes_allows_the_address(url):
    with pytest.raises(HostRefused) as refused:
        HostRules((), ()).parse_url(url)
    proposed = str(refused.value).rpartition(" ")[2]
    assert HostRules((proposed,), ()).parse_url(url)


@pytest.mark.parametrize("rule", ["2606:4700:0:0::1111", "[2606:4700::1111]", "[2606:4700::1111]:80"])
@pytest.mark.parametrize("host", ["2606:4700::1111", "2606:4700:0:0:0:0:0:1111"])
def test_spellings_of_an_address_are_the_same(rule, host):
    assert HostRules((rule,), ()).parse_url(f"http://[{host}]/")[1:] == ("2606:4700::1111", 80)


PRIVATE = (
    "127.0.0.1", "127.9.9.9", "10.0.0.1", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
    "224.0.0.1", "255.255.255.255", "198.18.0.1", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::", "ff02::1", "2001:db8::1", "2001::1",
    "64:ff9b:1::a00:1", "::127.0.0.1", "fec0::1", "::ffff:0:127.0.0.1",
)  # fmt: skip


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_are_refused(address, monkeypatch):
    assert not is_public(address)
    with (
        names(monkeypatch, **{"a.org": [["93.184.216.34", address]]}),
        pytest.raises(HostRefused, match="in a private network"),
    ):
        PageFetcher(("a.org",), ()).fetch_page("http://a.org/")


def test_a_wildcard_allows_private_hosts_too(monkeypatch):
    rules = HostRules((), ("*.corp.example", "fd12::1"))
    with names(monkeypatch, **{"a.corp.example": [["10.0.0.1"]], "corp.example": [["10.0.0.1"]]}):
        assert rules.resolve_host("a.corp.example", 80) == "10.0.0.1"
        for host, port in (("corp.example", 80), ("a.corp.example", 22)):
            with pytest.raises(HostRefused):
                rules.resolve_host(host, port)


@pytest.mark.parametrize(
    ("rule", "reached"),
    [
        ("a.org", {("a.org", 80), ("a.org", 443)}),
        ("A.org.", {("a.org", 80), ("a.org", 443)}),
        ("a.org:8080", {("a.org", 8080)}),
        ("*.a.org:8080", {("x.a.org", 8080)}),
        ("fd12::1", {("fd12::1", 80), ("fd12::1", 443)}),
        ("[fd12::1]:8080", {("fd12::1", 8080)}),
    ],
)
def test_a_rule_names_its_ports(rule, reached):
    hosts, found = ("a.org", "x.a.org", "b.org", "fd12::1"), set()
    for host in hosts:
        for port in (22, 80, 443, 8080):
            url = f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"
            try:
                found.add(HostRules((rule,), ()).parse_url(url)[1:])
            except HostRefused:
                continue
    assert found == reached


@pytest.mark.parametrize("address", ["93.184.216.34", "2606:2800:220:1::", "::ffff:8.8.8.8"])
def test_public_addresses_are_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "url", ["http://2130706433/", "http://0x7f000001/", "http://127.1/", "http://[::ffff:127.0.0.1]/"]
)
def test_other_spellings_of_an_address_are_resolved_before_the_check(url):
    host = url.removeprefix("http://").rstrip("/").strip("[]")
    with pytest.raises((HostRefused, ConnectionError), match=r"private network|not found"):
        PageFetcher((host,), ()).fetch_page(url)


def test_the_address_that_was_checked_is_the_one_that_is_used(monkeypatch):
    """A name server that answers the second question with a private address is not asked a second one."""
    used = []

    def connect(address, **_):
        used.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", connect)
    with names(monkeypatch, **{"a.org": [["93.184.216.34"], ["127.0.0.1"]]}) as asked:
        with pytest.raises(ConnectionRefusedError):
            PageFetcher(("a.org",), ()).fetch_page("http://a.org/")
        assert asked == ["a.org"] and used == [("93.184.216.34", 80)]


@pytest.mark.parametrize(
    "target", ["http://127.0.0.1:{port}/page", "http://evil.org/", "file:///etc/passwd", "//127.0.0.1/"]
)
def test_redirects_are_checked_like_first_requests(local, port, target):
    with pytest.raises(HostRefused):
        local.fetch_page(f"http://localhost:{port}/to/{target.format(port=port)}")


def test_redirects_end(local, port):
    with pytest.raises(HostRefused, match="more than 5 redirects"):
        local.fetch_page(f"http://localhost:{port}" + "/to/" * 7 + "/page")


def test_endless_and_slow_pages_end(local, port, monkeypatch):
    assert local.fetch_page(f"http://localhost:{port}/endless").endswith("[cut after 2,097,152 bytes]")
    monkeypatch.setattr(fetch_tool, "SECONDS_MAX", 0.5)
    with pytest.raises(TimeoutError):
        local.fetch_page(f"http://localhost:{port}/slow")


SLOW_STARTS = {
    "nothing": ("http", b""),
    "status": ("http", b"HTTP/1.1 2"),
    "header": ("http", b"HTTP/1.1 200 OK\r\nX-Slow: "),
    "headers": ("http", b"HTTP/1.1 100 Continue\r\nX: "),
    "chunk size": (
        "http",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n",
    ),
    "redirect": ("http", b"HTTP/1.1 302 Found\r\nLocation: /x\r\nX: "),
    "handshake": ("https", b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xfb"),
}


@pytest.mark.parametrize("start", SLOW_STARTS)
def test_a_server_that_sends_slowly_holds_no_thread_and_no_socket(start, monkeypatch):
    """Each byte comes in time for a timeout of the socket; the deadline is for all of them together."""
    scheme, data = SLOW_STARTS[start]
    closed = threading.Event()

    def drip(listener):
        with listener, listener.accept()[0] as client:
            try:
                client.sendall(data)
                for _ in range(2_000):
                    client.sendall(b"0")
                    pause.wait(0.02)
            except OSError:
                closed.set()

    monkeypatch.setattr(fetch_tool, "SECONDS_MAX", 0.5)
    listener = socket.create_server(("127.0.0.1", 0))
    rule = f"localhost:{listener.getsockname()[1]}"
    thread = threading.Thread(target=drip, args=(listener,))
    thread.start()
    began = time.monotonic()
    with pytest.raises(TimeoutError, match=r"not complete after 0\.5 s"):
        PageFetcher((), (rule,)).fetch_page(f"{scheme}://{rule}/")
    took = time.monotonic() - began
    assert closed.wait(PATIENCE_SECONDS), "the socket is closed"
    assert took < 10, "20 times the deadline, on a busy machine"
    thread.join()


def test_text_of_odd_pages():
    assert extract_text("<p>a<br>b</p><style>c</style><script>d") == "a\nb"
    assert extract_text("<head><title>x<body>y") == "y"
    assert extract_text("plain &lt;b&gt;") == "plain <b>"
    assert extract_text("a < b <3 </ c> d") == "a < b <3 d"
    assert extract_text("<p title='a>b' id=x\">c</p><!-- <p>no --><?no?>d") == "c\nd"
    assert extract_text("<svg/>a<script>if (a</b) '</scripts>'</SCRIPT >b<a") == "ab"
    assert extract_text(f"a&#{'9' * 5_000};b&#x{'f' * 5_000}c") == "a\ufffdb\ufffd"


MARKUP = ("<", "<!", "</", "<a ", "<a x='", '<a x="', "<a =", "<!--", "&", "<?", "<![", "<script>", "</a ", "<!a",
          "<title>", "<script></", "<![CDATA[", "<head>", "<svg>", "&#", "&#1", "= ", "<a b=\"'")  # fmt: skip


@pytest.mark.parametrize("markup", MARKUP)
def test_large_pages_are_read_in_time(markup):
    """An eighth of the largest page, in an eighth of the time; html.parser would take hours for some of them."""
    count = fetch_tool.BODY_BYTES_MAX // 8 // len(markup)
    began = time.process_time()
    for page in (markup * count, f"<a {markup * count}>"):
        extract_text(page)
    assert time.process_time() - began < fetch_tool.SECONDS_MAX / 8
