"""Headers of a proxy count from its addresses only."""

import pytest
from starlette.requests import Request

from bridle import MisuseError
from bridle.serve import TrustedProxy
from tests.serve.identities import open_door

PROXY = TrustedProxy(proxies=["10.1.2.0/24", "::1"], caller_header="X-User", tenant_header="X-Tenant")


def identify(address, *headers, proxy=PROXY):
    raw = [(name.lower().encode(), value.encode()) for name, value in headers]
    return proxy(Request({"type": "http", "headers": raw, "client": (address, 4000) if address else None}))


@pytest.mark.parametrize("address", ["10.1.2.3", "::1", "::ffff:10.1.2.3"])
def test_the_proxy_names_the_caller(address):
    found = identify(address, ("X-User", "ann"), ("X-Tenant", "acme"))
    assert (found.caller, found.tenant, found.sessions) == ("ann", "acme", "own")


@pytest.mark.parametrize("address", ["10.1.3.3", "127.0.0.1", "::2", "", "unix:", "10.1.2.3.evil", None])
def test_other_addresses_prove_nothing(address):
    assert identify(address, ("X-User", "ann"), ("X-Tenant", "acme")) is None


@pytest.mark.parametrize(
    "headers",
    [
        [("X-User", "ann")],
        [("X-Tenant", "acme")],
        [("X-User", ""), ("X-Tenant", "acme")],
        [("X-User", "ann"), ("X-User", "boss"), ("X-Tenant", "acme")],
        [("X-User", "ann"), ("X-Tenant", "acme"), ("X-Tenant", "other")],
        [("X-User", "a" * 1000), ("X-Tenant", "acme")],
        [("X-Forwarded-For", "10.1.2.3")],
    ],
)
def test_missing_and_repeated_headers_prove_nothing(headers):
    assert identify("10.1.2.3", *headers) is None


@pytest.mark.parametrize("proxies", [[], ["proxy.example"], ["10.1.2.3/24"], ["0.0.0.0/0"], ["::/0"]])
def test_proxies_are_listed_addresses(proxies):
    with pytest.raises(MisuseError):
        TrustedProxy(proxies=proxies, caller_header="x-user")


def test_a_page_of_another_site_cannot_use_the_proxys_sign_in():
    proxy = TrustedProxy(proxies=["127.0.0.1"], caller_header="x-user")
    with open_door(proxy) as door:
        headers = {"x-user": "ann", "content-type": "text/plain"}
        body = {"prompt": "!say hi"}
        assert door.post("", "/api/sessions", body, **headers).status == 403
        site = {"x-user": "ann", "origin": "https://evil.example"}
        assert door.post("", "/api/sessions", body, **site).status == 403
        assert door.post("", "/api/sessions", body, **{"x-user": "ann"}).status == 201
