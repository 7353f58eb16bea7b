"""A session of 10,000 events in the inspector: the CPU time of the page, and the nodes that it holds."""

import json
import re

import msgspec
import pytest
from browser import MISSING, find_browser, open_browser
from in_loop import in_loop
from serving import serve_agents

from bridle import Agent, Steered, tool
from bridle.stores.memory import MemoryStore
from bridle.values.record import GENESIS, seal_record

pytestmark = [pytest.mark.slow, pytest.mark.skipif(find_browser() is None, reason=MISSING)]
EVENTS = 10_000
FIRST_PAINT_SECONDS = 1.0
NODES_MAX = 3_000


@tool(effect="read")
def look_up(number: int) -> str:
    """Look something up."""
    return f"value {number}: " + "lorem ipsum dolor sit amet " * 12


async def record_long(store, agent, session, count):
    """A log with at least this many events: one real run, written again and again."""
    steps = "\n!then\n".join(f'!say Step {n}.\n!call look_up {{"number": {n}}}' for n in range(3))
    await agent.run(f"{steps}\n!then\n!say Done.", "short")
    records = await store.read("short")
    head, made, seq = GENESIS, [], 0
    first = [record for record in records if record.event.__struct_config__.tag == "configured"]
    body = [record for record in records if record not in first]
    start = records[0].at
    for round_number, source in enumerate([first, *[body] * (count // len(body) + 1)]):
        for record in source:
            seq += 1
            data = re.sub(
                rb"\bc(\d+_\d+)\b", rb"c%d_\1" % round_number, record.data
            )  # ids of calls are unique
            event = msgspec.json.decode(data, type=type(record.event))
            made.append(seal_record(seq, start + seq * 0.01, event, head))
            head = made[-1].hash
    await store.append(session, 0, made)


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
