"""Keeps what a sign-in to a server yields, under the address of that server: tokens, their end, and who issued them.

A token is sent to the server that it is kept for and to no other, whatever file or storage they share.  The addresses
of the authorization server are kept too, so that a token can be renewed after a restart, where it was issued.
"""

import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from mcp.shared.auth import OAuthClientInformationFull, OAuthMetadata, OAuthToken, ProtectedResourceMetadata
from pydantic import BaseModel, ValidationError

from bridle.values.base import Value

from .oauth import TokenStore
from .server_settings import SignInFailed

_UNSAFE_MODE_BITS = stat.S_IRWXG | stat.S_IRWXO
T = TypeVar("T", bound=BaseModel)
FILE_BYTES_MAX = 4 * 1024 * 1024


class SignInRecord(Value, kw_only=True, gc=True):
    """What is kept for one server."""

    server: str
    """The address of the server: a storage that mixes records up is noticed."""
    issuer: str = ""
    tokens: dict[str, Any] | None = None
    expires_at: float | None = None
    """Time of day at which the access token ends; None if the server did not say."""
    client: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    """Of the authorization server: where tokens are renewed."""
    resource: dict[str, Any] | None = None


class TokenFile:
    """The records of servers in a JSON file with mode 0600."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def read(self, server: str) -> str | None:
        # guard: token-by-server
        return self._read().get(server)

    async def write(self, server: str, text: str) -> None:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._locked():
                self._replace(msgspec.json.encode({"servers": {**self._read(), server: text}}))
        except OSError as error:
            raise SignInFailed(f"cannot write the tokens to {self._path}: {error.strerror}") from None

    def _read(self) -> dict[str, str]:
        try:
            with self._path.open("rb") as file:
                if os.name == "posix" and os.fstat(file.fileno()).st_mode & _UNSAFE_MODE_BITS:
                    raise SignInFailed(f"other users can access {self._path}; chmod 600 it, or remove it")
                found = msgspec.json.decode(file.read(FILE_BYTES_MAX), type=dict[str, Any])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            raise self._explain(type(error).__name__) from None
        servers = found.get("servers")
        if not isinstance(servers, dict) or not all(isinstance(each, str) for each in servers.values()):
            raise self._explain("it is no list of servers")
        return servers

    def _explain(self, why: str) -> SignInFailed:
        return SignInFailed(
            f"cannot read the tokens in {self._path} ({why}); remove the file to sign in again"
        )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the file: two sign-ins that end together keep both results."""
        held = os.open(
            self._path.with_name(f"{self._path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
        )
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
        finally:
            os.close(held)

    def _replace(self, content: bytes) -> None:
        draft = self._path.with_name(f"{self._path.name}.{secrets.token_hex(8)}")
        try:
            # guard: token-file-mode
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            draft.replace(self._path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise


class ServerTokens:
    """The record of one server, in the form that the `mcp` package asks for; keeps secret values to hide them."""

    def __init__(self, store: TokenStore, server: str, known: set[str]) -> None:
        self._store, self._server, self._known = store, server, known
        self.record = SignInRecord(server=server)

    async def load(self) -> None:
        """Read the record again: another process may have renewed the tokens."""
        text = await self._store.read(self._server)
        try:
            found = (
                SignInRecord(server=self._server)
                if text is None
                else msgspec.json.decode(text, type=SignInRecord)
            )
        except msgspec.MsgspecError:
            raise SignInFailed("the stored tokens are invalid; remove them to sign in again") from None
        # guard: token-server-matches
        if found.server != self._server:
            raise SignInFailed(
                "the stored tokens belong to another server; the storage must keep each one's apart"
            )
        self.record = found

    async def get_tokens(self) -> OAuthToken | None:
        await self.load()
        found = _validate(OAuthToken, self.record.tokens)
        self._hide(found)
        return found

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._hide(tokens)
        ends = None if tokens.expires_in is None else time.time() + tokens.expires_in
        await self._keep(tokens=_dump(tokens), expires_at=ends)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        found = _validate(OAuthClientInformationFull, self.record.client)
        if found is not None and found.client_secret:
            self._known.add(found.client_secret)
        return found

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        if client_info.client_secret:
            self._known.add(client_info.client_secret)
        # Tokens of another registration could not be renewed with this one.
        await self._keep(
            client=_dump(client_info), issuer=str(client_info.issuer or ""), tokens=None, expires_at=None
        )

    async def keep_discovered(
        self, metadata: OAuthMetadata | None, resource: ProtectedResourceMetadata | None
    ) -> None:
        """Keep where the tokens were issued."""
        found, protected = _dump(metadata), _dump(resource)
        if (found, protected) != (self.record.metadata, self.record.resource):
            await self._keep(metadata=found, resource=protected)

    def read_metadata(self) -> OAuthMetadata | None:
        return _validate(OAuthMetadata, self.record.metadata)

    def read_resource(self) -> ProtectedResourceMetadata | None:
        return _validate(ProtectedResourceMetadata, self.record.resource)

    async def _keep(self, **changes: object) -> None:
        self.record = msgspec.structs.replace(self.record, **changes)
        await self._store.write(self._server, msgspec.json.encode(self.record).decode())

    def _hide(self, tokens: OAuthToken | None) -> None:
        if tokens is not None:
            self._known.update(filter(None, (tokens.access_token, tokens.refresh_token)))


def _dump(model: BaseModel | None) -> dict[str, Any] | None:
    return None if model is None else model.model_dump(mode="json", exclude_none=True)


def _validate(kind: type[T], found: dict[str, Any] | None) -> T | None:
    try:
        return None if found is None else kind.model_validate(found)
    except ValidationError:
        raise SignInFailed("the stored tokens are invalid; remove them to sign in again") from None
