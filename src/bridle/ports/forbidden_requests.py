"""Refuses requests that leave this machine, for tests: a test that forgot a fake model fails instead of paying.

`BRIDLE_FORBID_REQUESTS=1` or `bridle.testing.forbid_requests()` forbids them.  Checked is every HTTP request to a
model, an MCP server, a web page or a telemetry endpoint, by its host; stores and other services of the application
are reached as before.
"""

import ipaddress
import os
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from bridle.values.errors import MisuseError

FORBID_VARIABLE = "BRIDLE_FORBID_REQUESTS"
OFF = ("", "0", "false", "no", "off")
_open_blocks = 0


class RequestForbidden(MisuseError):
    """A request to another machine while requests are forbidden."""


@contextmanager
def forbid_requests() -> Iterator[None]:
    """Refuse requests to every address that is not loopback, in all threads, until the `with` block ends."""
    global _open_blocks
    _open_blocks += 1
    try:
        yield
    finally:
        _open_blocks -= 1


def check_request(url: str) -> None:
    """Raise `RequestForbidden` for a URL of another machine while requests are forbidden."""
    if not _open_blocks and os.environ.get(FORBID_VARIABLE, "").lower() in OFF:
        return
    host = urlsplit(url).hostname or ""
    if not _is_loopback(host):
        raise RequestForbidden(
            f"a request to {host!r} was refused, because requests are forbidden here (forbid_requests() or"
            f" {FORBID_VARIABLE}). Use a fake: `with agent.override(model=bridle.testing.scripted(…))`"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
