"""Hosts that a sign-in may reach: a server names them, and must not lead this machine to others of its network.

    the server's own address          always: the user gave it
    another host, https               if all of its addresses are public
    a private or loopback address     if the server is in such a network itself
    a link-local address              never: there are the credentials of cloud machines; nor another address of them
    http                              only beside a server that is at an http address in a private network

A host is looked up once, and the request goes to the address that was checked.
"""

import asyncio
import ipaddress
import socket

import httpx2

from bridle.ports.addresses import find_destination, is_public
from bridle.ports.forbidden_requests import check_request
from bridle.values.text import escape_text

from .server_settings import SignInFailed

CREDENTIAL_ADDRESSES = frozenset(
    map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16"))
)
"""Other addresses at which cloud machines find their credentials and settings."""


class SignInHosts:
    """The rule for the sign-in to one server."""

    def __init__(self, server: str) -> None:
        self._server = httpx2.URL(server)

    async def pin(self, request: httpx2.Request) -> httpx2.Request:
        """The request to the address that was checked; raises `SignInFailed` for a host that must not be reached."""
        address = await self.check(request.url)
        if address is None:
            return request
        host = request.url.host
        request.headers["Host"] = request.url.netloc.decode("ascii")
        request.extensions = {**request.extensions, "sni_hostname": host}
        request.url = request.url.copy_with(host=address)
        return request

    async def check(self, url: httpx2.URL) -> str | None:
        """An address of the host that may be reached; None for the server's own, which is not looked up here."""
        if _origin(url) == _origin(self._server):
            return None
        if url.userinfo or url.scheme not in ("https", "http"):
            raise _refuse(url, "only https:// without a user is reached")
        addresses, own = await _look_up(url), await _look_up(self._server)
        for address in addresses:
            # guard: sign-in-host-allowed
            if problem := _find_problem(address, own):
                raise _refuse(url, problem)
        if url.scheme == "http" and (self._server.scheme != "http" or any(map(is_public, addresses))):
            raise _refuse(url, "it is not encrypted (https://)")
        return addresses[0]


def _find_problem(address: str, own: list[str]) -> str:
    """Why an address that is not public must not be reached, beside a server with these addresses; empty if it may."""
    # guard: sign-in-inner-address
    ip = find_destination(address)
    if (ip.is_link_local or ip in CREDENTIAL_ADDRESSES) and address not in own:
        return f"{address} is a link-local address, or one of a cloud machine"
    if is_public(address):
        return ""
    if ip.is_loopback and not all(find_destination(each).is_loopback for each in own):
        return f"{address} is this machine, and the server is not"
    return "" if not any(map(is_public, own)) else f"{address} is in a private network, and the server is not"


async def _look_up(url: httpx2.URL) -> list[str]:
    check_request(str(url))
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(url.host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise SignInFailed(f"the host {escape_text(url.host)!r} of the sign-in was not found") from None
    return [str(item[4][0]) for item in found]


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


def _refuse(url: httpx2.URL, why: str) -> SignInFailed:
    return SignInFailed(f"the server leads the sign-in to {escape_text(url.host)!r}, which is refused: {why}")
