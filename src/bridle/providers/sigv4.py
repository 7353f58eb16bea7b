"""Signs requests with AWS Signature Version 4.

A pure function: all input is passed in, including the time, and the result is the headers to add. The secret
never leaves this module; it derives a key valid for one day, region and service, and that key signs.

The signature covers the method, the path and query as sent, the host, the given headers and the body. None of
them may be changed after signing, not even the quoting of a colon; headers that proxies add are not passed
in.
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
    """Return the authentication headers. `headers` are signed too; `now` is in seconds since 1970."""
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
    """Return the names of the signed headers and the canonical request."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    if parts.port is not None and parts.port != _DEFAULT_PORTS.get(parts.scheme):
        host = f"{host}:{parts.port}"
    values: dict[str, list[str]] = {"host": [host]}
    for name, value in headers:
        values.setdefault(name.lower(), []).append(" ".join(value.split()))
    lines = [f"{name}:{','.join(values[name])}" for name in sorted(values)]
    names = ";".join(sorted(values))
    # The path is quoted once more than it is sent: a percent sign in it becomes %25.
    path = quote(_remove_dot_segments(parts.path), safe="/~")
    pairs = sorted((_uri_encode(name), _uri_encode(value)) for name, value in parse_qsl(parts.query, True))
    query = "&".join(f"{name}={value}" for name, value in pairs)
    lines_to_sign = (method.upper(), path, query, *lines, "", names, sha256(body).hexdigest())
    return names, "\n".join(lines_to_sign)


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
