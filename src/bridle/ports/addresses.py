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
