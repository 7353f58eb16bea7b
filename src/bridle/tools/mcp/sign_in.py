"""Signs in to servers with OAuth, through the `mcp` package: the page in the browser returns to a local port."""

import asyncio
import logging
import os
import secrets
import socket
import stat
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, TokenStorage
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl, ValidationError

from bridle.values.text import escape_text

from .oauth import OAuth, find_token_file
from .server_settings import ServerSettings, SignInFailed

CALLBACK_PATH = "/callback"
REQUEST_BYTES_MAX = 16 * 1024
DONE_PAGE = "You are signed in. You can close this page."
FAILED_PAGE = "The sign-in failed. You can close this page."
_UNSAFE_MODE_BITS = stat.S_IRWXG | stat.S_IRWXO


class _WithoutException(logging.Filter):
    """Removes exceptions from log records: those of sign-ins can hold tokens."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = record.exc_text = None
        return True


logging.getLogger("mcp.client.auth.oauth2").addFilter(_WithoutException())


class TokenFile:
    """Tokens and the registration of the client in a JSON file with mode 0600."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def get_tokens(self) -> OAuthToken | None:
        found = self._read().get("tokens")
        return None if found is None else OAuthToken.model_validate(found)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._write(tokens=tokens.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        found = self._read().get("client")
        return None if found is None else OAuthClientInformationFull.model_validate(found)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._write(client=client_info.model_dump(mode="json", exclude_none=True))

    def _read(self) -> dict[str, object]:
        try:
            if os.name == "posix" and self._path.stat().st_mode & _UNSAFE_MODE_BITS:
                raise SignInFailed(f"other users can access {self._path}; chmod 600 it, or remove it")
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, object])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            raise SignInFailed(
                f"cannot read the tokens in {self._path} ({type(error).__name__}); remove the file to sign in again"
            ) from None

    def _write(self, **changes: object) -> None:
        content = msgspec.json.encode({**self._read(), **changes})
        draft = self._path.with_name(f"{self._path.name}.{secrets.token_hex(8)}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            draft.replace(self._path)
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise SignInFailed(f"cannot write the tokens to {self._path}: {error.strerror}") from None


class WatchedStorage:
    """A storage of tokens that keeps their values, so that they can be hidden in texts."""

    def __init__(self, storage: TokenStorage, known: set[str]) -> None:
        self._storage, self._known = storage, known

    async def get_tokens(self) -> OAuthToken | None:
        try:
            found = await self._storage.get_tokens()
        except ValidationError:
            raise SignInFailed("the stored tokens are invalid; remove them to sign in again") from None
        self._hide(found)
        return found

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._hide(tokens)
        await self._storage.set_tokens(tokens)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        try:
            found = await self._storage.get_client_info()
        except ValidationError:
            raise SignInFailed("the stored registration is invalid; remove it to sign in again") from None
        if found is not None and found.client_secret:
            self._known.add(found.client_secret)
        return found

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        if client_info.client_secret:
            self._known.add(client_info.client_secret)
        await self._storage.set_client_info(client_info)

    def _hide(self, tokens: OAuthToken | None) -> None:
        if tokens is not None:
            self._known.update(filter(None, (tokens.access_token, tokens.refresh_token)))


class SignIn:
    """One sign-in page, and the local port to which it returns."""

    def __init__(
        self, settings: ServerSettings, oauth: OAuth, port: int, on_start: Callable[[], None]
    ) -> None:
        self._settings, self._oauth, self._port, self._on_start = settings, oauth, port, on_start
        self._returned: asyncio.Future[AuthorizationCodeResult] | None = None
        self._listener: asyncio.Server | None = None

    async def open_page(self, url: str) -> None:
        self._on_start()
        self._returned = asyncio.get_running_loop().create_future()
        try:
            self._listener = await asyncio.start_server(self._receive, "127.0.0.1", self._port)
        except OSError as error:
            raise SignInFailed(f"port {self._port} for the sign-in is not free: {error.strerror}") from None
        if self._oauth.open_url is not None:
            await self._oauth.open_url(url)
            return
        shown = escape_text(url, exact=True)
        sys.stderr.write(f"Sign in to the MCP server {self._settings.name}: {shown}\n")
        sys.stderr.flush()
        await asyncio.to_thread(webbrowser.open, url)

    async def wait_for_code(self) -> AuthorizationCodeResult:
        assert self._returned is not None and self._listener is not None
        try:
            async with asyncio.timeout(self._oauth.timeout):
                return await self._returned
        except TimeoutError:
            raise SignInFailed(f"no sign-in within {self._oauth.timeout:g} seconds") from None
        finally:
            self._listener.close()

    async def _receive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line = (await reader.readuntil(b"\r\n"))[:REQUEST_BYTES_MAX].decode(errors="replace")
            parts = line.split(" ")
            asked = urlsplit(parts[1] if len(parts) > 1 else "")
            if parts[0] != "GET" or asked.path != CALLBACK_PATH:
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            page = self._take({key: values[0] for key, values in parse_qs(asked.query).items()})
            head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close"
            writer.write(f"{head}\r\nContent-Length: {len(page)}\r\n\r\n{page}".encode())
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            return
        finally:
            writer.close()

    def _take(self, values: dict[str, str]) -> str:
        assert self._returned is not None
        if self._returned.done():
            return FAILED_PAGE
        code = values.get("code")
        if not code:
            reason = escape_text(values.get("error", "no code"))[:200]
            self._returned.set_exception(SignInFailed(f"the server refused the sign-in: {reason}"))
            return FAILED_PAGE
        self._oauth.secrets.add(code)
        found = AuthorizationCodeResult(code=code, state=values.get("state"), iss=values.get("iss"))
        self._returned.set_result(found)
        return DONE_PAGE


async def make_provider(
    settings: ServerSettings, oauth: OAuth, on_start: Callable[[], None]
) -> OAuthClientProvider:
    """The authentication of requests to a server; `on_start` is called when a person is asked to sign in."""
    storage = WatchedStorage(_open_storage(settings, oauth), oauth.secrets)
    registered = await storage.get_client_info()
    port = oauth.port or _find_registered_port(registered) or _find_free_port()
    sign_in = SignIn(settings, oauth, port, on_start)
    return OAuthClientProvider(
        settings.url,
        OAuthClientMetadata(
            client_name="Bridle",
            redirect_uris=[AnyUrl(f"http://127.0.0.1:{port}{CALLBACK_PATH}")],
            scope=oauth.scopes or None,
        ),
        storage,
        redirect_handler=sign_in.open_page,
        callback_handler=sign_in.wait_for_code,
    )


def _open_storage(settings: ServerSettings, oauth: OAuth) -> TokenStorage:
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


def _find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
