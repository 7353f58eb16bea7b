"""The inspector in a real browser, used as a person would: by mouse and keys, on what the page shows."""

import asyncio
import json
import signal
import sys

import pytest

from bridle import Agent, tool
from bridle.serve import ServeOptions
from bridle.stores.memory import MemoryStore
from tests.serve.browser import MISSING, find_browser, open_browser
from tests.serve.inspected import fill_store, make_agents
from tests.serve.serving import serve_agents
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_browser() is None, reason=MISSING)]
TOKEN = "correct-horse-battery"


async def start(serving, agent, prompt, session):
    await serving.host.prompt(serving.host.agents[agent], prompt, session, new=True)


def session_of(page):
    return page.evaluate("decodeURIComponent(location.hash.split('/')[2] ?? '')")


@in_loop
async def test_a_person_finds_watches_approves_forks_and_compares():
    gate = asyncio.Event()

    @tool(effect="read")
    async def look_up(order: int) -> str:
        """Look up an order."""
        await gate.wait()
        return f"order {order} is late"

    @tool(effect="write", approve=True)
    def refund(order: int, usd: float) -> str:
        """Refund an order."""
        return f"refunded {usd:.2f} for {order}"

    shop = Agent("sim:", name="shop", tools=[look_up, refund])
    agents = {**make_agents(), "shop": shop}
    async with serve_agents(agents, MemoryStore()) as serving, open_browser() as browser:
        await start(serving, "writer", "!say first", "old")
        page = await browser.new_page()
        await page.visit(f"{serving.url}/")
        await page.wait_for(".row[data-session=old] .badge", "done")

        # A run that starts elsewhere appears in the list, and filters find it.
        script = '!say Looking.\n!call look_up {"order": 7}\n!then\n!call refund {"order": 7, "usd": 90}\n!then\n!say All done.'
        await start(serving, "shop", script, "live run")
        await page.wait_for(".row .badge", "running")
        await page.choose("select[aria-label=status]", "running")
        await page.wait("document.querySelectorAll('.row[data-session]').length === 1")
        await page.press("/")
        await page.type("no such text")
        await page.wait_for(".list-status", "No session matches")
        await page.press("Escape", "Escape")
        await page.wait_for(".row[data-session=old]")

        # It is watched while it runs: the tool is open, and its end arrives without a reload.
        await page.click(".row[data-session='live run']")
        await page.wait_for(".trow[data-kind=tool][data-status=open]", "look_up")
        assert await session_of(page) == "live run"
        gate.set()
        await page.wait_for(".trow[data-kind=tool][data-status=ok]", "look_up")
        await page.wait_for(".trow[data-kind=approval]", "refund")
        await page.wait_for(".session-head .badge", "waiting")

        # The call is approved with other arguments.
        await page.click(".banner a", "waits for your answer")
        await page.wait_for(".card", "May this call run?")
        await page.fill(".card textarea", '{"order": 7, "usd": ')
        await page.click(".card button.primary", "Approve with these arguments")
        await page.wait_for(".card .error", "not JSON")
        await page.fill(".card textarea", '{"order": 7, "usd": 45}')
        await page.fill(".card input[aria-label=Reason]", "half is fair")
        await page.fill(".card input[aria-label='Your name']", "Ada")
        await page.click(".card button.primary", "Approve with these arguments")
        await page.wait_for(".session-head .badge", "done")
        await page.wait_for(".answered", "by Ada: half is fair")

        # The result is in the transcript, with both versions of the arguments.
        await page.press("2")
        await page.wait_for("details.call summary", "approved with other arguments by Ada")
        await page.click("details.call:has(.tag) summary")
        shown = await page.wait_for("details.call[open] .fold", "refunded 45.00")
        assert "45" in shown and "90" in shown
        assert "All done." in await page.text(".transcript")

        # Fork from the first answer, prompt the fork, and compare.
        await page.click(".entry[data-kind=assistant] .fork")
        await page.fill("dialog input[name=session]", "branch")
        await page.click("dialog button[type=submit]")
        await page.wait("location.hash.includes('/session/branch/transcript')")
        await page.wait_for(".notice", "Forked")
        await page.click(".controls button", "Prompt")
        await page.type("!say another way")
        await page.click("dialog button[type=submit]")
        await page.wait_for(".entry[data-kind=assistant]", "another way")
        await page.wait_for(".notice.end", "done")
        await page.press("6")
        await page.click(".brow[data-session='live run'] button", "Compare")
        await page.wait_for(".pair", "another way")
        await page.click("button.primary", "Replay")
        await page.wait_for(".replayed .good", "Identical")
        assert not page.errors and not page.dialogs
        assert all(url.startswith((serving.url, "blob:", "about:")) for url in page.requests)


@in_loop
async def test_a_run_is_steered_cancelled_and_rejected_from_the_page():
    gate = asyncio.Event()

    @tool(effect="read")
    async def wait_here() -> str:
        """Wait."""
        await gate.wait()
        return "waited"

    @tool(effect="write", approve=True)
    def delete() -> str:
        """Delete everything."""
        raise AssertionError("it was rejected")

    agents = {"shop": Agent("sim:", name="shop", tools=[wait_here, delete])}
    async with serve_agents(agents, MemoryStore()) as serving, open_browser() as browser:
        page = await browser.new_page(width=375, height=812)
        await start(serving, "shop", "!call wait_here {}\n!then\n!say after", "one")
        await page.visit(f"{serving.url}/#/session/one")
        await page.click(".controls button", "Steer")
        await page.type("please hurry")
        await page.click("dialog button[type=submit]")
        await page.wait_for(".trow", "steered")
        await page.click(".controls button", "Cancel run")
        await page.wait_for(".session-head .badge", "cancelled")
        await start(serving, "shop", "!call delete {}\n!then\n!say fine", "two")
        await page.visit(f"{serving.url}/#/session/two/approvals")
        await page.fill(".card input[aria-label=Reason]", "never")
        await page.click(".card button.danger")
        await page.wait_for(".session-head .badge", "done")
        events = (await serving.client.events("two", limit=100)).events
        assert any(b'"reason":"never"' in bytes(each.event) for each in events)
        assert not page.errors


@in_loop
async def test_every_view_works_by_keyboard_in_both_themes():
    async with serve_agents(make_agents(), MemoryStore()) as serving, open_browser() as browser:
        await fill_store(serving.host)
        page = await browser.new_page(dark=True)
        await page.visit(f"{serving.url}/")
        await page.wait_for(".row[data-session]")
        background = "getComputedStyle(document.body).backgroundColor"
        dark = await page.evaluate(background)
        await page.press("t")
        light = await page.evaluate(background)
        assert dark != light
        await page.press("?")
        await page.wait_for("dialog[open]", "next, previous row")
        await page.press("Escape")
        await page.wait("!document.querySelector('dialog')")
        await page.press("/")
        await page.type("late-order")
        await page.wait("document.querySelectorAll('.row[data-session]').length === 2")
        await page.press("Escape", "j", "j")
        await page.wait("document.querySelector('.row.selected')?.dataset.session === 'late-order'")
        await page.press("Enter")
        await page.wait_for(".trow[data-kind=model]")
        assert await page.evaluate(background) == light
        expected = {
            "1": (".trow[data-kind=tool]", "find_order"),
            "2": (".entry[data-kind=assistant]", "Let me look that up."),
            "3": (".crow", "overloaded"),
            "4": (".krow", "hit"),
            "5": (".group", "find_order"),
            "6": (".brow", "late-order-2"),
            "7": (".list-status", "No call waits"),
            "8": (".erow", "model_replied"),
        }
        for key, (selector, text) in expected.items():
            await page.press(key)
            await page.wait_for(selector, text)
        await page.press("j", "j", "Enter")
        await page.wait_for("#panel .event", '"parts"')
        await page.press("Escape")
        await page.wait("document.querySelector('#panel').hidden")
        await page.press("Escape")
        await page.wait_for(".row[data-session]")
        assert not page.errors


@in_loop
async def test_images_edits_and_reasoning_are_shown():
    async with serve_agents(make_agents(), MemoryStore()) as serving, open_browser() as browser:
        await fill_store(serving.host)
        page = await browser.new_page()
        await page.visit(f"{serving.url}/#/session/late-order/transcript")
        await page.wait("document.querySelector('.media img')?.naturalWidth === 160")
        await page.wait_for("details.reasoning summary", "The customer asks about a late order.")
        await page.visit("about:blank")
        await page.visit(f"{serving.url}/#/session/fix-cart/transcript")
        await page.wait_for(".diff .removed", "return sum(items)")
        await page.wait_for(".diff .added", "return sum(item.price for item in items)")
        await page.visit(f"{serving.url}/#/session/late-order/requests")
        await page.wait_for("#panel .diff .added", "Anything else?")
        await page.wait_for("#panel .facts", "proven")
        await page.click(".crow[role=listitem]:nth-child(4)")
        await page.wait_for("#panel", "the same request was sent again")

        # Details of a step show its reply, and lead to its request and its place in the transcript.
        await page.press("1")
        await page.click(".trow[data-kind=model]", "step 2")
        await page.wait_for("#panel .reply details.call", "chart")
        await page.click("#panel a.button", "Exact request")
        await page.wait_for("#panel h2", "Request 2")
        await page.press("1")
        await page.click(".trow[data-kind=model]", "step 2")
        await page.click("#panel a.button", "In the transcript")
        await page.wait_for(".entry.selected", "I will draw the delivery times.")

        # A miss has its cause, in the chart as well.
        await page.visit(f"{serving.url}/#/session/returns/cache")
        await page.wait_for(".krow .cause.miss", "the agent's tools changed")
        await page.evaluate(
            "document.querySelector('.chart .miss').parentNode.dispatchEvent(new Event('click'))"
        )
        await page.wait_for(".krow.selected", "prefix changed")
        assert not page.errors


@in_loop
async def test_a_run_is_repeated_from_a_prompt_and_from_an_answer():
    async with serve_agents(make_agents(), MemoryStore()) as serving, open_browser() as browser:
        await serving.host.agents["writer"].run("!say one", "first")
        await serving.host.agents["writer"].run("!say two", "first")
        page = await browser.new_page()
        await page.visit(f"{serving.url}/#/session/first/transcript")
        await page.wait_for(".entry[data-kind=end]")
        await page.press("j", "j", "r")  # the settings, and the first prompt
        await page.fill("dialog textarea", "!say another")
        await page.fill("dialog input[name=session]", "again")
        await page.click("dialog button[type=submit]")
        await page.wait("location.hash.includes('/session/again/')")
        await page.wait_for(".entry[data-kind=assistant]", "another")
        await page.wait_for(".session-head .badge", "done")
        assert "two" not in await page.text(".transcript")

        # The second answer is asked for again, with the records before it.
        await page.visit(f"{serving.url}/#/session/first/transcript")
        await page.wait_for(".entry[data-kind=assistant]", "two")
        await page.click(".entry[data-seq='8'] .again")
        await page.fill("dialog input[name=session]", "answer")
        await page.click("dialog button[type=submit]")
        await page.wait("location.hash.includes('/session/answer/')")
        await page.wait_for(".entry[data-kind=assistant]", "two")
        await page.wait_for(".session-head .badge", "done")
        branches = await serving.client.branches("first")
        assert {(each.session, each.at) for each in branches.branches} == {
            ("first", 0),
            ("again", 1),
            ("answer", 6),
        }
        assert not page.errors


@in_loop
async def test_a_server_with_a_token_asks_for_it():
    options = ServeOptions(token=TOKEN)
    async with (
        serve_agents(make_agents(), MemoryStore(), options=options) as serving,
        open_browser() as browser,
    ):
        await start(serving, "writer", "!say secret words", "kept")
        page = await browser.new_page()
        await page.visit(f"{serving.url}/")
        await page.fill("dialog input", "wrong-horse-battery")
        await page.click("dialog button[type=submit]")
        await page.wait_for("dialog[open]", "needs its token")
        assert "secret" not in await page.text()
        await page.fill("dialog input", TOKEN)
        await page.click("dialog button[type=submit]")
        await page.wait_for(".row[data-session=kept]", "secret words")
        link = await browser.new_page()
        await link.visit(f"{serving.url}/#token={TOKEN}&/session/kept/transcript")
        await link.wait_for(".entry[data-kind=assistant]", "secret words")
        assert TOKEN not in await link.evaluate("location.href")
        assert not any(TOKEN in url for url in [*link.requests, *page.requests] if "#" not in url)


@in_loop
async def test_the_command_opens_the_log_of_another_process(tmp_path):
    store = str(tmp_path / "log.db")
    await Agent("sim:", name="shop", store=store).run("!say from elsewhere", "a/b c")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bridle.cli.main", "serve", "--open", "--session", "a/b c", "--store", store, "--json",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            url = json.loads(await process.stdout.readline())["url"]
        async with open_browser() as browser:
            page = await browser.new_page()
            await page.visit(url)
            await page.wait_for(".trow[data-kind=end]", "done")
            # A run of another process appears while the page is open.
            await Agent("sim:", name="shop", store=store).run("!say and again", "a/b c")
            await page.wait_for(".trow[data-kind=run]", "and again")
            assert not await page.count(".controls button.primary"), "it runs no agents"
            assert not page.errors
            # Another user of this machine has no token.
            await page.evaluate("sessionStorage.clear()")
            assert await page.evaluate("fetch('api/sessions').then((reply) => reply.status)") == 401
    finally:
        process.send_signal(signal.SIGTERM)
        await process.communicate()
    assert process.returncode == 0


@in_loop
async def test_sessions_are_filtered_by_tenant_and_caller():
    desk = Agent("sim:", name="desk", store=(store := MemoryStore()))
    for session, tenant, caller in (("a", "acme", "ada"), ("b", "acme", "bob"), ("c", "globex", "ada")):
        await desk.run("!say hello", session, tenant=tenant, caller=caller)
    await desk.run("!say hello", "b", tenant="acme", caller="ada")
    async with serve_agents({"desk": desk}, store) as serving, open_browser() as browser:
        page = await browser.new_page()
        await page.visit(f"{serving.url}/")
        await page.wait_for(".row[data-session=a]")
        await page.choose("select[aria-label=caller]", "bob")
        await page.wait("document.querySelectorAll('.row[data-session]').length === 1")
        await page.wait_for(".row[data-session=b]")
        await page.choose("select[aria-label=caller]", "ada")
        await page.wait("document.querySelectorAll('.row[data-session]').length === 3")
        await page.choose("select[aria-label=tenant]", "globex")
        await page.wait("document.querySelectorAll('.row[data-session]').length === 1")
        await page.wait_for(".row[data-session=c]")
