"""Signed requests, as one large cloud wants them instead of a key (its Signature Version 4).

A pure function: everything it needs is given, the time included, and what it returns are the headers to
add.  The secret never leaves here; it makes a key that is good for one day, region and service, and that
key makes the signature.

What is signed is what must arrive unchanged: the method, the path and query as they are sent, the host,
the headers given, and the body.  So nothing may be rewritten behind the signer's back, not even how a
colon is quoted; headers that proxies add are simply not given.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from hmac import digest
from urllib.parse import parse_qsl, quote, urlsplit

_ALGORITHM = "AWS4-HMAC-SHA256"
_SCOPE_END = "aws4_request"
_DEFAULT_PORTS = {"http": 80, "https": 443}

Headers = tuple[tuple[str, str], ...]


def signed_headers(
    method: str,
    url: str,
    body: bytes,
    *,
    service: str,
    region: str,
    access_key: str,
    secret_key: str,
    now: float,
    session_token: str = "",
    headers: Sequence[tuple[str, str]] = (),
) -> Headers:
    """The headers that prove who asks: `headers` are signed too, `now` is in seconds since 1970."""
    moment = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    day = moment[:8]
    added = [("x-amz-date", moment)]
    if session_token:
        added.append(("x-amz-security-token", session_token))
    names, canonical = _canonical_request_text(method, url, body, [*headers, *added])
    scope = f"{day}/{region}/{service}/{_SCOPE_END}"
    to_sign = "\n".join((_ALGORITHM, moment, scope, sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{secret_key}".encode()
    for step in (day, region, service, _SCOPE_END):
        key = digest(key, step.encode(), "sha256")
    signature = digest(key, to_sign.encode(), "sha256").hex()
    proof = f"{_ALGORITHM} Credential={access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    return (*added, ("authorization", proof))


def _canonical_request_text(
    method: str, url: str, body: bytes, headers: Sequence[tuple[str, str]]
) -> tuple[str, str]:
    """The names of what is signed, and the request in the one form both sides agree on."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    if parts.port is not None and parts.port != _DEFAULT_PORTS.get(parts.scheme):
        host = f"{host}:{parts.port}"
    said: dict[str, list[str]] = {"host": [host]}
    for name, value in headers:
        said.setdefault(name.lower(), []).append(" ".join(value.split()))
    lines = [f"{name}:{','.join(said[name])}" for name in sorted(said)]
    names = ";".join(sorted(said))
    # The path is quoted as it is sent, that is, once more: a percent sign in it becomes %25.
    path = quote(_remove_dot_segments(parts.path), safe="/~")
    pairs = sorted((_uri_encode(name), _uri_encode(value)) for name, value in parse_qsl(parts.query, True))
    query = "&".join(f"{name}={value}" for name, value in pairs)
    whole = (method.upper(), path, query, *lines, "", names, sha256(body).hexdigest())
    return names, "\n".join(whole)


def _remove_dot_segments(path: str) -> str:
    kept: list[str] = []
    for step in path.split("/"):
        if step == "..":
            kept[-1:] = []
        elif step and step != ".":
            kept.append(step)
    return "/" + "/".join(kept) + ("/" if path.endswith("/") and kept else "")


def _uri_encode(text: str) -> str:
    return quote(text, safe="-_.~")
