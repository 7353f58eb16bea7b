"""Results too long to be sent whole: kept, shortened once, and read by the page."""

import asyncio
import json
import random
import re
import subprocess
import sys
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise

import pytest

from bridle import Agent, tool
from bridle.core.context.excerpt import is_long_result
from bridle.sim.rules.profiles import LOCAL
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock, scripted
from bridle.testing.conformance.codec_samples import PIXEL_PNG
from bridle.testing.scripted_model import call_reply
from bridle.values import events as e
from bridle.values.calls import HANDLE_LENGTH
from bridle.values.errors import BadTool, MisuseError, Unusable
from bridle.values.message import Media, Text, ToolResult
from tests.campaigns.switch_servers import PROFILES, Server

LIMIT = 2_000
LINES = "".join(f"line {number}: {'é🪶x' * (number % 7)}\n" for number in range(1_000))
PAGE = re.compile(r"\[characters (\d+)-(\d+) of \d+; [^\]]*\]\n")


def handle_of(text):
    return sha256(text.encode()).hexdigest()[:HANDLE_LENGTH]


HANDLE = handle_of(LINES)


class Crash(Exception):
    pass


@tool(effect="read")
async def dump() -> str:
    """Everything there is."""
    return LINES


def agent(line, store=None, tools=(dump,), **settings):
    return Agent(
        line,
        tools=list(tools),
        store=store or MemoryStore(),
        clock=FakeClock(),
        **{"result_characters": LIMIT} | settings,
    )


async def events(store, session="s"):
    return [record.event for record in await store.read(session)]


async def receipts(store, session="s"):
    return [event for event in await events(store, session) if isinstance(event, e.ToolFinished)]


def reads(**arguments):
    return call_reply(("read_result", {"handle": HANDLE, **arguments}))


def body(receipt):
    """The text of a page, and where it is in the whole."""
    lead = PAGE.match(receipt.result.text)
    return receipt.result.text[lead.end() :], int(lead[1]), int(lead[2])


# What is sent, and when.


def test_the_model_gets_an_excerpt_and_reads_the_rest():
    line = scripted(call_reply(("dump", {})), reads(offset=700), reads(search="LINE 500:"), "Read.")
    store = MemoryStore()

    async def main():
        result = await agent(line, store).run("go", session="s")
        assert (result.stop, result.text) == ("done", "Read.")
        first, page, found = await receipts(store)
        assert len(first.result.text) <= LIMIT
        assert first.result.text.startswith("line 0: ")
        assert first.result.text.endswith(LINES[-100:])
        assert f'read_result(handle="{HANDLE}"' in first.result.text
        assert first.stored_result.character_count == len(LINES)
        assert (await store.get_blob(first.stored_result.hash)).decode() == LINES
        text, start, end = body(page)
        assert text == LINES[700:end]
        assert start == 700
        place = LINES.index("line 500:")
        assert f"\n{place}: line 500: " in found.result.text
        assert (page.stored_result, found.stored_result) == (None, None)

    asyncio.run(main())


def test_the_parts_of_a_result_are_counted_together():
    half = Text(text="x" * (LIMIT // 2 + 1))
    assert not is_long_result(ToolResult(call_id="c", parts=(half,)), LIMIT)
    assert is_long_result(ToolResult(call_id="c", parts=(half, half)), LIMIT)


def test_the_reader_is_shown_from_then_on_at_the_end_and_nothing_else_moves():
    line = scripted(
        call_reply(("peek", {})), call_reply(("dump", {})), reads(), call_reply(("dump", {})), "Read."
    )
    store = MemoryStore()

    @tool(effect="read")
    async def peek() -> str:
        """A little."""
        return "little"

    async def main():
        await agent(line, store, tools=(dump, peek)).run("go", session="s")
        assert [event.names for event in await events(store) if isinstance(event, e.ToolsRevealed)] == [
            ("read_result",)
        ]

    asyncio.run(main())
    asked = line.script.requests
    names = [[spec.name for spec in request.tools] for request in asked]
    assert names == [["dump", "peek"]] * 2 + [["dump", "peek", "read_result"]] * 3
    for earlier, later in pairwise(asked):
        assert later.messages[: len(earlier.messages)] == earlier.messages


def test_numbers_spelled_with_a_point_are_numbers():
    line, store = scripted(call_reply(("dump", {})), reads(offset=700.0, limit=100.0), "Read."), MemoryStore()

    async def main():
        await agent(line, store).run("go", session="s")
        assert body((await receipts(store))[-1])[1] == 700

    asyncio.run(main())


def test_what_a_person_tells_of_a_call_is_shortened_like_any_result():
    class Dying(MemoryStore):
        dying = True

        async def append(self, session, after, records, *, epoch=None):
            if self.dying and isinstance(records[0].event, e.ToolFinished):
                raise Crash
            await super().append(session, after, records, epoch=epoch)

    @tool(on_unknown="ask")
    async def send() -> str:
        """Send it."""
        return "sent"

    async def main():
        store = Dying()
        subject = agent(scripted(call_reply(("send", {})), "ok"), store, tools=(send,))
        with pytest.raises(Crash):
            await subject.run("go", session="s")
        store.dying = False
        assert (await subject.resume("s")).stop == "waiting"
        (question,) = await subject.approvals("s")
        await subject.settle("s", question.id, LINES)
        assert (await subject.resume("s")).text == "ok"
        (receipt,) = await receipts(store)
        assert receipt.source == "person"
        assert len(receipt.result.text) <= LIMIT
        assert (await store.get_blob(receipt.stored_result.hash)).decode() == LINES

    asyncio.run(main())


def test_without_a_limit_everything_is_sent():
    line, store = scripted(call_reply(("dump", {})), "Read."), MemoryStore()

    async def main():
        await agent(line, store, result_characters=None).run("go", session="s")
        (receipt,) = await receipts(store)
        assert (receipt.result.text, receipt.stored_result) == (LINES, None)

    asyncio.run(main())


def test_a_senseless_limit_is_refused():
    for wrong in (0, 999, True, "many"):
        with pytest.raises(MisuseError, match="result_characters"):
            agent(scripted("x"), result_characters=wrong)


def test_pages_put_end_to_end_are_the_result_and_never_longer_than_a_result_may_be():
    store = MemoryStore()

    async def main():
        await agent(scripted(call_reply(("dump", {})), "Seen."), store).run("go", session="s")
        at, told = 0, ""
        while at < len(LINES):
            turns = 2 * len(await receipts(store))
            line = scripted(*["x"] * turns, reads(offset=at, limit=10**9), "Seen.")
            await agent(line, store).run("on", session="s")
            latest = (await receipts(store))[-1]
            assert len(latest.result.text) <= LIMIT
            assert latest.stored_result is None
            text, start, at = body(latest)
            assert start == len(told)
            told += text
        assert told == LINES

    asyncio.run(main())


MADE = {
    "json": ({"rows": [{"n": n, "name": "é"} for n in range(2_000)]}, None),
    "one line": ("x🪶" * 5_000, None),
    "half characters": ("\ud83e" + "\udeb6 and \ud800 alone" * 500, "🪶 and \ufffd alone"),
    "several texts": ([Text(text="first " * 300), Text(text="second " * 300)], " \nsecond"),
}


@pytest.mark.parametrize("name", MADE)
def test_results_of_every_make_are_kept_whole(name):
    given, part = MADE[name]
    store = MemoryStore()

    @tool(effect="read")
    async def make() -> object:
        """Make it."""
        return given

    async def main():
        await agent(scripted(call_reply(("make", {})), "ok"), store, tools=(make,)).run("go", session="s")
        (receipt,) = await receipts(store)
        kept = (await store.get_blob(receipt.stored_result.hash)).decode()
        assert len(kept) == receipt.stored_result.character_count
        if name == "json":
            assert json.loads(kept) == given
        elif part is None:
            assert kept == given
        else:
            assert part in kept
        assert len(receipt.result.text) <= LIMIT

    asyncio.run(main())


# Who may read it.


def test_what_another_session_kept_cannot_be_read():
    store = MemoryStore()
    whole = sha256(LINES.encode()).hexdigest()

    async def main():
        await agent(scripted(call_reply(("dump", {})), "Seen."), store).run("go", session="theirs")
        long = "other words\n" * 500

        @tool(effect="read")
        async def other() -> str:
            """Something else."""
            return long

        asked = [
            call_reply(("read_result", {"handle": handle})) for handle in (HANDLE, whole, "", whole[:4], "%")
        ]
        line = scripted(call_reply(("other", {})), *asked, "Done.")
        await agent(line, store, tools=(other,)).run("go", session="mine")
        first, *refused = await receipts(store, "mine")
        assert first.stored_result is not None
        for receipt in refused:
            assert receipt.result.outcome == "error"
            assert handle_of(long) in receipt.result.text
            assert "line 1" not in receipt.result.text

    asyncio.run(main())


def test_before_there_is_anything_to_read_the_reader_is_not_there():
    line, store = scripted(reads(), "ok"), MemoryStore()

    async def main():
        await agent(line, store).run("go", session="s")
        (receipt,) = await receipts(store)
        assert receipt.result.outcome == "invalid"

    asyncio.run(main())


def test_a_fork_reads_what_it_inherited_and_not_what_came_after():
    store = MemoryStore()

    async def main():
        await agent(scripted(call_reply(("dump", {})), "Seen."), store).run("go", session="s")
        line = await store.read("s")
        before = next(record.seq for record in line if isinstance(record.event, e.ToolStarted)) - 2
        await store.fork("s", len(line), "late")
        await store.fork("s", before, "early")
        await agent(scripted("x", "x", reads(offset=100), "Read."), store).run("on", session="late")
        assert body((await receipts(store, "late"))[-1])[1] == 100
        state = await agent(scripted("No calls."), store).resume("early")
        assert state.text == "No calls."
        assert not [event for event in await events(store, "early") if isinstance(event, e.ToolsRevealed)]

    asyncio.run(main())


def test_a_tool_of_the_agents_own_under_that_name_is_refused():
    @tool(effect="read")
    async def read_result(n: int) -> str:
        """Mine."""
        return f"mine {n}"

    with pytest.raises(BadTool, match="tool `read_result`: Bridle has a tool with that name"):
        agent(scripted("ok"), MemoryStore(), tools=(dump, read_result))


def test_an_output_type_of_that_name_is_refused_where_a_call_gives_the_answer():
    with pytest.raises(MisuseError, match="are both named 'read_result'; rename one"):
        Agent(scripted("x"), tools=[dump], output={"title": "read_result", "type": "object"})


# Decided once.


def test_another_limit_later_changes_nothing_that_was_decided():
    store = MemoryStore()

    async def main():
        await agent(scripted(call_reply(("dump", {})), "Seen."), store).run("go", session="s")
        before = await store.read("s")
        (decided,) = await receipts(store)
        for limit in (None, 1_000, 500_000):
            turns = sum(isinstance(event, e.ModelReplied) for event in await events(store))
            line = scripted(*["x"] * turns, "Again.")
            await agent(line, store, result_characters=limit).run("on", session="s")
            assert line.script.requests[0].messages[2].results[0].text == decided.result.text
            assert [spec.name for spec in line.script.requests[0].tools] == ["dump", "read_result"]
        assert (await store.read("s"))[: len(before)] == before

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(60))
def test_crashes_around_the_blob_and_the_receipt(seed):
    """Whatever is lost, no record refers to what is not there, and the model reads the same in the end."""
    chance = random.Random(seed)

    class Flaky(MemoryStore):
        async def append(self, session, after, records, *, epoch=None):
            roll = chance.random()
            if roll < 0.1:
                raise Crash
            await super().append(session, after, records, epoch=epoch)
            if roll > 0.92:
                raise Crash

        async def put_blob(self, data):
            roll = chance.random()
            if roll < 0.3:
                raise Crash
            hash_ = await super().put_blob(data)
            if roll > 0.7:
                raise Crash
            return hash_

    async def main():
        store = Flaky()
        line = scripted(call_reply(("dump", {}), ("dump", {})), reads(offset=700), "Read.")
        for _ in range(400):
            subject = agent(line, store, tools=(again,))
            try:
                started = any(isinstance(event, e.Prompted) for event in await events(store))
                result = await (subject.resume("s") if started else subject.run("go", session="s"))
                break
            except Crash:
                for event in await events(store):
                    for hash_ in event.required_blobs:
                        assert await store.get_blob(hash_) is not None
        assert (result.stop, result.text) == ("done", "Read.")
        assert sum(isinstance(event, e.ToolsRevealed) for event in await events(store)) == 1
        first, second, page = await receipts(store)
        assert first.result.parts == second.result.parts
        assert body(page)[0] == LINES[700 : body(page)[2]]

    @tool(name="dump", effect="read", on_unknown="retry")
    async def again() -> str:
        """Everything there is."""
        return LINES

    asyncio.run(main())


def test_a_store_that_takes_no_more_ends_the_run_loudly_and_leaves_it_to_be_resumed():
    class Full(MemoryStore):
        full = True

        async def put_blob(self, data):
            if self.full:
                raise Unusable("the disk is full; make room and resume")
            return await super().put_blob(data)

    async def main():
        store = Full()
        subject = agent(scripted(call_reply(("dump", {})), "Seen."), store)
        with pytest.raises(Unusable, match="disk is full"):
            await subject.run("go", session="s")
        assert await receipts(store) == []
        store.full = False
        assert (await subject.resume("s")).text == "Seen."

    asyncio.run(main())


def test_streamed_or_not_the_log_is_the_same():
    async def log(*, stream):
        store, clock = MemoryStore(), FakeClock()
        line = scripted(call_reply(("dump", {})), reads(), reads(search="line 9"), "Read.")
        subject = Agent(line, tools=[dump], store=store, clock=clock, result_characters=LIMIT)
        if stream:
            async for _ in subject.stream("go", session="s"):
                pass
        else:
            await subject.run("go", session="s")
        return [type(event) for event in await events(store)], await receipts(store)

    async def main():
        assert await log(stream=True) == await log(stream=False)

    asyncio.run(main())


# Pictures and files among the words, on every wire.


def variants():
    """Servers that take files, and local ones, which the tables of endpoints say do not."""
    for profile in PROFILES:
        yield replace(profile, manners=tuple(one for one in profile.manners if one != LOCAL))
        if LOCAL in profile.manners:
            dialect = {**json.loads(profile.dialect or "{}"), "documents": "omit"}
            yield replace(profile, dialect=json.dumps(dialect))


@pytest.mark.parametrize("profile", list(variants()), ids=lambda one: f"{one.name} {one.dialect}")
def test_words_pictures_and_files_go_out_legally(profile):
    server = Server(profile, "here")
    document = Media(kind="document", media_type="application/pdf", data="JVBERi0xLjQK", name="report.pdf")

    @tool(effect="read")
    async def look(where: str) -> str:
        """Look somewhere."""
        return f"saw {where}"

    @tool(effect="read")
    async def photo(where: str) -> tuple[Text | Media, ...]:
        """Take a picture."""
        image = Media(kind="image", media_type="image/png", data=PIXEL_PNG)
        return Text(text=f"saw {where} and {LINES}"), image, Text(text=LINES), document, Text(text="the end")

    async def main():
        store = MemoryStore()
        subject = agent(server.line(), store, tools=(look, photo), instructions="Be brief.", max_tokens=1_000)
        for _ in range(2):
            result = await subject.run("Look?", session="s")
            assert result.stop == "done", result.reason
        assert server.problems == []
        kept = [receipt for receipt in await receipts(store) if receipt.stored_result]
        assert kept
        for receipt in kept:
            assert [part.kind for part in receipt.result.parts if isinstance(part, Media)] == [
                "image",
                "document",
            ]

    asyncio.run(main())
    last = json.dumps(server.bodies[-1], ensure_ascii=False)
    assert "JVBERi0xLjQK" in last or "report.pdf" in last
    assert "the end" in last
    assert "read_result" in last


SIMULATED = (
    "sim:",
    "sim:gemini/gemini-3.5-flash",
    "sim:openai/gpt-5.5",
    "sim:openai-chat/gpt-5.5",
    "sim:bedrock/anthropic.claude-sonnet-5-5",
)


@pytest.mark.parametrize("model", SIMULATED)
def test_every_simulated_provider_takes_the_excerpt_and_the_tool_that_came_later(model):
    call = json.dumps({"handle": HANDLE, "offset": 700, "limit": 300})
    prompt = f"!think Hm.\n!call dump {{}}\n!then\n!think Ah.\n!call read_result {call}\n!then\n!think So.\n!say Read."
    store = MemoryStore()

    async def main():
        result = await agent(model, store).run(prompt, session="s")
        assert (result.stop, result.text) == ("done", "Read.")
        assert body((await receipts(store))[-1])[1] == 700
        assert not [event for event in await events(store) if isinstance(event, e.ModelFailed)]

    asyncio.run(main())


@pytest.mark.parametrize("model", SIMULATED)
def test_every_simulated_provider_takes_pictures_and_files_from_a_tool(model):
    @tool(effect="read")
    async def photo() -> tuple[Text | Media, ...]:
        """Take a picture."""
        image = Media(kind="image", media_type="image/png", data=PIXEL_PNG)
        file = Media(kind="document", media_type="application/pdf", data="JVBERi0xLjQK", name="report.pdf")
        return Text(text=LINES), image, file, Text(text="the end")

    async def main():
        result = await agent(model, tools=(photo,)).run("!call photo {}\n!then\n!say Seen.")
        assert (result.stop, result.failure) == ("done", None)

    asyncio.run(main())


# Five megabytes, by the simulator's rules, from one process to the next.

CHILD = """if True:
    import sys
    from bridle import Agent, tool

    @tool(effect="read")
    def dump() -> str:
        "Everything there is."
        return "".join(f"row {n} of the long table\\n" for n in range(200_000))

    result = Agent("sim:", tools=[dump], store=sys.argv[1]).run_sync(sys.argv[2], session="s")
    print(result.stop, result.text)
"""
TABLE = "".join(f"row {number} of the long table\n" for number in range(200_000))


def test_five_megabytes_are_read_by_the_page_in_another_process(tmp_path):
    path = tmp_path / "log.db"
    handle = handle_of(TABLE)
    assert len(TABLE) > 5_000_000

    def say(*lines):
        command = [sys.executable, "-c", CHILD, str(path), "\n".join(lines)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.strip()

    assert say("!call dump {}", "!then", "!say Seen.") == "done Seen."
    first = json.dumps({"handle": handle, "offset": 2_500_000, "limit": 5_000})
    search = json.dumps({"handle": handle, "search": "ROW 123456 OF"})
    told = say(f"!call read_result {first}", "!then", f"!call read_result {search}", "!then", "!say Read.")
    assert told == "done Read."

    async def check():
        store = open_store(path)
        dumped, page, found = await receipts(store)
        assert len(dumped.result.text) <= 30_000
        text, start, end = body(page)
        assert (start, text) == (2_500_000, TABLE[2_500_000:end])
        assert 4_000 < len(text) <= 5_000
        assert f"\n{TABLE.index('row 123456 of')}: row 123456 of the long table" in found.result.text
        assert (await store.get_blob(dumped.stored_result.hash)).decode() == TABLE
        await store.close()

    asyncio.run(check())
