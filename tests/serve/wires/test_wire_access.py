"""Web pages that use the vendors' SDKs, and paths that a key of the gateway does not open."""

import pytest

from bridle import Agent
from bridle.serve.gateway.settings import digest_key, make_key
from bridle.serve.options import ServeOptions
from tests.serve.raw_http import send
from tests.serve.served import serve_by_name, serving_gateway

ORIGIN, CHAT = "https://app.example", "/openai/v1/chat/completions"
SDK_HEADERS = {
    CHAT: "authorization,content-type,x-stainless-arch,x-stainless-lang,x-stainless-retry-count,x-bridle-session",
    "/anthropic/v1/messages": "anthropic-dangerous-direct-browser-access,anthropic-version,content-type,x-api-key",
    "/gemini/v1beta/models/helper:generateContent": "content-type,x-goog-api-client,x-goog-api-key",
}


def preflight(served, path, headers, origin=ORIGIN, **more):
    asked = {
        "origin": origin, "access-control-request-method": "POST", "access-control-request-headers": headers,
    }  # fmt: skip
    return send(served.url + path, headers={**asked, **more}, method="OPTIONS")


@pytest.mark.parametrize("path", SDK_HEADERS)
def test_page_of_an_allowed_origin_may_use_the_vendors_sdks(path):
    options = ServeOptions(allowed_origins=(ORIGIN,), token="t" * 20)
    with serve_by_name({"helper": Agent("sim:")}, options=options) as served:
        reply = preflight(served, path, SDK_HEADERS[path])
        assert reply.status == 204 and reply.headers["access-control-allow-origin"] == ORIGIN
        assert reply.headers["access-control-allow-headers"] == SDK_HEADERS[path]
        assert "access-control-allow-private-network" not in reply.headers
        near = preflight(served, path, "x-a", **{"access-control-request-private-network": "true"})
        assert near.headers["access-control-allow-private-network"] == "true"


@pytest.mark.parametrize(
    ("headers", "origin"),
    [(SDK_HEADERS[CHAT], "https://evil.example"), ("x-a\tb: c", ORIGIN), ("", ORIGIN), ("a;b", ORIGIN)],
)
def test_preflight_allows_no_headers_otherwise(headers, origin):
    with serve_by_name({"helper": Agent("sim:")}, options=ServeOptions(allowed_origins=(ORIGIN,))) as served:
        assert "access-control-allow-headers" not in preflight(served, CHAT, headers, origin).headers


def test_page_of_an_allowed_origin_can_read_the_session():
    with serve_by_name({"helper": Agent("sim:")}, options=ServeOptions(allowed_origins=(ORIGIN,))) as served:
        body = {"model": "helper", "messages": [{"role": "user", "content": "!say hi"}]}
        reply = send(served.url + CHAT, body, {"origin": ORIGIN})
        exposed = reply.headers["access-control-expose-headers"].split(", ")
        assert {"x-bridle-session", "x-bridle-dropped"} <= set(exposed)
        assert "access-control-expose-headers" not in send(served.url + CHAT, body).headers


def test_key_does_not_open_the_metrics_of_all_keys():
    key, token = make_key(), "t" * 20
    settings = {"models": {"any": {"chain": ["sim:"]}}, "keys": {"alice": {"sha256": digest_key(key)}}}
    for options in (ServeOptions(), ServeOptions(token=token)):
        with serving_gateway(settings, options=options) as served:
            reply = send(f"{served.url}/metrics", headers={"authorization": f"Bearer {key}"})
            assert reply.status == 401 and "not a key" in reply.json["error"]["hint"]
            opened = send(f"{served.url}/metrics", headers={"authorization": f"Bearer {token}"})
            assert opened.status == (200 if options.token else 401)
            body = {"model": "any", "messages": [{"role": "user", "content": "!say hi"}]}
            for secret, status in ((key, 200), (token, 401)):
                sent = send(served.url + CHAT, body, {"authorization": f"Bearer {secret}"})
                assert sent.status == status


@pytest.mark.parametrize("action", ["steer", "pause", "cancel"])
def test_run_of_another_tenant_is_left_alone(action):
    with serve_by_name({"helper": Agent("sim:")}) as served:
        agent = served.host.agents["helper"]
        served.run(agent.run("!say hi", session="theirs", tenant="acme"))
        body = {"tenant": "other", **({"text": "x"} if action == "steer" else {})}
        reply = send(f"{served.url}/api/sessions/theirs/{action}", body)
        assert reply.status in (400, 403, 404), reply.body
        assert "tenant" in reply.json["error"]["message"]
