"""JSON Web Tokens of an OpenID Connect provider: signature, algorithm, issuer, audience and time are checked.

The public keys come from the provider's JWKS address, which its own description names (OpenID Connect Discovery). They
are kept for a while. A token with an unknown key id makes them be read again, so that a rotated key works at once.
Needs the extra `bridle[jwt]`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import jwt
import msgspec
from starlette.requests import Request

from bridle.ports.transport import OutgoingRequest, Transport
from bridle.serve.identity import RIGHTS, RIGHTS_DEFAULT, Identity, Right, SeenSessions, check_rights
from bridle.serve.options import is_loopback
from bridle.serve.security import find_token
from bridle.transports.http import Deadlines, HttpTransport
from bridle.values.errors import BridleError, MisuseError
from bridle.values.text import escape_text

LOG = logging.getLogger("bridle")
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures with a public key. A shared secret (HS256) would let every server that checks tokens make them."""
TOKEN_BYTES_MAX = 16 * 1024
JWKS_BYTES_MAX, JWKS_KEYS_MAX = 256 * 1024, 100
DISCOVERY_PATH, DISCOVERY_BYTES_MAX = "/.well-known/openid-configuration", 64 * 1024
DEADLINES = Deadlines(connect_seconds=3, first_byte_seconds=5, idle_seconds=5, total_seconds=5)
KEYS_SECONDS, KEYS_SECONDS_MAX = 600.0, 3_600.0
"""Time after which the keys are read again, and for which they count at most if the provider does not answer."""
RETRY_SECONDS = 10.0
"""Time between two requests for the keys, whatever key ids tokens name."""
# not from outside: an argument of the user's program
LEEWAY_SECONDS_MAX = 300.0
REQUIRED_CLAIMS = ("exp", "iss", "aud")
Claims = Mapping[str, Any]


class JwksKeys:
    """The public keys of a provider."""

    def __init__(self, url: str, issuer: str, transport: Transport | None = None) -> None:
        """`url` is that of the keys; empty to read it from the description of the issuer."""
        # guard: jwks-address
        if not is_safe_address(url or issuer):
            raise MisuseError(
                f"the keys of {url or issuer!r} could be changed on the way: the address must be https"
            )
        self._url, self._issuer, self._transport = url, issuer, transport or HttpTransport(DEADLINES)
        self._keys: dict[str, jwt.PyJWK] = {}
        self._read_at = self._tried_at = -float("inf")
        self._reading = asyncio.Lock()

    async def find(self, key_id: str) -> "jwt.PyJWK | None":
        """The key of this id; None if the provider has none."""
        if self._needs_reading(key_id):
            async with self._reading:
                if self._needs_reading(key_id):
                    await self._read_again()
        # guard: jwks-age
        if time.monotonic() - self._read_at >= KEYS_SECONDS_MAX:
            return None
        return self._keys.get(key_id)

    def _needs_reading(self, key_id: str) -> bool:
        now = time.monotonic()
        is_due = now - self._read_at >= KEYS_SECONDS or key_id not in self._keys
        # guard: jwks-retry-limit
        return is_due and now - self._tried_at >= RETRY_SECONDS

    async def _read_again(self) -> None:
        self._tried_at = time.monotonic()
        try:
            self._keys, self._read_at = await self._read(), time.monotonic()
        except (BridleError, msgspec.MsgspecError, TimeoutError) as error:
            place = self._url or self._issuer
            LOG.warning("%s", escape_text(f"the keys of {place} cannot be read: {error}"))

    async def _read(self) -> "dict[str, jwt.PyJWK]":
        body = await self._get(self._url or await self._discover(), JWKS_BYTES_MAX)
        found = msgspec.json.decode(body, type=dict[str, Any]).get("keys")
        if not isinstance(found, list) or len(found) > JWKS_KEYS_MAX:
            raise JwksError(f"the provider must have a list of at most {JWKS_KEYS_MAX} keys")
        return dict(_read_keys(found))

    async def _discover(self) -> str:
        """The address of the keys in the description of the issuer; it is read again with the keys."""
        body = await self._get(self._issuer.rstrip("/") + DISCOVERY_PATH, DISCOVERY_BYTES_MAX)
        found = msgspec.json.decode(body, type=dict[str, Any])
        # guard: discovery-issuer
        if found.get("issuer") != self._issuer:
            raise JwksError(
                f"the description of {self._issuer} is that of another issuer: write it as the provider does"
            )
        url = found.get("jwks_uri")
        # guard: discovery-address
        if not isinstance(url, str) or not is_safe_address(url, local=is_local_address(self._issuer)):
            raise JwksError("the description of the issuer names no https address of its keys (jwks_uri)")
        return url

    async def _get(self, url: str, bytes_max: int) -> bytes:
        headers = (("accept", "application/json"),)
        outgoing = OutgoingRequest(method="GET", url=url, headers=headers, body=b"")
        body = b""
        async with self._transport.open(outgoing) as response:
            if response.status != 200:
                raise JwksError(f"{url} answered {response.status}")
            async for chunk in response.chunks():
                body += chunk
                # guard: jwks-size-limit
                if len(body) > bytes_max:
                    raise JwksError(f"{url} has more than {bytes_max:,} bytes")
        return body


def is_local_address(url: str) -> bool:
    """True for an http address of this machine, such as an issuer in a test."""
    place = urlsplit(url)
    return place.scheme == "http" and is_loopback(place.hostname or "")


def is_safe_address(url: str, *, local: bool = True) -> bool:
    """True if nobody on the way can change what comes from there; `local`: or if it is on this machine."""
    place = urlsplit(url)
    return (place.scheme == "https" and bool(place.hostname)) or (local and is_local_address(url))


class JwksError(BridleError):
    """The keys of a provider cannot be used."""


def _read_keys(found: Iterable[object]) -> Iterable[tuple[str, "jwt.PyJWK"]]:
    """Keys for signatures that this module knows, by their id."""
    for each in found:
        if not isinstance(each, dict) or each.get("use", "sig") != "sig" or each.get("kty") == "oct":
            continue
        try:
            key = jwt.PyJWK(each)
        except (jwt.PyJWTError, ValueError, TypeError):
            continue  # of a kind that came after this version of PyJWT; a token that names it is refused
        if key.key_id:
            yield key.key_id, key


class JsonWebTokens:
    """Identifies requests by the JSON Web Tokens of one issuer, sent as bearer tokens."""

    def __init__(
        self,
        *,
        issuer: str,
        audience: str,
        jwks_url: str = "",
        algorithms: Iterable[str] = ("RS256", "ES256"),
        caller_claim: str = "sub",
        tenant_claim: str = "",
        rights_claim: str = "",
        rights: Iterable[Right] | None = None,
        sessions: SeenSessions = "own",
        make_identity: Callable[[Claims], Identity | None] | None = None,
        leeway_seconds: float = 30.0,
        transport: Transport | None = None,
    ) -> None:
        """`jwks_url` is the address of the public keys; without it, the issuer is asked for it.

        `rights` are those of every token (`read` and `prompt`). With `rights_claim` they are those that the claim
        names, as far as they are among `rights` (any). `make_identity` makes the identity of checked claims, in place
        of the claims and rights that are named.
        """
        self._algorithms = tuple(algorithms)
        # guard: jwt-algorithms
        if unknown := [each for each in self._algorithms if each not in ALGORITHMS]:
            raise MisuseError(
                f"the algorithm {unknown[0]!r} is not accepted; choose from: {', '.join(ALGORITHMS)}"
            )
        if not self._algorithms or not issuer or not audience:
            raise MisuseError(
                "JSON Web Tokens need an issuer, an audience and an algorithm to be checked against"
            )
        if not 0 <= leeway_seconds <= LEEWAY_SECONDS_MAX:
            raise MisuseError(f"leeway_seconds is 0 to {LEEWAY_SECONDS_MAX:g}, not {leeway_seconds!r}")
        self._issuer, self._audience, self._leeway = issuer, audience, leeway_seconds
        self._claims = caller_claim, tenant_claim, rights_claim
        if rights is None:
            rights = RIGHTS if rights_claim else RIGHTS_DEFAULT
        self._rights, self._sessions = check_rights([*rights]), sessions
        self._make_identity = make_identity or self._read_claims
        self._keys = JwksKeys(jwks_url, issuer, transport)

    async def __call__(self, request: Request) -> Identity | None:
        """The identity of the token that a request carries; None if it carries none, or one that is not valid."""
        token = find_token(request.headers)
        if not token or len(token) > TOKEN_BYTES_MAX:
            return None
        try:
            header = jwt.get_unverified_header(token)
            key_id, algorithm = header.get("kid"), header.get("alg")
            if not isinstance(key_id, str) or algorithm not in self._algorithms:
                return None
            key = await self._keys.find(key_id)
            if key is None:
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=[*self._algorithms],
                issuer=self._issuer,
                audience=self._audience,
                leeway=self._leeway,
                options={"require": [*REQUIRED_CLAIMS]},
            )
        except jwt.PyJWTError:
            return None
        return self._make_identity(claims)

    def _read_claims(self, claims: Claims) -> Identity | None:
        caller_claim, tenant_claim, rights_claim = self._claims
        caller, tenant = claims.get(caller_claim), claims.get(tenant_claim) if tenant_claim else ""
        rights = read_rights(claims.get(rights_claim)) if rights_claim else self._rights
        # guard: jwt-claims-required
        if (
            not isinstance(caller, str)
            or not caller
            or not isinstance(tenant, str)
            or (tenant_claim and not tenant)
            or rights is None
        ):
            return None
        # guard: jwt-rights-limit
        allowed = rights & self._rights
        return Identity(caller=caller, tenant=tenant, rights=allowed, sessions=self._sessions)


def read_rights(claim: object) -> frozenset[Right] | None:
    """The rights in a claim: a list of texts, or one text of words, as a `scope` is; None if it is neither.

    Other words are of other services.
    """
    words = claim.split() if isinstance(claim, str) else claim
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        return None
    return frozenset(right for right in RIGHTS if right in words)
