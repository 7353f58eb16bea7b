"""The FastAPI service: over HTTP, and in a browser as a person uses it."""

import asyncio

import pytest

from tests.serve.browser import MISSING, find_browser, open_browser
from tests.serve.serving import serve
from tests.suite.in_loop import in_loop
from tests.suite.paths import load_program
from tests.suite.patience import PATIENCE_SECONDS

pytest.importorskip("fastapi", reason="FastAPI is not installed; pip install 'bridle[examples]'")

import aiohttp

make_app = load_program("examples/service/service.py").make_app
make_shop = load_program("examples/service/shop_agents.py").make_shop
SESSIONS = "/agents/api/sessions"


def serve_shop(tmp_path):
    return serve(make_app(make_shop("sim:"), str(tmp_path / "service.db")))


async def read_until(response, wanted):
    """Names of the events up to this one."""
    names = []
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for line in response.content:
            if line.startswith(b"event: "):
                names.append(line[7:].strip().decode())
                if names[-1] == wanted:
                    return names
    raise AssertionError(f"the stream ended without {wanted}: {names}")


@in_loop
async def test_over_http_a_run_streams_waits_is_approved_and_cancelled(tmp_path):
    async with serve_shop(tmp_path) as url, aiohttp.ClientSession(url) as http:
        async with http.get("/") as page:
            assert page.status == 200 and "script src" in await page.text()
            assert "default-src 'self'" in page.headers["content-security-policy"]
        asked = {"agent": "shop", "prompt": "Refund order 4411.", "session": "s"}
        async with http.post(SESSIONS, json=asked) as started:
            assert (await started.json())["session"] == "s"
        async with http.get(f"{SESSIONS}/s/stream?until=never") as stream:
            names = await read_until(stream, "run_ended")
            assert "approval_asked" in names and "tool_started" not in names
            async with http.get(f"{SESSIONS}/s/approvals") as reply:
                (question,) = (await reply.json())["approvals"]
            answer = {"answer": "approve", "by": "ann"}
            async with http.post(f"{SESSIONS}/s/approvals/{question['id']}", json=answer) as answered:
                assert answered.status == 200
            names = await read_until(stream, "run_ended")
            assert "tool_finished" in names and "text_delta" in names
            async with http.get(f"{SESSIONS}/s") as reply:
                assert "Refunded 18.00 USD" in (await reply.json())["answer"]
            async with http.post(f"{SESSIONS}/s/prompts", json={"prompt": "Count the stock."}) as reply:
                assert reply.status < 300
            await read_until(stream, "progress")
            async with http.post(f"{SESSIONS}/s/cancel", json={}) as reply:
                assert reply.status < 300
            await read_until(stream, "run_ended")
        async with http.get(f"{SESSIONS}/s") as reply:
            assert (await reply.json())["summary"]["status"] == "cancelled"


@in_loop
async def test_pages_of_other_sites_are_refused(tmp_path):
    async with serve_shop(tmp_path) as url, aiohttp.ClientSession(url) as http:
        asked = {"agent": "shop", "prompt": "Refund order 4411."}
        async with http.post(SESSIONS, json=asked, headers={"origin": "https://evil.example"}) as reply:
            assert reply.status == 403
        async with http.get(SESSIONS, headers={"host": "evil.example"}) as reply:
            assert reply.status >= 400


@pytest.mark.skipif(find_browser() is None, reason=MISSING)
@in_loop
async def test_in_a_browser_a_person_asks_approves_rejects_and_cancels(tmp_path):
    async with serve_shop(tmp_path) as url, open_browser() as browser:
        page = await browser.new_page()
        await page.visit(url)
        await page.fill("input", "Where is order 4411?")
        await page.press("Enter")
        await page.wait_for(".model", "was shipped on Monday")
        await page.wait_for("#status", "ready")

        await page.fill("input", "Refund order 4412. <img src=x onerror=canary(1)>")
        await page.press("Enter")
        await page.wait_for(".question", '"usd": 24.0')
        await page.click(".question button", "approve")
        await page.wait_for(".model", "Refunded 24.00 USD for order 4412.")
        await page.wait_for("#status", "ready")

        await page.fill("input", "Refund order 4411.")
        await page.press("Enter")
        await page.wait_for(".question", '"order": 4411')
        await page.click(".question:last-of-type button:not(:disabled)", "reject")
        await page.wait_for("#status", "ready")
        assert "Refunded 18.00" not in await page.text("main")

        await page.fill("input", "Count the stock.")
        await page.press("Enter")
        await page.wait_for("#status", "shelf")
        await page.click("#cancel")
        await page.wait_for("#status", "cancelled")
        shown = await page.count("main > *")
        await page.evaluate("location.reload()")
        await page.wait(f"document.querySelectorAll('main > *').length >= {shown - 3}")
        await page.wait_for("#status", "cancelled")
        assert page.canaries == [] and page.dialogs == [] and page.errors == []

        await page.visit(f"{url}/?session=missing")
        await page.fill("input", "Hello")
        await page.press("Enter")
        await page.wait_for("#status", "error: there is no session 'missing'")
        assert "undefined" not in await page.text("#status"), "this error has no hint"
