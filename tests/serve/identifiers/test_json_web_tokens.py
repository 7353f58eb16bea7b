"""JSON Web Tokens: only those that the issuer signed, for this server, now, with an accepted algorithm."""

import asyncio
import base64
import hmac
import json
import math
import time
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from bridle import MisuseError
from bridle.serve.identity import Identity
from tests.serve.serving import serve
from tests.suite.in_loop import in_loop

jwt = pytest.importorskip("jwt")
ec = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ec")
from cryptography.hazmat.primitives import serialization  # noqa: E402

from bridle.serve.identifiers import json_web_tokens  # noqa: E402
from bridle.serve.identifiers.json_web_tokens import JWKS_BYTES_MAX, JsonWebTokens  # noqa: E402

ISSUER, AUDIENCE = "https://sign-in.example", "bridle"
KEYS_URL, DESCRIPTION_URL = f"{ISSUER}/keys", f"{ISSUER}/.well-known/openid-configuration"
KEYS = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("old", "new", "stranger")}


def describe_key(name, **more):
    found = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(KEYS[name].public_key()))
    return {**found, "kid": name, "use": "sig", **more}


class Provider:
    """A transport to the keys of a provider, which counts its requests."""

    def __init__(self, *names):
        self.body, self.status, self.requests = self.encode(names), 200, 0

    @staticmethod
    def encode(names):
        return json.dumps({"keys": [describe_key(name) for name in names]}).encode()

    @asynccontextmanager
    async def open(self, request):
        self.requests += 1
        yield self

    async def chunks(self):
        for start in range(0, len(self.body), 65_536):
            yield self.body[start : start + 65_536]


def sign(key="old", algorithm="ES256", kid=None, **changes):
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ann",
        "org": "acme",
        "exp": time.time() + 600,
        **changes,
    }
    given = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(given, KEYS[key], algorithm, headers={"kid": kid or key})


def make_identify(provider, **options):
    given = {"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": KEYS_URL, **options}
    return JsonWebTokens(transport=provider, tenant_claim="org", **given)


def find(identify, *tokens):
    async def find_all():
        return [await identify(make_request(token)) for token in tokens]

    return asyncio.run(find_all())


def make_request(token):
    return Request({"type": "http", "headers": [(b"authorization", f"Bearer {token}".encode())]})


def test_a_signed_token_gives_the_identity_of_its_claims():
    (found,) = find(make_identify(Provider("old")), sign())
    assert (found.caller, found.tenant, found.rights) == ("ann", "acme", {"read", "prompt"})


def encode_part(value):
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def make_unsigned():
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "org": "acme", "exp": time.time() + 600}
    return f"{encode_part({'alg': 'none', 'kid': 'old'})}.{encode_part(claims)}."


def make_signed_with_public_key():
    """A token whose shared secret is the public key of the issuer, for a server that lets the token choose."""
    public = (
        KEYS["old"]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "org": "acme", "exp": time.time() + 600}
    text = f"{encode_part({'alg': 'HS256', 'kid': 'old'})}.{encode_part(claims)}"
    signature = base64.urlsafe_b64encode(hmac.digest(public, text.encode(), "sha256")).rstrip(b"=").decode()
    return f"{text}.{signature}"


WRONG = {
    "of another signer": lambda: sign("stranger", kid="old"),
    "with an unknown key": lambda: sign("stranger"),
    "without a signature": make_unsigned,
    "signed with the public key": make_signed_with_public_key,
    "changed": lambda: sign()[:-8] + "AAAAAAAA",
    "expired": lambda: sign(exp=time.time() - 3600),
    "without an expiry": lambda: sign(exp=None),
    "not valid yet": lambda: sign(nbf=time.time() + 3600),
    "of another issuer": lambda: sign(iss="https://evil.example"),
    "without an issuer": lambda: sign(iss=None),
    "for another service": lambda: sign(aud="mail"),
    "for nobody": lambda: sign(aud=None),
    "without a subject": lambda: sign(sub=None),
    "without a tenant": lambda: sign(org=None),
    "with a tenant that is no text": lambda: sign(org=["acme"]),
    "too long": lambda: sign(note="x" * 20_000),
    "no token": lambda: "a.b.c",
    "empty": lambda: "",
}


@pytest.mark.parametrize("why", WRONG)
def test_a_token_that_is_wrong_proves_nothing(why):
    assert find(make_identify(Provider("old")), WRONG[why]()) == [None]


def test_a_rotated_key_works_at_once_and_guesses_do_not_ask_the_provider(monkeypatch):
    provider = Provider("old")
    identify = make_identify(provider)
    now = float(math.ceil(time.monotonic()))  # sums of whole numbers are exact
    monkeypatch.setattr(time, "monotonic", lambda: now)

    async def rotate():
        nonlocal now
        assert await identify(make_request(sign()))
        provider.body = provider.encode(["new"])
        now += json_web_tokens.RETRY_SECONDS
        assert await identify(make_request(sign("new")))
        assert provider.requests == 2
        assert await identify(make_request(sign())) is None  # the provider has withdrawn the key
        for number in range(20):
            assert await identify(make_request(sign("stranger", kid=f"guess {number}"))) is None
        assert provider.requests == 2
        now += json_web_tokens.KEYS_SECONDS
        assert await identify(make_request(sign("new")))
        assert provider.requests == 3

    asyncio.run(rotate())


def test_keys_that_cannot_be_read_again_count_for_a_limited_time(monkeypatch, caplog):
    provider = Provider("old")
    identify = make_identify(provider)
    now = float(math.ceil(time.monotonic()))  # sums of whole numbers are exact
    monkeypatch.setattr(time, "monotonic", lambda: now)

    async def fail():
        nonlocal now
        assert await identify(make_request(sign()))
        provider.status = 503
        now += json_web_tokens.KEYS_SECONDS
        assert await identify(make_request(sign()))
        assert "cannot be read" in caplog.text
        now += json_web_tokens.KEYS_SECONDS_MAX
        assert await identify(make_request(sign())) is None

    asyncio.run(fail())


BAD_KEYS = {
    "too many bytes": Provider.encode(["old"]) + b" " * JWKS_BYTES_MAX,
    "no JSON": b"<html>",
    "no keys": b"{}",
    "too many keys": json.dumps({"keys": [describe_key("old")] * 101}).encode(),
    "a shared secret": json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0", "kid": "old"}]}).encode(),
    "for encryption": json.dumps({"keys": [describe_key("old", use="enc")]}).encode(),
    "without an id": json.dumps({"keys": [{**describe_key("old"), "kid": ""}]}).encode(),
    "broken": json.dumps({"keys": [{"kty": "EC", "kid": "old"}, "key", 3]}).encode(),
}


@pytest.mark.parametrize("why", BAD_KEYS)
def test_keys_of_another_form_prove_nothing(why):
    provider = Provider()
    provider.body = BAD_KEYS[why]
    assert find(make_identify(provider), sign(), sign()) == [None, None]


@pytest.mark.parametrize(
    "options",
    [
        {"algorithms": ["HS256"]},
        {"algorithms": ["none"]},
        {"algorithms": []},
        {"issuer": ""},
        {"audience": ""},
        {"jwks_url": "http://sign-in.example/keys"},
        {"jwks_url": "file:///etc/keys"},
        {"jwks_url": "", "issuer": "http://sign-in.example"},
        {"jwks_url": "", "issuer": "sign-in.example"},
        {"leeway_seconds": 3600},
        {"rights": ["everything"]},
    ],
    ids=str,
)
def test_options_that_check_too_little_are_refused(options):
    with pytest.raises(MisuseError):
        make_identify(Provider("old"), **options)


def test_claims_can_be_read_by_a_function():
    def read(claims):
        return Identity(caller=claims["sub"], tenant="t", rights=frozenset(claims["scope"].split()))

    identify = make_identify(Provider("old"), make_identity=read)
    (found,) = find(identify, sign(scope="read approve"))
    assert found.rights == {"read", "approve"}


class DescribedProvider(Provider):
    """A provider with a description of itself, by the addresses of both."""

    def __init__(self, description):
        super().__init__("old")
        self.description, self.urls = description, []

    @asynccontextmanager
    async def open(self, request):
        self.urls.append(request.url)
        reply = Provider()
        reply.body = self.description if request.url.endswith("openid-configuration") else self.body
        yield reply


def describe_issuer(**changes):
    return json.dumps({"issuer": ISSUER, "jwks_uri": KEYS_URL, **changes}).encode()


def test_the_keys_are_found_by_the_description_of_the_issuer():
    provider = DescribedProvider(describe_issuer(jwks_uri="https://keys.example/all"))
    (found,) = find(make_identify(provider, jwks_url=""), sign())
    assert found.caller == "ann"
    assert provider.urls == [DESCRIPTION_URL, "https://keys.example/all"]


BAD_DESCRIPTIONS = {
    "of another issuer": (describe_issuer(issuer="https://evil.example"), "another issuer"),
    "without an issuer": (describe_issuer(issuer=None), "another issuer"),
    "with keys that are not https": (describe_issuer(jwks_uri="http://sign-in.example/keys"), "no https"),
    "with keys of this machine": (describe_issuer(jwks_uri="http://127.0.0.1/keys"), "no https"),
    "with keys of a file": (describe_issuer(jwks_uri="file:///etc/keys"), "no https"),
    "without keys": (describe_issuer(jwks_uri=None), "no https"),
    "too long": (describe_issuer() + b" " * json_web_tokens.DISCOVERY_BYTES_MAX, "more than 65,536 bytes"),
    "no JSON": (b"<html>", "malformed"),
    "no object": (b"[]", "Expected"),
}


def test_a_description_that_is_wrong_proves_nothing(caplog):
    for why, (description, words) in BAD_DESCRIPTIONS.items():
        provider = DescribedProvider(description)
        caplog.clear()
        assert find(make_identify(provider, jwks_url=""), sign()) == [None], why
        assert words in caplog.text, why
        assert provider.urls == [DESCRIPTION_URL], why


@in_loop
async def test_a_local_issuer_is_asked_over_http():
    asked = []

    async def describe(request):
        asked.append(request.url.path)
        url = str(request.base_url).rstrip("/")
        return JSONResponse({"issuer": url, "jwks_uri": f"{url}/keys"})

    async def list_keys(request):
        asked.append(request.url.path)
        return JSONResponse({"keys": [describe_key("old")]})

    app = Starlette(routes=[Route("/.well-known/openid-configuration", describe), Route("/keys", list_keys)])
    async with serve(app) as url:
        identify = JsonWebTokens(issuer=url, audience=AUDIENCE)
        found = await identify(make_request(sign(iss=url)))
        assert found is not None and found.caller == "ann"
        assert await identify(make_request(sign())) is None  # of another issuer
        assert asked == ["/.well-known/openid-configuration", "/keys"]


def test_a_claim_gives_rights_and_no_more_than_the_server_allows():
    scope = "openid read approve mail"
    (found,) = find(make_identify(Provider("old"), rights_claim="scope"), sign(scope=scope))
    assert found.rights == {"read", "approve"}
    (listed,) = find(make_identify(Provider("old"), rights_claim="roles"), sign(roles=["administer", "x"]))
    assert listed.rights == {"administer"}
    limited = make_identify(Provider("old"), rights_claim="scope", rights=["read", "prompt"])
    assert [each.rights for each in find(limited, sign(scope=scope), sign(scope="mail"))] == [{"read"}, set()]


@pytest.mark.parametrize("claim", [None, 3, {"read": True}, ["read", 3]], ids=str)
def test_a_token_without_its_claim_of_rights_proves_nothing(claim):
    assert find(make_identify(Provider("old"), rights_claim="scope"), sign(scope=claim)) == [None]
