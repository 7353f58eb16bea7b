"""How long to wait for what; the same patience whatever carries the bytes."""

from ..values.value import Value


class Deadlines(Value):
    """Any byte counts as a sign of life; None waits for ever."""

    connect_seconds: float | None = 10.0
    """Finding the address, connecting and TLS together."""
    first_byte_seconds: float | None = 600.0
    """From the request to the first byte of the answer's body: a model may think this long."""
    idle_seconds: float | None = 300.0
    """Between two pieces of an answer."""
