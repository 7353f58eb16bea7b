"""Commands reach allowed hosts through the proxy, and nothing else: real clients, odd requests, hostile name servers."""

import asyncio
import hashlib
import json
import socket
import sys
import threading
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridle import MisuseError, toolkit
from bridle.sandbox import find_sandbox
from bridle.sandbox.launcher.proxy import CONNECTIONS_MAX, HEAD_BYTES_MAX, AllowListProxy
from bridle.sandbox.local import MECHANISMS, LocalSandbox, find_problem
from bridle.tools import run_process

HOST = "127.0.0.2"
"""The allowed host: an address of this machine that NO_PROXY does not name."""


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen: ClassVar[list] = []
    files: ClassVar[dict] = {}

    def do_GET(self):
        Server.seen.append((self.path, dict(self.headers)))
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", self.path[4:])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = Server.files.get(self.path, f"page {self.path}".encode())
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if self.path.startswith("/simple") else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        answer = hashlib.sha256(body).hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def port():
    with ThreadingHTTPServer((HOST, 0), Server) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture(params=MECHANISMS)
def box(request, tmp_path, port):
    if problem := find_problem(request.param):
        pytest.skip(f"{request.param}: {problem}")
    (tmp_path / "work").mkdir()
    hosts: Any = {"allow": ["pypi.test"], "allow_private": [f"{HOST}:{port}"]}
    return LocalSandbox(tmp_path / "work", mechanism=request.param, **hosts)


def run(box, *argv, **options):
    return asyncio.run(run_process(argv, sandbox=box, timeout=60, **options))


def test_curl_and_urllib_reach_an_allowed_host(box, port):
    url = f"http://{HOST}:{port}"
    assert run(box, "curl", "-sS", f"{url}/a").stdout == "page /a"
    assert run(box, "curl", "-sS", "--proxytunnel", f"{url}/b", f"{url}/c").stdout == "page /bpage /c"
    body = "x" * 3_000_000
    sent = run(box, "curl", "-sS", "--data-binary", "@-", f"{url}/post", stdin=body)
    assert sent.stdout == hashlib.sha256(body.encode()).hexdigest(), sent
    program = f"import urllib.request as u; print(u.urlopen('{url}/py').read().decode())"
    assert run(box, sys.executable, "-c", program).stdout == "page /py\n"


@pytest.mark.slow
def test_pip_installs_from_an_allowed_index(box, port, tmp_path):
    wheel = tmp_path / "tiny_sample-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        made.writestr("tiny_sample.py", "ANSWER = 42\n")
        about = "tiny_sample-1.0.dist-info"
        made.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-sample\nVersion: 1.0\n")
        made.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{about}/RECORD", "")
    Server.files[f"/{wheel.name}"] = wheel.read_bytes()
    Server.files["/simple/tiny-sample/"] = f'<a href="/{wheel.name}">{wheel.name}</a>'.encode()
    index = ["--index-url", f"http://{HOST}:{port}/simple", "--trusted-host", HOST]
    words = [sys.executable, "-m", "pip", "install", "-q", "--no-cache-dir", "--target", "found", *index]
    done = run(box, *words, "tiny-sample")
    assert done.exit_code == 0, done.stderr
    shown = run(
        box,
        sys.executable,
        "-c",
        "import sys; sys.path.insert(0, 'found'); import tiny_sample as t; print(t.ANSWER)",
    )
    assert shown.stdout == "42\n"
    refused = run(box, *words[:-3], "https://elsewhere.test/simple", "--retries", "0", "tiny-sample")
    assert refused.exit_code != 0 and "'elsewhere.test' is not allowed" in refused.stderr


def test_everything_else_is_refused_and_the_refusal_names_the_way(box, port):
    refused = run(box, "curl", "-sS", "https://evil.test/")
    assert refused.exit_code != 0
    assert (
        "bridle sandbox: not connected: the host 'evil.test' is not allowed (allowed: pypi.test,"
        f" 127.0.0.2:{port}); the user can allow it with allow=['evil.test'] or --allow-host evil.test"
    ) in refused.stderr
    assert "403" in run(box, "curl", "-sSi", f"http://127.0.0.3:{port}/").stdout
    redirect = run(box, "curl", "-sSL", f"http://{HOST}:{port}/to/http://127.0.0.1:{port}/x")
    assert "page" not in redirect.stdout
    direct = run(box, "curl", "-sS", "--noproxy", "*", f"http://{HOST}:{port}/direct")
    assert direct.exit_code == 7 and not any(path == "/direct" for path, _ in Server.seen)


def test_servers_of_the_command_itself_need_no_proxy(box):
    program = """
import threading, urllib.request as u
from http.server import *
s = ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler)
threading.Thread(target=s.serve_forever, daemon=True).start()
print(u.urlopen(f"http://localhost:{s.server_address[1]}/").status)
"""
    assert run(box, sys.executable, "-c", program).stdout == "200\n"


def test_no_host_is_reached_unless_it_is_allowed(tmp_path):
    for wrong in ({"allow": ["https://a.org"]}, {"allow_private": ["a/b"]}, {"allow": ["*"]}):
        with pytest.raises(MisuseError, match="is not a host"):
            LocalSandbox(tmp_path, **wrong)  # type: ignore[arg-type]
    with pytest.raises(MisuseError, match="network=True reaches every host"):
        find_sandbox(tmp_path, network=True, allow=["a.org"])
    wrapped = LocalSandbox(tmp_path).wrap(["true"], cwd=None, environment={})
    assert json.loads(wrapped.argv[-1])["hosts"] is None


def test_tools_of_the_toolkit_name_the_hosts_they_reach(tmp_path):
    if not any(find_problem(mechanism) == "" for mechanism in MECHANISMS):
        pytest.skip("no sandbox works here")
    by_name = {tool.spec.name: tool.spec.description for tool in toolkit.tools(tmp_path, allow=["pypi.org"])}
    assert "The network reaches only pypi.org, through HTTP_PROXY." in by_name["shell"]
    assert "network" not in next(
        tool.spec.description for tool in toolkit.tools(tmp_path) if tool.spec.name == "shell"
    )


class Proxied:
    """A proxy in this process, with the sockets that it opens."""

    def __init__(self, monkeypatch, allow=(), private=(HOST,), names=None):
        self.opened, self.asked = [], []
        real_connect, real_names = socket.create_connection, socket.getaddrinfo

        def connect(address, *rest, **named):
            self.opened.append(address)
            return real_connect(address, *rest, **named)

        def look_up(host, port, *rest, **named):
            self.asked.append(host)
            found = (names or {}).get(host)
            if found is None:
                return real_names(host, port, *rest, flags=socket.AI_NUMERICHOST, **named)  # type: ignore[misc]
            address = found[min(self.asked.count(host), len(found)) - 1]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

        monkeypatch.setattr("bridle.sandbox.launcher.proxy.socket.create_connection", connect)
        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        self._connect = real_connect
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=CONNECTIONS_MAX)
        self.proxy = AllowListProxy(list(allow), list(private))
        ours, theirs = socket.socketpair()
        self.proxy.start(ours)
        socket.send_fds(theirs, [b"."], [self._listener.fileno()])
        theirs.close()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in threading.enumerate():
            if getattr(getattr(thread, "_target", None), "__self__", None) is self.proxy:
                thread.join(20)
                assert not thread.is_alive()

    def ask(self, data: bytes, *, end=True) -> bytes:
        with socket.socket() as client:
            client.settimeout(20)
            client.connect(self._listener.getsockname())
            client.sendall(data)
            if end:
                client.shutdown(socket.SHUT_WR)
            found = b""
            try:
                while piece := client.recv(65_536):
                    found += piece
            except ConnectionResetError:
                pass  # it answered before it had read everything
            return found


@pytest.fixture
def make_proxied(monkeypatch):
    made = []

    def make(**options):
        made.append(Proxied(monkeypatch, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def proxied(make_proxied, port):
    return make_proxied(private=(HOST, f"{HOST}:{port}"))


def test_the_address_that_was_checked_is_the_one_that_is_used(make_proxied, monkeypatch, port):
    """The name server gives the private address of the server at the second question, which is not asked."""
    rule = f"a.test:{port}"
    proxied = make_proxied(allow=[rule], private=(), names={"a.test": ["93.184.216.34", HOST]})
    monkeypatch.setattr("bridle.sandbox.launcher.proxy.CONNECT_SECONDS", 0.2)
    assert b" 502 " in proxied.ask(f"CONNECT a.test:{port} HTTP/1.1\r\n\r\n".encode())
    assert proxied.opened == [("93.184.216.34", port)] and proxied.asked.count("a.test") == 1


@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "0.0.0.0"])
@pytest.mark.parametrize("request_line", ["CONNECT a.test:80 HTTP/1.1", "GET http://a.test/ HTTP/1.1"])
def test_allowed_names_with_private_addresses_are_refused(make_proxied, address, request_line):
    proxied = make_proxied(allow=["a.test"], private=(), names={"a.test": [address]})
    assert b" 403 " in proxied.ask(f"{request_line}\r\n\r\n".encode()) and proxied.opened == []


REFUSED = (
    "CONNECT 127.0.0.1:80 HTTP/1.1", "CONNECT 127.0.0.2 HTTP/1.1", "CONNECT 127.0.0.2:80/x HTTP/1.1",
    "CONNECT 127.0.0.2:80@127.0.0.1:80 HTTP/1.1", "CONNECT user@127.0.0.2:80 HTTP/1.1", "CONNECT [::1]:80 HTTP/1.1",
    "CONNECT 127.0.0.2:99999 HTTP/1.1", "CONNECT  127.0.0.2:80 HTTP/1.1", "CONNECT 127.0.0.2:80", "CONNECT 127.2:80 HTTP/1.1",
    "connect 127.0.0.2:80 HTTP/1.1", "CONNECT 127.0.0.2:80 HTTP/2.0", "CONNECT ::ffff:127.0.0.2:80 HTTP/1.1",
    "GET / HTTP/1.1", "GET https://127.0.0.2/ HTTP/1.1", "GET http://127.0.0.3/ HTTP/1.1", "GET file:///etc/passwd HTTP/1.1",
    "GET http://127.0.0.2\\@127.0.0.3/ HTTP/1.1", "GET http://2130706434/ HTTP/1.1", "GET http://0x7f000002/ HTTP/1.1",
    "GET http://127.0.0.2\t/ HTTP/1.1", "GET http://127.0.0.2/\x00 HTTP/1.1", "GET //127.0.0.2/ HTTP/1.1", "", "\x16\x03\x01", "SSH-2.0-x",
    "CONNECT 127.0.0.2:22 HTTP/1.1", "CONNECT 127.0.0.2:0 HTTP/1.1", "GET http://127.0.0.2:5432/ HTTP/1.1",
    "GET http://localhost/ HTTP/1.1", "GET http://127.0.0.2.evil.test/ HTTP/1.1", "OPTIONS * HTTP/1.1",
)  # fmt: skip


@pytest.mark.parametrize("line", REFUSED)
def test_odd_requests_open_no_connection(proxied, line):
    answer = proxied.ask(line.encode("latin-1") + b"\r\nHost: 127.0.0.2\r\n\r\n")
    assert answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 400 ")) and proxied.opened == []


@pytest.mark.parametrize(
    "headers",
    [
        "Transfer-Encoding: chunked", "transfer-encoding : chunked", " folded: x", "a: b\nTransfer-Encoding: chunked",
        "Content-Length: 3\r\nContent-Length: 4", "Content-Length: +3", "Content-Length: 0x3", "no colon", "a\x00b: c",
        "Content-Length: 3, 4", "Content-Length:", "bad header: x", "x: a\rHost: other",
    ],
)  # fmt: skip
def test_requests_that_servers_could_read_differently_are_refused(proxied, port, headers):
    answer = proxied.ask(f"POST http://{HOST}:{port}/ HTTP/1.1\r\n{headers}\r\n\r\nabc".encode("latin-1"))
    assert answer.startswith(b"HTTP/1.1 400 ") and proxied.opened == []


def test_a_request_names_the_host_of_its_address_and_no_second_one_follows(make_proxied):
    """The server keeps reading after its answer: nothing else may arrive."""
    received = []

    def serve(listener):
        with listener, listener.accept()[0] as client:
            stream = client.makefile("rb")
            received.extend(iter(stream.readline, b"\r\n"))
            client.sendall(b"HTTP/1.1 200 OK\r\n\r\npage")
            client.shutdown(socket.SHUT_WR)
            received.extend(stream)

    listener = socket.create_server((HOST, 0))
    port = listener.getsockname()[1]
    proxied = make_proxied(private=(f"{HOST}:{port}",))
    thread = threading.Thread(target=serve, args=(listener,))
    thread.start()
    first = f"GET http://{HOST}:{port}/one HTTP/1.1\r\nHost: other.test\r\nProxy-Authorization: x\r\nX-Mine: y\r\n\r\n"
    second = "GET /two HTTP/1.1\r\nHost: other.test\r\n\r\n"
    assert proxied.ask((first + second).encode()).endswith(b"page")
    thread.join(20)
    host = f"Host: {HOST}:{port}\r\n".encode()
    assert received == [b"GET /one HTTP/1.1\r\n", host, b"X-Mine: y\r\n", b"Connection: close\r\n"]


def test_long_heads_end_and_refusals_are_listed_once(proxied):
    assert b"too long" in proxied.ask(
        b"GET http://127.0.0.2/ HTTP/1.1\r\n" + b"x" * (HEAD_BYTES_MAX * 3), end=False
    )
    for number in range(20):
        proxied.ask(f"CONNECT h{number // 2}.test:443 HTTP/1.1\r\n\r\n".encode())
    told = proxied.proxy.describe_refusals()
    assert len(told) == 5 and "'h0.test'" in told[1] and "'h1.test'" in told[2]


def test_more_connections_than_slots_are_served_in_turn(proxied, port):
    request = f"GET http://{HOST}:{port}/x HTTP/1.1\r\n\r\n".encode()
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(proxied.ask(request))) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 100 and all(answer.endswith(b"page /x") for answer in answers)


PIECES = st.sampled_from(
    ["GET", "CONNECT", "POST", " ", "  ", "http://", "https://", HOST, "127.0.0.3", "localhost", ":80", ":1", "@", "/", "\\",
     "#", "?", "%00", "\r", "\n", "\r\n", "HTTP/1.1", "HTTP/1.0", "Host: x", ".", "[", "]", "::1", "\t", "\x00", "é", "a.test"]
)  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PIECES, max_size=14).map("".join))
def test_no_request_opens_a_connection_to_another_host(proxied, text):
    proxied.ask(text.encode("latin-1") + b"\r\n\r\n")
    assert {*proxied.opened} <= {(HOST, 80), (HOST, 443)}


@pytest.mark.parametrize("rules", [[HOST], [f"{HOST}:443"], [f"*.{HOST}", f"{HOST}:1"]])
def test_a_host_is_reached_at_its_ports_only(make_proxied, port, rules):
    """A listed host has ports 80 and 443; another port is listed with it, and stands for itself."""
    proxied = make_proxied(private=rules)
    answer = proxied.ask(f"CONNECT {HOST}:{port} HTTP/1.1\r\n\r\n".encode())
    assert answer.startswith(b"HTTP/1.1 403 ") and f"--allow-host {HOST}:{port}".encode() in answer
    if rules != [HOST]:
        assert b" 403 " in proxied.ask(f"GET http://{HOST}/ HTTP/1.1\r\n\r\n".encode())
    assert proxied.opened == []
