"""Middleware in front of every route: decides which requests reach it, and limits what each may use.

    host       the Host header must name this server, so that a web page cannot rebind its own name to it
    token      compared in constant time; wrong ones of an address that guesses too often are not answered for a while
    origin     a browser may change something only from the server's own pages or from an allowed origin
    limits     size and time of the body, time of a request, number of requests at once
    headers    no sniffing, no frames, no referrer, a policy without foreign content

An error is rendered in the form of the mount that the path belongs to.
"""

import asyncio
import hmac
import ipaddress
import re
import time
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .errors import ServeError, describe_error, render_problem
from .identity import ACCESS_KEY, HOLDER, Access, Identify, find_access, no_identities, unauthorized
from .metrics import ServerMetrics
from .options import LOOPBACK_NAMES, WILDCARDS, ServeOptions

SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
ADMIN_PATHS = ("/metrics",)
"""Paths about all users: a key of one of them does not open these, only the server's token does."""
OPEN_PATHS = ("/health", "/health/live", "/health/ready")
"""Paths that need no token: they say nothing about agents or sessions."""
FORM_TYPES = ("application/x-www-form-urlencoded", "multipart/form-data", "text/plain")
"""Types that a form of another site can send without asking."""
CLIENT_HEADER = "x-bridle-client"
KEY_HEADERS = ("x-api-key", "x-goog-api-key", "api-key")
"""Headers in which clients of other APIs send their key; here they carry the token."""
GUESSES_MAX, GUESS_SECONDS, GUESSERS_MAX = 20, 60.0, 10_000
"""Wrong tokens of one address in that time, and addresses that are remembered."""
# guard: content-security-policy
SECURITY_HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
}
EXPOSED_HEADERS = "x-bridle-session, x-bridle-dropped, retry-after, x-should-retry"
"""Headers of replies that a page of an allowed origin may read."""
HEADER_NAMES = re.compile(r"[a-z0-9-]+(\s*,\s*[a-z0-9-]+)*", re.IGNORECASE)
CORS_SECONDS = "600"
RenderError = Callable[[ServeError], Response]


class ErrorForm(NamedTuple):
    """Form of errors below a path."""

    path: str
    render: RenderError


class SecurityMiddleware:
    """Checks a request before the application sees it."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        options: ServeOptions,
        metrics: ServerMetrics,
        styles: tuple[ErrorForm, ...] = (),
        public_paths: tuple[str, ...] = (),
        slow_paths: tuple[str, ...] = (),
        identify: Identify | None = None,
        default_access: Access | None = HOLDER,
    ) -> None:
        """`public_paths` are static pages without a token; `slow_paths` have no time limit: whole runs, streams.

        `default_access` is that of every request, if there is no `identify`; None to let nobody in.
        """
        self._app, self._options, self._metrics, self._styles = app, options, metrics, styles
        self._public, self._slow = (*OPEN_PATHS, *public_paths), slow_paths
        self._hosts = {name.lower() for name in (*LOOPBACK_NAMES, options.host, *options.allowed_hosts)}
        self._identify, self._default_access = identify, default_access
        self._any_host = options.host in WILDCARDS and (options.has_secret or identify is not None)
        self._origins = frozenset(options.allowed_origins)
        self._guesses = GuessCounter()
        self._active, self._bodies = 0, BodyMemory(options.bodies_bytes_max)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        exchange = GuardedExchange(scope, receive, send, self._options, self._bodies)
        try:
            self._check(scope, exchange)
            if exchange.is_preflight:
                await Response(status_code=204)(scope, receive, exchange.send)
            else:
                await self._handle(scope, exchange)
        except Exception as error:
            if exchange.has_started:
                raise
            await self._render(scope, describe_error(error))(scope, receive, exchange.send)
        finally:
            self._bodies.release(exchange)
            self._metrics.requests.add((("status", exchange.status),), 1)

    async def _handle(self, scope: Scope, exchange: "GuardedExchange") -> None:
        # guard: request-limit
        if self._active >= self._options.requests_max:
            raise ServeError(
                503,
                "too_many_requests",
                "the server handles as many requests as it may",
                "",
                {"retry-after": "1"},
            )
        self._active += 1
        exchange.on_stream = self._release
        try:
            async with asyncio.timeout(
                None if self._is_slow(scope) else self._options.request_seconds
            ) as limit:
                exchange.limit = limit
                await self._set_access(scope)
                await self._app(scope, exchange.receive, exchange.send)
        except TimeoutError:
            if exchange.has_started or not limit.expired():
                raise
            seconds = self._options.request_seconds
            raise ServeError(
                504,
                "too_slow",
                f"the request took more than {seconds:g} seconds",
                "a run that it started goes on",
            ) from None
        finally:
            if not exchange.is_stream:
                self._release()

    def _release(self) -> None:
        self._active -= 1

    async def _set_access(self, scope: Scope) -> None:
        """Put what the request may do into its scope; raises if nobody is proven to have sent it."""
        scope.pop(ACCESS_KEY, None)
        if self._identify is None:
            if self._default_access is not None:
                scope[ACCESS_KEY] = self._default_access
            elif route_path(scope) not in self._public:
                # guard: no-identities
                raise no_identities()
        elif route_path(scope) not in self._public:
            access = await find_access(self._identify, scope)
            # guard: identity-required
            if access is None:
                if find_token(Headers(scope=scope)):
                    self._count_guess(_client_address(scope))
                raise unauthorized()
            scope[ACCESS_KEY] = access

    def _count_guess(self, address: str) -> None:
        # guard: token-guess-limit
        if self._guesses.is_blocked(address):
            raise ServeError(
                429,
                "too_many_guesses",
                "too many wrong tokens from this address",
                "wait a minute",
                {"retry-after": "60"},
            )
        self._guesses.count(address)

    def _check(self, scope: Scope, exchange: "GuardedExchange") -> None:
        headers, path = Headers(scope=scope), route_path(scope)
        if self._options.trusts_callers:
            return
        self._check_host(headers.get("host", ""))
        origin = headers.get("origin")
        is_own = origin is not None and _is_own_origin(origin, headers.get("host", ""), scope["scheme"])
        is_allowed = origin in self._origins
        if origin is not None and is_allowed:
            exchange.allowed_origin = origin
        if scope["method"] == "OPTIONS" and "access-control-request-method" in headers and is_allowed:
            exchange.is_preflight = True
            return
        has_token = self._check_token(headers, path, _client_address(scope))
        if has_token or is_own or is_allowed:
            return
        self._check_browser(headers, scope["method"], path)

    def _check_host(self, host: str) -> None:
        # guard: allowed-host
        if self._any_host or _host_name(host) in self._hosts:
            return
        raise ServeError(
            421,
            "wrong_host",
            "the Host header does not name this server",
            "add the name with --allow-host NAME",
        )

    def _check_token(self, headers: Headers, path: str, address: str) -> bool:
        """True if the request has the token; raises if it lacks one that is needed.

        With identities, a page of another site could not have sent it if it has one; `identify` checks it later.
        """
        if self._identify is not None:
            return bool(find_token(headers))
        if not self._options.has_secret:
            # guard: local-address
            if path not in self._public and not _is_local(address):
                raise ServeError(
                    403,
                    "other_machine",
                    "this server has no token and no identities, so it is for its own machine only",
                    "its owner sets $BRIDLE_SERVE_TOKEN, or gives identify=…",
                )
            return False
        given = find_token(headers)
        if given and self._is_secret(given, path):
            return True
        # guard: token-required
        if path in self._public:
            return False
        if given:
            self._count_guess(address)
        problem = "the token is wrong" if given else "the request has no token"
        hint = "send it as: Authorization: Bearer TOKEN"
        if path in ADMIN_PATHS and self._options.key_digests:
            hint = "it needs the server's token ($BRIDLE_SERVE_TOKEN), not a key"
        raise ServeError(401, "unauthorized", problem, hint, {"www-authenticate": "Bearer"})

    def _is_secret(self, given: str, path: str) -> bool:
        token, digest = self._options.token, sha256(given.encode()).hexdigest()
        known = [bool(token) and hmac.compare_digest(given.encode(), token.encode())]
        keys = self._options.key_digests if path not in ADMIN_PATHS else ()
        known += [hmac.compare_digest(digest, each) for each in keys]
        return any(known)

    def _check_browser(self, headers: Headers, method: str, path: str) -> None:
        """Refuse requests that a page of another site can make a browser send."""
        site = headers.get("sec-fetch-site")
        is_page = method == "GET" and headers.get("sec-fetch-mode") == "navigate" and path in self._public
        foreign = "origin" in headers or site in ("cross-site", "same-site")
        # guard: foreign-origin-read
        if foreign and not is_page and (method not in SAFE_METHODS or path not in self._public):
            raise ServeError(
                403,
                "foreign_origin",
                "a web page of another site sent this request",
                "allow its origin with --allow-origin ORIGIN",
            )
        if method in SAFE_METHODS or site is not None:
            return
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        # guard: form-content-type
        if kind in FORM_TYPES and CLIENT_HEADER not in headers:
            raise ServeError(
                403, "form_request", f"a request of type {kind} is not accepted", "send application/json"
            )

    def _is_slow(self, scope: Scope) -> bool:
        return any(route_path(scope).startswith(prefix) for prefix in self._slow)

    def _render(self, scope: Scope, error: ServeError) -> Response:
        for style in self._styles:
            if route_path(scope).startswith(style.path):
                return style.render(error)
        return render_problem(error)


class GuardedExchange:
    """Receives and sends for one request: limits the body and adds the headers."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, options: ServeOptions, bodies: "BodyMemory"
    ) -> None:
        self._receive, self._send, self._options, self._bodies = receive, send, options, bodies
        self.body_bytes, self._body_ends = 0, time.monotonic() + options.body_seconds
        self._is_received = False
        self.has_started = self.is_stream = self.is_preflight = False
        self.status, self.allowed_origin = 0, ""
        self._asked = Headers(scope=scope)
        self.limit: asyncio.Timeout | None = None
        self.on_stream: Callable[[], None] = lambda: None
        length = Headers(scope=scope).get("content-length", "0")
        self._declared = int(length) if length.isdecimal() and len(length) < 16 else 0

    async def receive(self) -> Message:
        if self._is_received:
            return await self._receive()
        if self._declared > self._options.body_bytes_max:
            raise self._too_large()
        try:
            async with asyncio.timeout(max(0.0, self._body_ends - time.monotonic())):
                message = await self._receive()
        except TimeoutError:
            raise ServeError(408, "body_too_slow", "the request body did not arrive in time") from None
        self._bodies.take(self, len(message.get("body", b"")))
        # guard: body-size-limit
        if self.body_bytes > self._options.body_bytes_max:
            raise self._too_large()
        self._is_received = not message.get("more_body", False)
        return message

    def _too_large(self) -> ServeError:
        most = self._options.body_bytes_max
        return ServeError(413, "body_too_large", f"the request body has more than {most:,} bytes")

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started, self.status = True, message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
            if self.allowed_origin:
                self._allow_origin(headers)
            if headers.get("content-type", "").startswith("text/event-stream"):
                self.is_stream = True
                self.on_stream()
                if self.limit is not None:
                    self.limit.reschedule(None)
        async with asyncio.timeout(self._options.send_seconds):
            await self._send(message)

    def _allow_origin(self, headers: MutableHeaders) -> None:
        headers["access-control-allow-origin"] = self.allowed_origin
        headers["access-control-expose-headers"] = EXPOSED_HEADERS
        headers["vary"] = "Origin"
        if not self.is_preflight:
            return
        headers["vary"] = "Origin, Access-Control-Request-Headers"
        headers["access-control-allow-methods"] = "GET, POST, DELETE"
        headers["access-control-max-age"] = CORS_SECONDS
        # The vendors' SDKs have headers of their own, and new ones in each release; the origin decides.
        asked = self._asked.get("access-control-request-headers", "")
        if HEADER_NAMES.fullmatch(asked.strip()):
            headers["access-control-allow-headers"] = asked.strip()
        if "access-control-request-private-network" in self._asked:
            headers["access-control-allow-private-network"] = "true"


class BodyMemory:
    """Bytes of the bodies of all requests in progress."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes, self._bytes_max = 0, bytes_max

    def take(self, exchange: GuardedExchange, count: int) -> None:
        exchange.body_bytes += count
        self._bytes += count
        if self._bytes > self._bytes_max:
            raise ServeError(503, "too_many_bodies", "the server holds as many bytes of requests as it may")

    def release(self, exchange: GuardedExchange) -> None:
        self._bytes -= exchange.body_bytes
        exchange.body_bytes = 0


class GuessCounter:
    """Wrong tokens by address."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, float]] = {}

    def is_blocked(self, address: str) -> bool:
        count, since = self._counts.get(address, (0, 0.0))
        return count >= GUESSES_MAX and time.monotonic() - since < GUESS_SECONDS

    def count(self, address: str) -> None:
        now = time.monotonic()
        count, since = self._counts.pop(address, (0, now))
        if now - since >= GUESS_SECONDS:
            count, since = 0, now
        self._counts[address] = count + 1, since
        if len(self._counts) > GUESSERS_MAX:
            del self._counts[next(iter(self._counts))]


def route_path(scope: Scope) -> str:
    """The path below the place where the application is mounted."""
    path, root = str(scope["path"]), str(scope.get("root_path", ""))
    return path[len(root) :] if root and path.startswith(f"{root}/") else path


def find_token(headers: Headers) -> str:
    """The secret that a request carries; empty if it carries none."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and given.strip():
        return given.strip()
    return next((headers[name] for name in KEY_HEADERS if name in headers), "")


def _client_address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _is_local(address: str) -> bool:
    """True for an address of this machine, and for a connection that has none, such as a Unix socket."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return True
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback


def _host_name(host: str) -> str:
    """The name in a Host header, without its port and brackets; empty if it is invalid."""
    name, _, port = host.rpartition(":") if not host.endswith("]") else (host, "", "")
    if not name:
        name, port = host, ""
    if port and not port.isdecimal():
        return ""
    if name.startswith("["):
        try:
            return str(ipaddress.IPv6Address(name.strip("[]")))
        except ValueError:
            return ""
    return name.lower().rstrip(".")


def _is_own_origin(origin: str, host: str, scheme: str) -> bool:
    return origin.lower() == f"{scheme}://{host}".lower()
