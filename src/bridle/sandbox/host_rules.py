"""Hosts that an agent may reach, for the tool that fetches pages and for the proxy of sandboxed commands.

A host must be on the list with its port, and all of its addresses must be public.  `resolve_host` asks the name
server once and returns an address that was checked; the caller connects to that address, so an answer that changes
in between (DNS rebinding) has no effect.  Uses the standard library only: the launcher runs it without site-packages.
"""

import ipaddress
import re
import socket
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from bridle.ports.addresses import is_public

PORTS = {"http": 80, "https": 443}
HOST_AND_PORT = re.compile(r"(?:\[([^\[\]]+)\]|([^:\[\]]+))(?::([0-9]{1,9}))?")
"""An address of version 6 is in brackets if a port follows."""
PORT_MAX = 65_535
HOST_NAME = re.compile(r"[^\W_]([\w-]*\w)?(\.[\w-]*\w)*\.?", re.ASCII)


class HostRefused(ValueError):
    """A host that must not be reached; the message is for the model."""


class HostRule(NamedTuple):
    """An entry of a list of hosts."""

    host: str
    """A name or an address; `*.name` for all names below it."""
    ports: tuple[int, ...]

    def matches(self, host: str, port: int) -> bool:
        # guard: host-below-domain
        is_below = self.host.startswith("*.") and host.endswith(self.host[1:])
        # guard: port-allowed
        return port in self.ports and (host == self.host or is_below)


class HostRules:
    def __init__(self, allow: Sequence[str], allow_private: Sequence[str]) -> None:
        """`allow_private` are hosts that may have addresses in private networks.  Raises ValueError for no host."""
        self.private = tuple(map(parse_rule, allow_private))
        self.rules = (*map(parse_rule, allow), *self.private)
        self.allowed = tuple(text.lower().rstrip(".") for text in (*allow, *allow_private))

    def parse_url(self, url: str) -> tuple[SplitResult, str, int]:
        """The parts, host and port of an address whose host is on the list; raises `HostRefused` for any other."""
        if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
            raise HostRefused("the address has characters that must be percent-encoded")
        try:
            parts = urlsplit(url)
            host, port = normalize_host(parts.hostname or ""), parts.port
        except ValueError as error:
            raise HostRefused(f"{url!r} is not an address: {error}") from None
        if parts.scheme not in PORTS:
            raise HostRefused(f"{url!r} is refused: only https:// and http:// are fetched")
        # guard: address-without-user
        if not host or parts.username is not None or parts.password is not None:
            raise HostRefused(f"{url!r} is refused: write the host without user and password")
        port = PORTS[parts.scheme] if port is None else port
        if not port:
            raise HostRefused(f"port 0 of the host {host!r} does not exist")
        # guard: host-allowed
        if not any(rule.matches(host, port) for rule in self.rules):
            listed = ", ".join(self.allowed) or "none"
            shown = f"[{host}]" if ":" in host else host
            what = f"the host {host!r}"
            if port not in PORTS.values():
                what, shown = f"port {port} of {what}", f"{shown}:{port}"
            raise HostRefused(
                f"{what} is not allowed (allowed: {listed}); the user can allow it with"
                f" allow=[{shown!r}] or --allow-host {shown}"
            )
        return parts, host, port

    def resolve_host(self, host: str, port: int) -> str:
        """An address of the host that may be connected to; all of its addresses must be public."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ConnectionError(f"the host {host!r} was not found: {error}") from None
        addresses = [str(item[4][0]) for item in found]
        # guard: private-host-refused
        if not any(rule.matches(host, port) for rule in self.private):
            for address in addresses:
                # guard: private-address-refused
                if not is_public(address):
                    raise HostRefused(
                        f"the host {host!r} has the address {address} in a private network; refused"
                    )
        return addresses[0]


def parse_rule(text: str) -> HostRule:
    """An entry of a list: `host`, which means its ports 80 and 443, or `host:port`."""
    found = HOST_AND_PORT.fullmatch(text) if isinstance(text, str) else None
    host = (found[1] or found[2]) if found else text
    is_valid = isinstance(host, str) and is_host(host.removeprefix("*.") or "*")
    if not is_valid or (found and found[1] and ":" not in host):
        raise ValueError(
            f"{text!r} is not a host; write example.com, *.example.com or example.com:8080, without https://, and"
            " other letters than a to z in their ASCII form (xn--…)"
        )
    if not found or not found[3]:
        return HostRule(normalize_host(host), tuple(PORTS.values()))
    if not 0 < int(found[3]) <= PORT_MAX:
        raise ValueError(f"{text!r} has no valid port; ports are 1 to {PORT_MAX}")
    return HostRule(normalize_host(host), (int(found[3]),))


def normalize_host(text: str) -> str:
    """The form in which hosts are compared: addresses in their shortest form, names in small letters."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text.lower().rstrip(".")


def is_host(text: str) -> bool:
    """True for an IP address, or a name of letters, digits, hyphens and underscores between single dots."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return HOST_NAME.fullmatch(text) is not None
    return True
