"""The header of a trusted proxy, such as one that signs people in: it counts only from the proxy's own addresses."""

import ipaddress
from collections.abc import Iterable

from starlette.requests import Request

from bridle.serve.identity import RIGHTS_DEFAULT, Identity, Right, SeenSessions, check_rights
from bridle.values.errors import MisuseError

HEADER_CHARACTERS_MAX = 500


class TrustedProxy:
    """Identifies requests by headers that a proxy in front sets.

    The proxy must remove these headers from what clients send. The address is that of the connection: a server that
    replaces it by `X-Forwarded-For` (uvicorn's `proxy_headers`) must accept that from the proxy only.
    """

    def __init__(
        self,
        *,
        proxies: Iterable[str],
        caller_header: str,
        tenant_header: str = "",
        rights: Iterable[Right] = RIGHTS_DEFAULT,
        sessions: SeenSessions = "own",
    ) -> None:
        """`proxies` are addresses or networks, such as `10.0.0.7` or `10.0.0.0/24`."""
        self._networks = tuple(map(_parse_network, proxies))
        if not self._networks or not caller_header:
            raise MisuseError(
                "TrustedProxy needs the addresses of its proxies and the header with the caller"
            )
        self._headers = caller_header.lower(), tenant_header.lower()
        self._rights, self._sessions = check_rights([*rights]), sessions

    def __call__(self, request: Request) -> Identity | None:
        # guard: proxy-address
        if not self._is_proxy(request):
            return None
        caller_header, tenant_header = self._headers
        caller = _read_once(request, caller_header)
        tenant = _read_once(request, tenant_header) if tenant_header else ""
        if not caller or (tenant_header and not tenant):
            return None
        return Identity(caller=caller, tenant=tenant, rights=self._rights, sessions=self._sessions)

    def _is_proxy(self, request: Request) -> bool:
        try:
            address = ipaddress.ip_address(request.client.host if request.client is not None else "")
        except ValueError:
            return False
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)


def _read_once(request: Request, name: str) -> str:
    """The value of a header; empty if it is missing or given twice, of which one may be the client's."""
    found = request.headers.getlist(name)
    # guard: proxy-header-once
    if len(found) != 1 or len(found[0]) > HEADER_CHARACTERS_MAX:
        return ""
    return found[0].strip()


def _parse_network(given: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        network = ipaddress.ip_network(given)
    except ValueError as error:
        raise MisuseError(f"{given!r} is not the address of a proxy: {error}") from None
    if network.prefixlen == 0:
        raise MisuseError(f"{given!r} trusts every address; name those of the proxy")
    return network
