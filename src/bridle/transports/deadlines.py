"""How long to wait for what; the same patience whatever carries the bytes."""

from bridle.values.base import Value


class Deadlines(Value):
    """How long one request may take, from four sides; the failure names the one that fired.

    Any byte counts as a sign of life; None waits for ever.  They are made for models that think for
    minutes before they say a word: a deadline that ends a thought is paid for and brings nothing.
    """

    connect_seconds: float | None = 10.0
    """Finding the address, connecting and TLS together."""
    first_byte_seconds: float | None = 600.0
    """From the request to the first byte of the answer's body: a model may think this long."""
    idle_seconds: float | None = 300.0
    """Between two pieces of an answer."""
    total_seconds: float | None = 3600.0
    """From the request to the last byte: for those who drip for ever.  A reply that took this long would
    take it again, so it is not asked for a second time."""
