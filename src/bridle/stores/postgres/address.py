"""The address of a PostgreSQL store: a URL, and a name for messages that has no password in it."""

import os
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from bridle.values.errors import MisuseError, Unusable

DEFAULT_SCHEMA = "bridle"
# not from outside: an argument of the user's program
SCHEMA_BYTES_MAX = 63
"""Longest name of a schema; the server cuts longer ones."""

TLS_FILES = ("sslrootcert", "sslcert", "sslkey", "sslcrl")


class Address(NamedTuple):
    dsn: str
    """URL for the driver. It may hold a password: never shown."""
    schema: str
    """Schema that holds the tables."""
    name: str
    """Host, port, database and schema, for messages."""

    @property
    def user(self) -> str:
        """User that the URL names; empty if the environment or the system decides."""
        parts = urlsplit(self.dsn)
        return unquote(parts.username or "") or dict(parse_qsl(parts.query)).get("user", "")

    def check_files(self) -> None:
        """Raise `Unusable` if the URL or the environment names a TLS file that does not exist."""
        given = dict(parse_qsl(urlsplit(self.dsn).query))
        for option in TLS_FILES:
            file = given.get(option) or os.environ.get(f"PG{option.upper()}")
            if file and not Path(file).exists():
                raise Unusable(
                    f"store {self.name}: the file {file!r} of {option} does not exist; correct {option} in the URL "
                    f"or $PG{option.upper()}"
                )

    def __repr__(self) -> str:
        return f"Address({self.name})"


def parse_address(url: str) -> Address:
    """Parse `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME`. Raises `MisuseError` without repeating it."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise MisuseError("the URL of the PostgreSQL store cannot be parsed: check its brackets") from error
    if "@" in parts.path + parts.query + parts.fragment or parts.fragment:
        raise MisuseError(
            "the URL of the PostgreSQL store has an @ or # in the wrong place: in a user name or password, write "
            "%40 for @, %3A for :, %2F for /, %3F for ? and %23 for #"
        )
    options = parse_qsl(parts.query, keep_blank_values=True)
    schema = dict(options).get("schema", DEFAULT_SCHEMA)
    if not schema or "\0" in schema or len(schema.encode(errors="replace")) > SCHEMA_BYTES_MAX:
        raise MisuseError(
            f"the schema of a PostgreSQL store has 1 to {SCHEMA_BYTES_MAX} bytes: ?schema={DEFAULT_SCHEMA}"
        )
    kept = urlencode([(key, value) for key, value in options if key != "schema"])
    # guard: database-url-password
    name = f"postgresql://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if schema != DEFAULT_SCHEMA:
        name += f"?schema={schema}"
    return Address(parts._replace(scheme="postgresql", query=kept).geturl(), schema, name)
