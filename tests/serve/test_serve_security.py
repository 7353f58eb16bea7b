"""Requests that must not reach an agent: foreign hosts, pages of other sites, guessed tokens, too much of anything."""

import asyncio
import json
import socket

import pytest

from bridle import Agent, MisuseError, tool
from bridle.serve import ServeOptions
from bridle.serve.app import MOUNTS, Mount
from bridle.serve.client import ApiError, ServedEvent
from bridle.serve.errors import ServeError
from bridle.serve.options import check_options
from bridle.serve.security import GUESSES_MAX
from tests.serve.serving import Serving, send_bytes, serve_agents
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS

TOKEN = "correct-horse-battery"
PROMPT = b'{"prompt": "!say hello"}'
JSON = {"content-type": "application/json"}


@pytest.fixture
def agents():
    return {"shop": Agent("sim:", name="shop")}


async def code_of(serving: Serving, method="POST", path="/api/sessions", headers=None, body=PROMPT):
    status, _, reply = await serving.exchange(method, path, headers={**JSON, **(headers or {})}, body=body)
    return status, json.loads(reply)["error"]["code"] if status >= 400 else ""


FOREIGN = [
    {"host": "evil.example"},
    {"host": "evil.example:8420"},
    {"host": "127.0.0.1.evil.example"},
    {"host": "localhost.evil.example"},
    {"host": "localhost:80@evil.example"},
    {"host": "127.0.0.1:x"},
    {"host": "[::1"},
    {"host": ""},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
@in_loop
async def test_a_rebound_name_is_refused(agents, headers):
    async with serve_agents(agents) as serving:
        for method in ("GET", "POST"):
            assert await code_of(serving, method, headers=headers) == (421, "wrong_host")
        assert not serving.host.runs and not (await serving.client.sessions()).sessions


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST:8420", "localhost."])
@in_loop
async def test_loopback_names_are_accepted(agents, host):
    async with serve_agents(agents) as serving:
        assert await code_of(serving, "GET", headers={"host": host}) == (200, "")


PAGES = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1"},
    {"origin": "http://localhost:1"},
    {"origin": "https://evil.example", "content-type": "text/plain"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"content-type": "text/plain"},
    {"content-type": "application/x-www-form-urlencoded"},
    {"content-type": "multipart/form-data; boundary=x"},
]


@pytest.mark.parametrize("headers", PAGES, ids=str)
@in_loop
async def test_a_page_of_another_site_changes_nothing(agents, headers):
    async with serve_agents(agents) as serving:
        status, code = await code_of(serving, headers=headers)
        assert (status, code) in ((403, "foreign_origin"), (403, "form_request"))
        assert not serving.host.runs and not (await serving.client.sessions()).sessions


@in_loop
async def test_a_page_of_another_site_reads_nothing(agents):
    async with serve_agents(agents) as serving:
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            assert await code_of(serving, "GET", headers=headers) == (403, "foreign_origin")
            status, _, _ = await serving.exchange("GET", "/metrics", headers=headers)
            assert status == 403
        status, given, _ = await serving.exchange("GET", "/api/agents")
        assert status == 200 and "access-control-allow-origin" not in given


@in_loop
async def test_own_pages_and_programs_are_accepted(agents):
    async with serve_agents(agents) as serving:
        own = {"origin": serving.url, "sec-fetch-site": "same-origin"}
        for headers in (
            own,
            {"sec-fetch-site": "none"},
            {},
            {"content-type": "text/plain", "x-bridle-client": "x"},
        ):
            assert await code_of(serving, headers=headers) == (201, "")


@in_loop
async def test_an_allowed_origin_gets_its_headers(agents):
    options = ServeOptions(allowed_origins=("https://app.example",))
    async with serve_agents(agents, options=options) as serving:
        headers = {"origin": "https://app.example"}
        asked = {**headers, "access-control-request-method": "POST"}
        status, given, _ = await serving.exchange("OPTIONS", "/api/sessions", headers=asked)
        assert (status, given["access-control-allow-origin"]) == (204, "https://app.example")
        assert (
            "*" not in given["access-control-allow-origin"]
            and "POST" in given["access-control-allow-methods"]
        )
        status, given, _ = await serving.exchange(
            "POST", "/api/sessions", headers={**JSON, **headers}, body=PROMPT
        )
        assert (status, given["access-control-allow-origin"], given["vary"]) == (
            201,
            "https://app.example",
            "Origin",
        )
        other = {"origin": "https://app.example.evil", "access-control-request-method": "POST"}
        status, given, _ = await serving.exchange("OPTIONS", "/api/sessions", headers=other)
        assert status >= 400 and "access-control-allow-origin" not in given


@in_loop
async def test_a_server_with_a_token_wants_it_everywhere(agents, caplog):
    async with serve_agents(agents, options=ServeOptions(token=TOKEN)) as serving:
        wrong = [{}, {"authorization": f"Basic {TOKEN}"}, {"authorization": "Bearer"}]
        wrong += [
            {"authorization": f"Bearer {given}"} for given in (TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "ü")
        ]
        for headers in wrong:
            for method, path in (("POST", "/api/sessions"), ("GET", "/api/agents"), ("GET", "/metrics")):
                assert await code_of(serving, method, path, headers) == (401, "unauthorized")
            serving.host.metrics.requests.points.clear()
        status, _, _ = await serving.exchange("GET", "/health")
        assert status == 200
        assert not serving.host.runs


@pytest.mark.parametrize("name", ["authorization", "x-api-key", "x-goog-api-key"])
@in_loop
async def test_the_token_is_accepted_where_clients_send_keys(agents, name):
    async with serve_agents(agents, options=ServeOptions(token=TOKEN)) as serving:
        value = f"Bearer {TOKEN}" if name == "authorization" else TOKEN
        assert await code_of(serving, headers={name: value}) == (201, "")
        # A page that knows the token was given it: its origin does not matter.
        assert await code_of(serving, headers={name: value, "origin": "https://app.example"}) == (201, "")


@in_loop
async def test_guessing_is_stopped_and_the_token_is_not_logged(agents, caplog, capfd):
    async with serve_agents(agents, options=ServeOptions(token=TOKEN)) as serving:
        for number in range(GUESSES_MAX):
            headers = {"authorization": f"Bearer guess-number-{number}"}
            assert await code_of(serving, headers=headers) == (401, "unauthorized")
        guess = {"authorization": "Bearer guess-after-the-last"}
        assert await code_of(serving, headers=guess) == (429, "too_many_guesses")
        assert await code_of(serving, headers={}) == (401, "unauthorized")
        # Others behind the same address are not locked out.
        assert await code_of(serving, headers={"authorization": f"Bearer {TOKEN}"}) == (201, "")
        for headers in ({}, guess):
            status, _, text = await serving.exchange("GET", "/health/live", headers=headers)
            assert status == 200 and TOKEN.encode() not in text
    assert TOKEN not in caplog.text and TOKEN not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"host": "0.0.0.0"}, "needs a token"),
        ({"host": "::"}, "needs a token"),
        ({"host": "192.168.1.4"}, "needs a token"),
        ({"host": "example.org"}, "needs a token"),
        ({"token": "short"}, "fewer than 16"),
        ({"token": "x" * 20 + "\n"}, "printable ASCII"),
        ({"allowed_origins": ("*",)}, "is not an origin"),
        ({"allowed_origins": ("app.example",)}, "is not an origin"),
        ({"runs_max": 0}, "runs_max must be above 0"),
        ({"request_seconds": -1.0}, "request_seconds must be above 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, problem):
    with pytest.raises(MisuseError, match=problem):
        check_options(ServeOptions(**options))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.2"])
def test_loopback_needs_no_token(host):
    assert check_options(ServeOptions(host=host)).host == host


@in_loop
async def test_every_reply_forbids_foreign_content(agents):
    async with serve_agents(agents) as serving:
        for path in ("/api/agents", "/nothing", "/metrics", "/health"):
            _, headers, _ = await serving.exchange("GET", path)
            policy = headers["content-security-policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'") and "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy and headers["x-frame-options"] == "DENY"
            assert headers["x-content-type-options"] == "nosniff" and headers["cache-control"] == "no-store"
            assert "server" not in headers


@in_loop
async def test_large_and_slow_bodies_are_refused(agents):
    options = ServeOptions(body_bytes_max=1_000, body_seconds=0.2)
    async with serve_agents(agents, options=options) as serving:
        body = b'{"prompt": "' + b"x" * 1_000 + b'"}'
        assert await code_of(serving, body=body) == (413, "body_too_large")
        host = f"host: 127.0.0.1:{serving.port}\r\nconnection: close\r\ncontent-type: application/json\r\n"
        chunked = f"POST /api/sessions HTTP/1.1\r\n{host}transfer-encoding: chunked\r\n\r\n".encode()
        chunks = b"".join(b"64\r\n" + b"x" * 100 + b"\r\n" for _ in range(20)) + b"0\r\n\r\n"
        status, _, reply = await send_bytes(serving.port, chunked + chunks)
        assert (status, b"body_too_large" in reply) == (413, True)
        slow = f"POST /api/sessions HTTP/1.1\r\n{host}content-length: 500\r\n\r\n".encode() + b"{"
        status, _, reply = await send_bytes(serving.port, slow)
        assert (status, b"body_too_slow" in reply) == (408, True)


@in_loop
async def test_the_bodies_of_all_requests_are_limited(agents):
    options = ServeOptions(bodies_bytes_max=1_000)
    async with serve_agents(agents, options=options) as serving:
        head = f"POST /api/sessions HTTP/1.1\r\nhost: 127.0.0.1:{serving.port}\r\ncontent-length: 900\r\n"
        _, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        writer.write(f"{head}content-type: application/json\r\n\r\n".encode() + b" " * 800)
        await writer.drain()
        body = b'{"prompt": "' + b"x" * 300 + b'"}'
        code = ""
        while code != "too_many_bodies":  # until the first 800 bytes have arrived
            status, code = await code_of(serving, body=body)
            assert (status, code) in ((201, ""), (503, "too_many_bodies"))
        writer.close()
        while status != 201:
            status, _ = await code_of(serving, body=PROMPT + b" " * 500)


@in_loop
async def test_metrics_count_runs_tokens_and_viewers(agents):
    async with serve_agents(agents) as serving:
        run = await serving.client.prompt("!say hello")
        async for _ in serving.client.stream(run.session):
            pass
        _, headers, body = await serving.exchange("GET", "/metrics")
        assert headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = body.decode().splitlines()
        assert 'bridle_serve_runs_total{stop="done"} 1.0' in lines
        assert 'bridle_serve_runs_live{agent="shop"} 0' in lines and "bridle_serve_viewers 0" in lines
        assert any(line.startswith('bridle_serve_tokens_total{kind="output"}') for line in lines)
        assert any(line.startswith("bridle_serve_cost_usd_total") for line in lines)
        assert any(line.startswith("bridle_serve_reply_seconds_count") for line in lines)
        assert any(line.startswith('bridle_serve_requests_total{status="201"}') for line in lines)
        samples = [line for line in lines if not line.startswith("#")]
        assert all(len(line.rsplit(" ", 1)) == 2 and float(line.rsplit(" ", 1)[1]) >= 0 for line in samples)


@in_loop
async def test_runs_and_viewers_are_limited():
    entered, leave = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def hang() -> str:
        """Wait for the test."""
        entered.set()
        await leave.wait()
        return "over"

    agents = {"shop": Agent("sim:", name="shop", tools=[hang])}
    async with serve_agents(agents, options=ServeOptions(runs_max=1, viewers_max=1)) as serving:
        run = await serving.client.prompt("!call hang\n!then\n!say over")
        with pytest.raises(ApiError) as caught:
            await serving.client.prompt("!say hello")
        assert (caught.value.status, caught.value.code) == (429, "too_many_runs")
        stream = serving.client.stream(run.session)
        await anext(stream)
        with pytest.raises(ApiError) as caught:
            await anext(serving.client.stream(run.session))
        assert (caught.value.status, caught.value.code) == (429, "too_many_viewers")
        leave.set()
        async for _ in stream:
            pass


@in_loop
async def test_a_viewer_that_takes_nothing_is_closed_and_can_resume(agents, tmp_path):
    options = ServeOptions(send_seconds=0.1)
    async with serve_agents(agents, tmp_path / "log.db", options=options) as serving:
        run = await serving.client.prompt("x" * 12_000_000)
        while run.session in serving.host.runs:
            await asyncio.sleep(0.01)
        stuck = socket.socket()
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        stuck.connect(("127.0.0.1", serving.port))
        path = f"/api/sessions/{run.session}/stream?until=never"
        stuck.sendall(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        while not serving.host.feeds.viewers:
            await asyncio.sleep(0.01)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while serving.host.feeds.viewers:
                await asyncio.sleep(0.01)
        stuck.close()
        seen = [
            item.seq async for item in serving.client.stream(run.session) if isinstance(item, ServedEvent)
        ]
        assert seen == list(range(1, len(seen) + 1))


@in_loop
async def test_a_mount_renders_errors_in_its_own_form(agents):
    from starlette.responses import PlainTextResponse, Response

    from bridle.serve.guarded_route import GuardedRoute

    async def fail(request) -> Response:
        raise ServeError(418, "teapot", "no coffee")

    mount = Mount(
        "/own",
        lambda host: (GuardedRoute("/own/fail", fail, right="read"),),
        lambda e: PlainTextResponse(f"own: {e}", e.status),
    )
    options = ServeOptions(token=TOKEN)
    async with serve_agents(agents, options=options, mounts=(mount, *MOUNTS)) as serving:
        bearer = {"authorization": f"Bearer {TOKEN}"}
        cases = [
            ("/own/fail", bearer, 418, b"own: no coffee"),
            ("/own/none", bearer, 404, b"own: Not Found"),
            ("/own/fail", {}, 401, b"own: the request has no token"),
        ]
        for path, headers, status, body in cases:
            found, _, reply = await serving.exchange("GET", path, headers=headers)
            assert (found, reply) == (status, body)


@pytest.mark.parametrize("is_slow", [True, False])
@in_loop
async def test_requests_are_limited_in_time_and_number(is_slow):
    from starlette.responses import Response

    from bridle.serve.guarded_route import GuardedRoute

    entered, leave = asyncio.Event(), asyncio.Event()

    async def hang(request):
        entered.set()
        await leave.wait()
        return Response()

    mount = Mount("/slow", lambda host: (GuardedRoute("/slow", hang, right="read"),))
    options = ServeOptions(request_seconds=0.05 if is_slow else 2 * PATIENCE_SECONDS, requests_max=1)
    async with serve_agents({}, options=options, mounts=(mount, *MOUNTS)) as serving:
        first = asyncio.create_task(serving.exchange("GET", "/slow"))
        await entered.wait()
        if is_slow:
            status, _, reply = await first
            assert (status, b"too_slow" in reply) == (504, True)
            return
        status, _, reply = await serving.exchange("GET", "/health")
        assert (status, b"too_many_requests" in reply) == (503, True)
        leave.set()
        assert (await first)[0] == 200
        assert (await serving.exchange("GET", "/health"))[0] == 200
