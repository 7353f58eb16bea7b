"""Time that one model call took, from sending the request; recorded with what came of the call."""

from .value import Value


class Latency(Value):
    """Seconds from sending a request to each point of its answer; None for a point that was never reached."""

    first_byte: float | None = None
    """To the status line of the answer."""
    first_token: float | None = None
    """To the first word, thought or call; of a reply that was not streamed, to its end."""
    total: float = 0.0
    """To the end of the answer, or to the moment it was given up."""
