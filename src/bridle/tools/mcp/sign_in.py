"""Signs in to servers with OAuth, through the `mcp` package: the page in the browser returns to a local port.

A sign-in may be needed at any request: when a connection is opened, and in the middle of a call whose token has ended.
The request that the server refused for want of a token was not run; if the sign-in fails, its caller learns that.
The time that the person takes counts towards no timeout of a call (unsent_calls.py).
"""

import asyncio
import logging
import os
import secrets
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.shared._httpx_utils import MCP_DEFAULT_SSE_READ_TIMEOUT, MCP_DEFAULT_TIMEOUT
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl

from bridle.tools.process.open_browser import open_privately
from bridle.values.text import escape_text

from .oauth import OAuth, TokenStore, find_token_file
from .server_settings import ServerSettings, SignInFailed
from .sign_in_hosts import SignInHosts
from .token_store import ServerTokens, TokenFile
from .unsent_calls import CURRENT_CALL, UnsentCalls

CALLBACK_PATH = "/callback"
REQUEST_BYTES_MAX = 16 * 1024
DONE_PAGE = "You are signed in. You can close this page."
FAILED_PAGE = "The sign-in failed. You can close this page."
OTHER_PAGE = "This page does not belong to the sign-in that is in progress. You can close it."
PORT_SECONDS = 0.2
"""Time between two attempts to have a port that another sign-in uses."""
REFUSALS = (401, 403)
SIGN_IN_MARK = "bridle_sign_in"
"""Extension of a request that the server has refused, and that is not sent again before the sign-in is done."""
PROBLEM_MARK = secrets.token_hex(16)
"""Start of the message of an error that says that a request was not sent; no server can know it."""
PROBLEM_CODE = -32_603


class _WithoutException(logging.Filter):
    """Removes exceptions from log records: those of sign-ins can hold tokens."""

    def filter(self, record: logging.LogRecord) -> bool:
        # guard: sign-in-log-redacted
        record.exc_info = record.exc_text = None
        return True


logging.getLogger("mcp.client.auth.oauth2").addFilter(_WithoutException())


class SignIn:
    """One sign-in page, and the local port to which it returns."""

    def __init__(
        self, settings: ServerSettings, oauth: OAuth, hosts: SignInHosts, on_start: Callable[[], None]
    ) -> None:
        self._settings, self._oauth, self._hosts, self._on_start = settings, oauth, hosts, on_start
        self._returned: asyncio.Future[AuthorizationCodeResult] | None = None
        self._socket: socket.socket | None = None
        self._listener: asyncio.Server | None = None
        self._state = ""

    async def reserve_port(self, registered: int) -> int:
        """Have the port to which the page returns; another than the registered one if that is in use."""
        self._on_start()
        self.close()
        wanted = self._oauth.port
        until = time.monotonic() + self._oauth.timeout
        for port in (wanted,) if wanted else (registered, 0):
            while True:
                self._socket = _bind(port)
                if self._socket is not None:
                    found: int = self._socket.getsockname()[1]
                    return found
                if not wanted or time.monotonic() > until:
                    break
                await asyncio.sleep(PORT_SECONDS)  # another sign-in has it, and ends in time
        raise SignInFailed(
            f"port {wanted} for the sign-in is not free; choose another, or port=0 for a free one"
        )

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        elif self._socket is not None:
            self._socket.close()
        self._listener = self._socket = None

    async def open_page(self, url: str) -> None:
        await self._hosts.check(httpx2.URL(url))
        self._on_start()
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        self._returned = asyncio.get_running_loop().create_future()
        assert self._socket is not None
        self._listener = await asyncio.start_server(self._receive, sock=self._socket, limit=REQUEST_BYTES_MAX)
        if self._oauth.open_url is not None:
            await self._oauth.open_url(url)
            return
        shown = escape_text(url, exact=True)
        sys.stderr.write(f"Sign in to the MCP server {self._settings.name}: {shown}\n")
        sys.stderr.flush()
        await asyncio.to_thread(open_privately, url)

    async def wait_for_code(self) -> AuthorizationCodeResult:
        assert self._returned is not None
        try:
            async with asyncio.timeout(self._oauth.timeout):
                return await self._returned
        except TimeoutError:
            raise SignInFailed(f"no sign-in within {self._oauth.timeout:g} seconds") from None
        finally:
            self.close()

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = (await reader.readuntil(b"\r\n")).decode(errors="replace")
            parts = line.split(" ")
            asked = urlsplit(parts[1] if len(parts) > 1 else "")
            if parts[0] != "GET" or asked.path != CALLBACK_PATH:
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            status, page = self._take({key: values[0] for key, values in parse_qs(asked.query).items()})
            head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close"
            writer.write(f"{head}\r\nContent-Length: {len(page)}\r\n\r\n{page}".encode())
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            return
        finally:
            writer.close()

    def _take(self, values: dict[str, str]) -> tuple[str, str]:
        """Take the answer that belongs to this sign-in; any page can call this address with another."""
        assert self._returned is not None
        given = values.get("state", "").encode()
        # guard: sign-in-state-compare
        if self._returned.done() or not secrets.compare_digest(given, self._state.encode()):
            return "400 Bad Request", OTHER_PAGE
        code = values.get("code")
        if not code:
            reason = escape_text(values.get("error", "no code"))[:200]
            self._returned.set_exception(SignInFailed(f"the server refused the sign-in: {reason}"))
            return "200 OK", FAILED_PAGE
        self._oauth.secrets.add(code)
        found = AuthorizationCodeResult(code=code, state=values.get("state"), iss=values.get("iss"))
        self._returned.set_result(found)
        return "200 OK", DONE_PAGE


class ServerProvider(OAuthClientProvider):
    """The provider of the `mcp` package, bound to one server: its tokens, their end, and the hosts of its sign-in."""

    def __init__(
        self, settings: ServerSettings, oauth: OAuth, on_start: Callable[[], None], unsent: UnsentCalls
    ) -> None:
        self._unsent = unsent
        self._tokens = ServerTokens(_open_store(settings, oauth), settings.url, oauth.secrets)
        self._hosts = SignInHosts(settings.url)
        self._page = SignIn(settings, oauth, self._hosts, on_start)
        super().__init__(
            settings.url,
            OAuthClientMetadata(
                client_name="Bridle",
                redirect_uris=[_make_redirect(oauth.port)],
                scope=oauth.scopes or None,
            ),
            self._tokens,
            redirect_handler=self._page.open_page,
            callback_handler=self._page.wait_for_code,
        )

    async def _initialize(self) -> None:
        await super()._initialize()
        self.context.token_expiry_time = self._tokens.record.expires_at
        # Without them a token would be renewed at the server itself, which need not be the one that issued it.
        self.context.oauth_metadata = self._tokens.read_metadata()
        self.context.protected_resource_metadata = self._tokens.read_resource()

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """The flow of the `mcp` package, with its own requests checked, and a renewal before a person is asked."""
        if not self.context.is_token_valid():
            self._initialized = False  # another process may have renewed the tokens
        flow = super().async_auth_flow(request)
        is_renewed, call = False, CURRENT_CALL.get()
        end_asking: Callable[[], None] | None = None
        try:
            outgoing = await anext(flow)
            while True:
                request.extensions[SIGN_IN_MARK] = outgoing is not request
                if outgoing is request:
                    self._unsent.mark_sent(call)
                    if end_asking is not None:
                        end_asking()
                # guard: sign-in-host-pinned
                response = yield (outgoing if outgoing is request else await self._hosts.pin(outgoing))
                if outgoing is request and response.status_code == 401 and not is_renewed:
                    is_renewed = True
                    if self.context.can_refresh_token() and self.context.oauth_metadata is not None:
                        request.extensions[SIGN_IN_MARK] = True
                        self._unsent.mark_unsent(call)
                        answer = yield await self._hosts.pin(await self._refresh_token())
                        if await self._handle_refresh_response(answer):
                            self._add_auth_header(request)
                            request.extensions[SIGN_IN_MARK] = False
                            self._unsent.mark_sent(call)
                            response = yield request
                if outgoing is request and response.status_code in REFUSALS:
                    request.extensions[SIGN_IN_MARK] = True
                    self._unsent.mark_unsent(call)
                    end_asking = self._unsent.ask_person()
                    await self._prepare_page()
                outgoing = await flow.asend(response)
                if outgoing is request:
                    await self._tokens.keep_discovered(
                        self.context.oauth_metadata, self.context.protected_resource_metadata
                    )
        except StopAsyncIteration:
            return
        finally:
            if end_asking is not None:
                end_asking()
            await flow.aclose()
            self._page.close()

    async def _prepare_page(self) -> None:
        """Have the port before the client is registered with it; one that is in use needs a new registration."""
        registered = _find_registered_port(self.context.client_info)
        port = await self._page.reserve_port(registered)
        self.context.client_metadata.redirect_uris = [_make_redirect(port)]
        if registered and registered != port:
            self.context.client_info = None


class SignInClient(httpx2.AsyncClient):
    """A client whose requests are answered with an error, and not lost with the connection, if a sign-in fails."""

    def __init__(
        self,
        is_open: Callable[[], bool],
        headers: dict[str, str] | None,
        timeout: httpx2.Timeout | None,
        auth: httpx2.Auth | None,
    ) -> None:
        """`is_open` is False while the connection is opened: then a failure ends it, as the person must know why."""
        default = httpx2.Timeout(MCP_DEFAULT_TIMEOUT, read=MCP_DEFAULT_SSE_READ_TIMEOUT)
        super().__init__(headers=headers, timeout=timeout or default, auth=auth)
        self._is_open = is_open

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            return await super().send(request, **options)
        except (SignInFailed, OAuthFlowError, httpx2.HTTPError) as error:
            if not request.extensions.get(SIGN_IN_MARK) or not self._is_open():
                raise
            reason = describe_sign_in_error(error) or f"the sign-in failed ({type(error).__name__})"
            message = {"code": PROBLEM_CODE, "message": f"{PROBLEM_MARK}{reason}"}
            return httpx2.Response(
                401, request=request, json={"jsonrpc": "2.0", "id": None, "error": message}
            )


def find_sign_in_problem(message: str) -> str:
    """Why a request was not sent, from the message of an error; empty if the error is the server's."""
    return message.removeprefix(PROBLEM_MARK) if message.startswith(PROBLEM_MARK) else ""


def make_provider(
    settings: ServerSettings, oauth: OAuth, on_start: Callable[[], None], unsent: UnsentCalls
) -> OAuthClientProvider:
    """The authentication of requests to a server; `on_start` is called when a person is asked to sign in."""
    return ServerProvider(settings, oauth, on_start, unsent)


def _open_store(settings: ServerSettings, oauth: OAuth) -> TokenStore:
    given = oauth.tokens
    if given is None:
        return TokenFile(find_token_file(settings.url, settings.name))
    return TokenFile(Path(given).expanduser()) if isinstance(given, str | os.PathLike) else given


def describe_sign_in_error(error: BaseException) -> str:
    """The reason of a failed sign-in; the `mcp` package's own messages may quote answers with tokens."""
    if isinstance(error, SignInFailed):
        return str(error)
    return f"the sign-in failed ({type(error).__name__})" if isinstance(error, OAuthFlowError) else ""


def _find_registered_port(registered: OAuthClientInformationFull | None) -> int:
    """The port that the server knows from an earlier sign-in."""
    addresses = registered.redirect_uris if registered is not None else None
    return (addresses[0].port or 0) if addresses else 0


def _make_redirect(port: int) -> AnyUrl:
    return AnyUrl(f"http://127.0.0.1:{port}{CALLBACK_PATH}")


def _bind(port: int) -> socket.socket | None:
    """A listening socket of this machine at a port, or at a free one; None if it is in use."""
    made = socket.socket()
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(("127.0.0.1", port))
        made.listen()
    except OSError:
        made.close()
        return None
    made.setblocking(False)
    return made
