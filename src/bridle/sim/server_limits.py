"""Time and size limits of the simulator's server."""

from bridle.values.base import Value


class ServerLimits(Value, kw_only=True):
    """Time and size limits for the requests of one client."""

    header_seconds: float = 30.0
    """From the first byte of a request (on a new connection, from its start) to the end of its head."""
    header_bytes: int = 65_536
    body_seconds: float = 120.0
    """From the end of the head to the last byte of the body."""
    body_bytes: int = 64 * 1024 * 1024
    """Twice what any provider accepts, so that a family's own limit is reported in its own words."""
    idle_seconds: float = 75.0
    """From an answer to the next request on the same connection."""
