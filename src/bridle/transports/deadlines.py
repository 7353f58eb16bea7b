"""Timeouts of one request, the same for every transport."""

from bridle.values.base import Value


class Deadlines(Value, kw_only=True):
    """Four timeouts of one request; the failure names the one that fired.

    Any received byte counts as activity; None disables a timeout. The defaults suit models that reason for
    minutes before the first token: a request that times out is still billed.
    """

    connect_seconds: float | None = 10.0
    """DNS lookup, connection and TLS handshake together."""
    first_byte_seconds: float | None = 600.0
    """From the request to the first byte of the response body."""
    idle_seconds: float | None = 300.0
    """Between two chunks of a response."""
    total_seconds: float | None = 3600.0
    """From the request to the last byte. Not retried when it fires: the reply would take as long again."""
