"""A session of 10,000 events in the inspector: the CPU time of the page, and the nodes that it holds."""

import json

import pytest

from bridle import Agent
from bridle.events import Steered
from bridle.stores.memory import MemoryStore
from bridle.values.record import seal_record
from tests.serve.browser import MISSING, find_browser, open_browser
from tests.serve.long_sessions import look_up, record_long
from tests.serve.serving import serve_agents
from tests.suite.in_loop import in_loop

pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.skipif(find_browser() is None, reason=MISSING)]
EVENTS = 10_000
FIRST_PAINT_SECONDS = 1.0
NODES_MAX = 3_000


@pytest.mark.parametrize("tab", ["timeline", "transcript", "events"])
@in_loop
async def test_ten_thousand_events_are_painted_in_a_second_of_cpu(tab, record_property):
    store = MemoryStore()
    async with (
        serve_agents({"long": Agent("sim:", name="long", tools=[look_up])}, store) as serving,
        open_browser() as browser,
    ):
        await record_long(store, serving.host.agents["long"], "long", EVENTS)
        page = await browser.new_page()
        await page.send("Performance.enable", {"timeDomain": "threadTicks"})
        await page.visit(f"{serving.url}/#/session/long/{tab}")
        rows = {"timeline": ".trow[data-kind=model]", "transcript": ".entry", "events": ".erow"}[tab]
        await page.wait(f"document.querySelectorAll({json.dumps(rows)}).length > 5")
        await page.settle()
        painted = await page.read_metrics()
        await page.wait("document.querySelector('.spacer:last-child').offsetHeight > 50000")
        await page.settle()
        loaded = await page.read_metrics()
        await page.press("G")
        await page.wait(
            "document.querySelector('.selected') && document.querySelector('#main').scrollTop > 50000"
        )
        await page.settle()
        nodes = await page.evaluate("document.querySelectorAll('*').length")
        figures = {
            "first paint": painted["TaskDuration"], "all loaded": loaded["TaskDuration"],
            "script": loaded["ScriptDuration"], "layout": loaded["LayoutDuration"], "nodes": nodes,
        }  # fmt: skip
        print(tab, {name: round(value, 3) for name, value in figures.items()})
        record_property(tab, figures)
        assert painted["TaskDuration"] < FIRST_PAINT_SECONDS, figures
        assert nodes < NODES_MAX and not page.errors, figures


@in_loop
async def test_of_a_log_that_is_too_long_the_page_holds_a_part():
    store, count = MemoryStore(), 45_000
    async with (
        serve_agents({"long": Agent("sim:", name="long", tools=[look_up])}, store) as serving,
        open_browser() as browser,
    ):
        await record_long(store, serving.host.agents["long"], "long", count)
        records = await store.read("long")
        total = len(records)
        page = await browser.new_page()
        await page.visit(f"{serving.url}/#/session/long/events")

        async def wait_for_part(first, last):
            shown = f"Records {first:,} to {last} of {total:,}"
            await page.wait(f"document.querySelector('.part').textContent.startsWith({json.dumps(shown)})")
            row = "document.querySelector('.erow .seq').textContent"
            await page.wait(f"document.querySelector('.erow') && {row} === '{first}'")

        def press(label):
            buttons = "[...document.querySelectorAll('.part button')]"
            return page.evaluate(
                f"{buttons}.find((each) => each.textContent === {json.dumps(label)}).click()"
            )

        # The end comes first, and it is followed.
        await wait_for_part(total - 20_000 + 1, "the end")
        steered = seal_record(total + 1, records[-1].at, Steered(message="On."), records[-1].hash)
        await store.append("long", total, (steered,))
        await page.wait(
            "document.querySelector('.toolbar .muted').textContent.startsWith('20,001 of 20,001')"
        )
        total += 1
        await press("Earlier")
        await wait_for_part(total - 40_000, f"{total - 20_001:,}")
        await press("Start")
        await wait_for_part(1, "20,000")
        disabled = "[...document.querySelectorAll('.part button')].map((each) => each.disabled)"
        assert await page.evaluate(disabled) == [True, True, False, False]
        # A link to a record loads the part that has it.
        await page.evaluate("location.hash = '#/session/long/events?seq=31000'")
        await page.wait("document.querySelector('.selected .seq')?.textContent === '31000'")
        await page.visit(f"{serving.url}/#/session/long/transcript")
        await page.wait("document.querySelectorAll('.entry').length > 5")
        await press("End")
        await page.wait("document.querySelector('.part').textContent.includes('to the end of')")
        assert not page.errors
