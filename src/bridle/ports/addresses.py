"""Which addresses are on the public internet, for every adapter that connects to a host which others named.

Uses the standard library only: the launcher of a sandbox runs it without site-packages.
"""

import ipaddress

MAPPED_NETWORKS = tuple(
    map(
        ipaddress.ip_network,
        ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "::/96", "::ffff:0:0:0/96", "fec0::/10"),
    )
)
"""Networks whose addresses contain an IPv4 address that a gateway may reach, and the former site-local one."""


IN_LAST_BYTES = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "::ffff:0:0:0/96", "::/96")))
"""Networks whose addresses end in the IPv4 address that they lead to."""


def find_destination(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address that a connection reaches: the one inside another, and this machine for one that names no machine."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if ip.is_unspecified:
        return ipaddress.ip_address("127.0.0.1" if ip.version == 4 else "::1")
    if isinstance(ip, ipaddress.IPv4Address) or ip.is_loopback:
        return ip
    inner = ip.ipv4_mapped or ip.sixtofour
    if inner is None and any(ip in network for network in IN_LAST_BYTES):
        inner = ipaddress.IPv4Address(ip.packed[-4:])
    return ip if inner is None else find_destination(str(inner))


def is_public(address: str) -> bool:
    """True for an address on the public internet; addresses that contain another are judged by that one."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return is_public(str(ip.ipv4_mapped))
        # guard: mapped-address
        if any(ip in network for network in MAPPED_NETWORKS) or ip.teredo is not None:
            return False
    # guard: public-address
    return ip.is_global and not ip.is_multicast
