"""Bearer tokens of a file, which holds only their slow hashes.

    [tokens.alice]
    id = "5b0c…"                       # `bridle serve --new-token alice` prints the token and these lines
    hash = "9f2d…"
    tenant = "acme"
    rights = ["read", "prompt"]
    sessions = "own"
    expires = 2027-01-01T00:00:00Z

The file is read again when it changes: a line that is removed takes its token out of use with the next request. While
the file cannot be read, no request is let in.
"""

import asyncio
import hashlib
import hmac
import os
import secrets
import stat
import time
from collections import OrderedDict
from datetime import UTC, datetime
from pathlib import Path

from starlette.requests import Request

from bridle.config.toml_file import convert_table, read_toml_file
from bridle.serve.identity import RESERVED_CALLERS, RIGHTS, Identity, Right, SeenSessions, check_rights
from bridle.serve.security import find_token
from bridle.values.base import Value
from bridle.values.errors import MisuseError

TOKEN_PREFIX = "bridle_"  # noqa: S105 - the beginning of every token
ID_BYTES, SECRET_BYTES, HASH_BYTES = 8, 32, 32
TOKEN_CHARACTERS_MAX = 200
SCRYPT_N, SCRYPT_R, SCRYPT_P = 2**12, 8, 1
"""Cost of a hash: about 10 ms and 4 MiB. The secrets are random; this is for a file that somebody copies."""
VERIFIED_MAX = 10_000
"""Tokens that are remembered as verified since the file was read, so that each is hashed slowly once."""


class TokenEntry(Value, kw_only=True, forbid_unknown_fields=True, gc=True):
    """A token: `[tokens.NAME]`."""

    id: str
    """Public part of the token, by which its line is found; also the salt of the hash."""
    hash: str
    """scrypt of the secret part, in hex."""
    caller: str = ""
    """Name of the person or program; that of the table if it is left out."""
    tenant: str = ""
    rights: tuple[Right, ...] = ("read", "prompt")
    sessions: SeenSessions = "own"
    expires: datetime | None = None


class TokenSettings(Value, kw_only=True, forbid_unknown_fields=True, gc=True):
    """The keys of a file of tokens."""

    tokens: dict[str, TokenEntry] = {}  # noqa: RUF012 - a frozen value


class TokenFile:
    """Identifies requests by the bearer tokens of a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._seen: tuple[int, ...] | None = None
        self._entries: dict[str, tuple[str, TokenEntry]] = {}
        self._verified: OrderedDict[bytes, str] = OrderedDict()
        self._read()

    async def __call__(self, request: Request) -> Identity | None:
        """The identity of the token that a request carries; None if it carries none of the file."""
        token = find_token(request.headers)
        self._read()
        name_and_secret = token.removeprefix(TOKEN_PREFIX).partition("_")
        found = self._entries.get(name_and_secret[0])
        if not token.startswith(TOKEN_PREFIX) or len(token) > TOKEN_CHARACTERS_MAX or found is None:
            return None
        name, entry = found
        # guard: token-expires
        if entry.expires is not None and entry.expires.timestamp() <= time.time():
            return None
        if not await self._verify(token, name_and_secret[2], entry):
            return None
        return Identity(
            caller=entry.caller or name,
            tenant=entry.tenant,
            rights=frozenset(entry.rights),
            sessions=entry.sessions,
        )

    async def _verify(self, token: str, secret: str, entry: TokenEntry) -> bool:
        digest = hashlib.sha256(token.encode()).digest()
        if self._verified.get(digest) == entry.hash:
            return True
        given = await asyncio.to_thread(hash_secret, entry.id, secret)
        # guard: token-file-compare
        if not hmac.compare_digest(given, entry.hash):
            return False
        self._verified[digest] = entry.hash
        while len(self._verified) > VERIFIED_MAX:
            self._verified.popitem(last=False)
        return True

    def _read(self) -> None:
        """Read the file if it changed; raises `MisuseError`, and then knows no token."""
        try:
            found = self._path.stat()
            seen = found.st_mtime_ns, found.st_size, found.st_ino, found.st_mode
            if seen == self._seen:
                return
            # guard: token-file-writable
            if found.st_mode & stat.S_IWOTH:
                raise MisuseError(
                    f"every user of this machine can write to {self._path}: chmod o-w {self._path}"
                )
            entries = read_entries(self._path)
        except (MisuseError, OSError) as error:
            self._seen, self._entries = None, {}
            if isinstance(error, MisuseError):
                raise
            problem = f"cannot read the tokens of {self._path}: {error.strerror or error}"
            raise MisuseError(problem) from None
        self._seen, self._entries = seen, entries
        self._verified.clear()


def read_entries(path: Path) -> dict[str, tuple[str, TokenEntry]]:
    """The names and lines of a file by the ids of their tokens; raises `MisuseError` with the place of a mistake."""
    file = read_toml_file(path)
    settings = TokenSettings() if file is None else convert_table(file, TokenSettings)
    if not settings.tokens:
        raise MisuseError(f"{path} has no tokens; `bridle serve --new-token NAME` makes one")
    entries: dict[str, tuple[str, TokenEntry]] = {}
    for name, entry in settings.tokens.items():
        place = f"{path}: [tokens.{name}]"
        if not _is_hex(entry.id, ID_BYTES) or not _is_hex(entry.hash, HASH_BYTES):
            raise MisuseError(f"{place}: id and hash must be those that `bridle serve --new-token` printed")
        if (entry.caller or name) in RESERVED_CALLERS or not (entry.caller or name):
            raise MisuseError(f"{place}: {entry.caller or name!r} cannot be the name of a caller")
        if entry.expires is not None and entry.expires.tzinfo is None:
            raise MisuseError(
                f"{place}: expires needs a time zone, such as {datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
            )
        if entry.id in entries:
            raise MisuseError(f"{place} has the id of [tokens.{entries[entry.id][0]}]; make a token for each")
        entries[entry.id] = name, entry
    return entries


def hash_secret(salt: str, secret: str) -> str:
    given = secret.encode(errors="replace")
    cost = {"n": SCRYPT_N, "r": SCRYPT_R, "p": SCRYPT_P}
    return hashlib.scrypt(given, salt=bytes.fromhex(salt), dklen=HASH_BYTES, **cost).hex()


def make_token(
    tenant: str = "", rights: tuple[str, ...] = ("read", "prompt"), sessions: SeenSessions = "own"
) -> tuple[str, TokenEntry]:
    """A new token, which is shown once, and its entry for the file."""
    public, secret = secrets.token_hex(ID_BYTES), secrets.token_urlsafe(SECRET_BYTES)
    allowed = check_rights(rights)
    entry = TokenEntry(
        id=public,
        hash=hash_secret(public, secret),
        tenant=tenant,
        rights=tuple(each for each in RIGHTS if each in allowed),
        sessions=sessions,
    )
    return f"{TOKEN_PREFIX}{public}_{secret}", entry


def _is_hex(text: str, length: int) -> bool:
    return len(text) == 2 * length and set(text) <= set("0123456789abcdef")
