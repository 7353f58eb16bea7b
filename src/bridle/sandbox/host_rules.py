"""Hosts that an agent may reach, for the tool that fetches pages and for the proxy of sandboxed commands.

A host must be on the list, and all of its addresses must be public.  `resolve_host` asks the name server once and
returns an address that was checked; the caller connects to that address, so an answer that changes in between (DNS
rebinding) has no effect.  Uses the standard library only: the launcher runs it without site-packages.
"""

import ipaddress
import re
import socket
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

PORTS = {"http": 80, "https": 443}
MAPPED_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "::/96", "::ffff:0:0:0/96", "fec0::/10"),
    )
)
"""Networks whose addresses contain an IPv4 address that a gateway may reach, and the former site-local one."""
HOST_NAME = re.compile(r"[^\W_]([\w-]*\w)?(\.[\w-]*\w)*\.?")


class HostRefused(ValueError):
    """A host that must not be reached; the message is for the model."""


class HostRules:
    def __init__(self, allow: Sequence[str], allow_private: Sequence[str]) -> None:
        """`allow_private` are hosts that may have addresses in private networks.  Raises ValueError for no host."""
        for host in (*allow, *allow_private):
            if not isinstance(host, str) or not is_host(host.removeprefix("*.") or "*"):
                raise ValueError(
                    f"{host!r} is not a host; write example.com or *.example.com, without https:// and port"
                )
        self.allowed = tuple(host.lower().rstrip(".") for host in (*allow, *allow_private))
        self.private = tuple(host.lower().rstrip(".") for host in allow_private)

    def parse_url(self, url: str) -> tuple[SplitResult, str, int]:
        """The parts, host and port of an address whose host is on the list; raises `HostRefused` for any other."""
        if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
            raise HostRefused("the address has characters that must be percent-encoded")
        try:
            parts = urlsplit(url)
            host, port = (parts.hostname or "").rstrip("."), parts.port
        except ValueError as error:
            raise HostRefused(f"{url!r} is not an address: {error}") from None
        if parts.scheme not in PORTS:
            raise HostRefused(f"{url!r} is refused: only https:// and http:// are fetched")
        if not host or parts.username is not None or parts.password is not None:
            raise HostRefused(f"{url!r} is refused: write the host without user and password")
        if not self._is_allowed(host):
            listed = ", ".join(self.allowed) or "none"
            raise HostRefused(
                f"the host {host!r} is not allowed (allowed: {listed}); the user can allow it with"
                f" allow=[{host!r}] or --allow-host {host}"
            )
        return parts, host, port or PORTS[parts.scheme]

    def resolve_host(self, host: str, port: int) -> str:
        """An address of the host that may be connected to; all of its addresses must be public."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ConnectionError(f"the host {host!r} was not found: {error}") from None
        addresses = [str(item[4][0]) for item in found]
        if not _matches(host, self.private):
            for address in addresses:
                if not is_public(address):
                    raise HostRefused(
                        f"the host {host!r} has the address {address} in a private network; refused"
                    )
        return addresses[0]

    def _is_allowed(self, host: str) -> bool:
        return _matches(host, self.allowed)


def _matches(host: str, listed: Sequence[str]) -> bool:
    return any(host == each or (each.startswith("*.") and host.endswith(each[1:])) for each in listed)


def is_host(text: str) -> bool:
    """True for an IP address, or a name of letters, digits, hyphens and underscores between single dots."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return HOST_NAME.fullmatch(text) is not None
    return True


def is_public(address: str) -> bool:
    """True for an address on the public internet; addresses that contain another are judged by that one."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return is_public(str(ip.ipv4_mapped))
        if any(ip in network for network in MAPPED_NETWORKS) or ip.teredo is not None:
            return False
    return ip.is_global and not ip.is_multicast
