"""Errors of the PostgreSQL driver, explained in one line that has no password in it."""

import ssl

from asyncpg import exceptions as pg

from bridle.values.errors import BridleError, Corrupt, StoreError, Unusable

LOST = (
    pg.PostgresConnectionError,
    pg.OperatorInterventionError,
    pg.InterfaceError,
    pg.InternalClientError,
    OSError,
    TimeoutError,
)
"""Errors after which the outcome of a statement is unknown."""

_EXPLANATIONS: tuple[tuple[type[BaseException], type[StoreError], str], ...] = (
    (pg.InvalidPasswordError, Unusable, "it refuses the user or the password; check the URL, $PGPASSWORD or ~/.pgpass"),
    (pg.InvalidAuthorizationSpecificationError, Unusable, "it refuses the user; check the URL and pg_hba.conf"),
    (pg.InvalidCatalogNameError, Unusable, "there is no such database; create it: createdb NAME"),
    (pg.InsufficientPrivilegeError, Unusable, "the user lacks a privilege; GRANT it the schema and its tables"),
    (pg.ReadOnlySQLTransactionError, Unusable, "it is read-only, perhaps a standby; connect to the primary"),
    (pg.TooManyConnectionsError, Unusable, "it has no connection left; raise max_connections or stop other clients"),
    (pg.DiskFullError, Unusable, "its disk is full; make room and resume"),
    (pg.OutOfMemoryError, Unusable, "it is out of memory; free some and resume"),
    (pg.CannotConnectNowError, Unusable, "it is starting up or shutting down; try again in a moment"),
    (pg.AdminShutdownError, Unusable, "an administrator ended the connection; resume"),
    (pg.CrashShutdownError, Unusable, "it crashed; resume when it runs again"),
    (pg.QueryCanceledError, Unusable, "a statement took too long; find what keeps it busy"),
    (pg.LockNotAvailableError, Unusable, "another transaction keeps a row locked; end it or try again"),
    (pg.UndefinedTableError, Corrupt, "tables are missing; restore them from a backup"),
    (pg.IntegrityConstraintViolationError, Corrupt, "its rows contradict one another; restore them from a backup"),
    (pg.DataCorruptedError, Corrupt, "its data are damaged; restore them from a backup"),
    (pg.PostgresConnectionError, Unusable, "the connection was lost; resume when the server can be reached"),
    (pg.TargetServerAttributeNotMatched, Unusable, "no server of the URL has the role of target_session_attrs"),
    (ssl.SSLError, Unusable, "TLS fails; check sslmode and sslrootcert in the URL"),
    (TimeoutError, Unusable, "it does not answer; check the address, the firewall and that it runs"),
    (OSError, Unusable, "it cannot be reached; check the address and that it runs"),
)  # fmt: skip


def explain_error(name: str, error: BaseException) -> BridleError:
    """Translate an error of the driver, whose first line is quoted."""
    if isinstance(error, ConnectionError) and "rejected SSL" in str(error):  # the driver has no class for it
        return Unusable(
            f"store {name}: it offers no TLS; turn on its setting ssl, or change sslmode in the URL"
        )
    for kind, raised, explanation in _EXPLANATIONS:
        if isinstance(error, kind):
            return raised(f"store {name}: {explanation}{_quote(error)}")
    return Unusable(f"store {name}: it cannot be used{_quote(error)}")


def _quote(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f" ({lines[0]})" if lines else ""
