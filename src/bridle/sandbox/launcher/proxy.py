"""Lets a sandboxed command reach allowed hosts, and nothing else of the network (host_rules.py).

The command has a network namespace of its own.  Before it starts, the launcher's inner stage opens a port in that
namespace and passes the socket out; the outer stage accepts the connections there and connects to allowed hosts from
outside.  The command finds the port in HTTP_PROXY and HTTPS_PROXY.  A program that ignores them reaches only its
own loopback.

    CONNECT host:443            a tunnel to a port of an allowed host
    GET http://host/path        one request; its Host is that of the address, and the connection ends after it
"""

import errno
import os
import re
import select
import socket
import threading
from contextlib import suppress

from bridle.sandbox.host_rules import PORTS, HostRefused, HostRules, parse_rule

HEAD_BYTES_MAX = 32 * 1024
READ_BYTES = 64 * 1024
CONNECTIONS_MAX = 64
CONNECT_SECONDS, IDLE_SECONDS = 20.0, 120.0
# not from outside: our own text, shown to a person or a model
REASON_CHARACTERS_MAX = 300
REFUSALS_SHOWN = 5
HOP_HEADERS = ("host", "connection", "keep-alive", "te", "trailer", "upgrade", "expect")
"""Headers that are for the proxy, or that the proxy writes; so are those that start with `proxy-`."""
HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)")
METHOD = re.compile(r"[A-Z]{1,20}")
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


class BadRequest(ValueError):
    """A request that is not understood, and so is not passed on."""


def open_port(control: int, private: list[str]) -> None:
    """Inside: open the port of the proxy, pass it out, and name it to the command."""
    with socket.socket(fileno=control) as out, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(CONNECTIONS_MAX)
        socket.send_fds(out, [b"."], [listener.fileno()])
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    outside = {parse_rule(text).host for text in private}
    direct = ",".join(name for name in LOOPBACK_NAMES if name not in outside)
    for name, value in (("HTTP_PROXY", address), ("HTTPS_PROXY", address), ("NO_PROXY", direct)):
        os.environ[name] = os.environ[name.lower()] = value


class AllowListProxy:
    """Outside: serves the connections of one command until the launcher ends."""

    def __init__(self, allow: list[str], private: list[str]) -> None:
        self._rules = HostRules(allow, private)
        self._slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._refusals: dict[str, None] = {}

    def start(self, control: socket.socket) -> None:
        """Serve the port that arrives at `control`, in threads that end with this process."""
        threading.Thread(target=self._serve, args=(control,), daemon=True).start()

    def describe_refusals(self) -> list[str]:
        """Refused addresses, each once; only the first ones."""
        return list(self._refusals)

    def _serve(self, control: socket.socket) -> None:
        with control:
            fds = socket.recv_fds(control, 1, 1)[1]
        if not fds:  # the command was not started
            return
        with socket.socket(fileno=fds[0]) as listener:
            while True:
                self._slots.acquire()
                try:
                    client = listener.accept()[0]
                except OSError as error:
                    if error.errno == errno.EINVAL:  # the port was shut down
                        return
                    raise
                threading.Thread(target=self._serve_client, args=(client,), daemon=True).start()

    def _serve_client(self, client: socket.socket) -> None:
        with client:
            try:
                client.settimeout(IDLE_SECONDS)
                self._answer(client)
            except (HostRefused, BadRequest) as error:
                status = 403 if isinstance(error, HostRefused) else 400
                if len(self._refusals) < REFUSALS_SHOWN:
                    self._refusals[f"not connected: {error}"] = None
                _send_failure(client, status, str(error))
            except OSError as error:
                _send_failure(client, 502, str(error))
            finally:
                self._slots.release()

    def _answer(self, client: socket.socket) -> None:
        head, rest = _read_head(client)
        lines = head.decode("latin-1").split("\r\n")
        method, target, version = _parse_request_line(lines[0])
        is_tunnel = method == "CONNECT"
        # guard: proxy-host-allowed
        parts, host, port = self._rules.parse_url(f"https://{target}" if is_tunnel else target)
        if is_tunnel and (parts.path or parts.query or parts.fragment or parts.port is None):
            raise BadRequest("CONNECT takes a host and a port")
        # guard: proxy-plain-http
        if not is_tunnel and parts.scheme != "http":
            raise BadRequest("https:// needs CONNECT")
        headers = _parse_headers(lines[1:])
        body_bytes, address = _count_body(headers), self._rules.resolve_host(host, port)
        # guard: proxy-checked-address
        with socket.create_connection((address, port), CONNECT_SECONDS) as server:
            server.settimeout(IDLE_SECONDS)
            if is_tunnel:
                client.sendall(f"{version} 200 Connection established\r\n\r\n".encode())
                server.sendall(rest)
                _relay({client: server, server: client})
                return
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            shown = f"[{host}]" if ":" in host else host
            name = shown if port == PORTS["http"] else f"{shown}:{port}"
            made = [f"{method} {path} HTTP/1.1", f"Host: {name}", *headers, "Connection: close"]
            server.sendall("\r\n".join((*made, "", "")).encode("latin-1"))
            # guard: proxy-body-length
            _send_body(client, server, rest, body_bytes)
            _relay({server: client})


def _read_head(client: socket.socket) -> tuple[bytes, bytes]:
    """The head of a request, and what was read after it."""
    found = b""
    while b"\r\n\r\n" not in found:
        data = client.recv(READ_BYTES)
        if not data or len(found) > HEAD_BYTES_MAX:
            raise BadRequest("the head of the request is incomplete or too long")
        found += data
    head, _, rest = found.partition(b"\r\n\r\n")
    return head, rest


def _parse_request_line(line: str) -> tuple[str, str, str]:
    words = line.split(" ")
    if len(words) != 3 or not METHOD.fullmatch(words[0]) or words[2] not in ("HTTP/1.0", "HTTP/1.1"):
        raise BadRequest("the first line of the request is not valid")
    return words[0], words[1], words[2]


def _parse_headers(lines: list[str]) -> list[str]:
    """The headers to pass on; raises `BadRequest` for a form that two servers could read differently."""
    kept = []
    for line in lines:
        found = HEADER.fullmatch(line)
        if found is None:
            raise BadRequest("a header of the request is not valid")
        name = found[1].lower()
        # guard: proxy-transfer-encoding
        if name == "transfer-encoding":
            raise BadRequest("a body needs Content-Length")
        if name not in HOP_HEADERS and not name.startswith("proxy-"):
            kept.append(line)
    return kept


def _count_body(headers: list[str]) -> int:
    lengths = [
        line.partition(":")[2].strip() for line in headers if line.lower().startswith("content-length:")
    ]
    if len(lengths) > 1 or not all(re.fullmatch(r"[0-9]{1,15}", length) for length in lengths):
        raise BadRequest("Content-Length is not valid")
    return int(lengths[0]) if lengths else 0


def _send_body(client: socket.socket, server: socket.socket, rest: bytes, left: int) -> None:
    """Pass exactly `left` bytes on; what the client sends after them would be another request."""
    data = rest[:left]
    while left:
        server.sendall(data)
        left -= len(data)
        if left:
            data = client.recv(min(left, READ_BYTES))
            if not data:
                raise ConnectionError("the body of the request is incomplete")


def _relay(targets: dict[socket.socket, socket.socket]) -> None:
    """Pass on what arrives at each socket to its target, until all have ended or nothing arrives any more."""
    while targets:
        ready = select.select([*targets], [], [], IDLE_SECONDS)[0]
        if not ready:
            return
        for source in ready:
            data = source.recv(READ_BYTES)
            if data:
                targets[source].sendall(data)
            else:
                with suppress(OSError):
                    targets[source].shutdown(socket.SHUT_WR)
                del targets[source]


def _send_failure(client: socket.socket, status: int, reason: str) -> None:
    """Answer with the reason in the first line too: clients of a tunnel show only that."""
    line = reason.encode("ascii", "replace").decode()[:REASON_CHARACTERS_MAX]
    text = f"bridle sandbox: {line}\n"
    fields = ("Content-Type: text/plain", f"Content-Length: {len(text)}", "Connection: close", "", text)
    with suppress(OSError):
        client.sendall("\r\n".join((f"HTTP/1.1 {status} {line}", *fields)).encode())
