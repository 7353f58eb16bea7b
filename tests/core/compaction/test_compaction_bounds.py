"""Compaction over many prompts, windows, reply sizes and usages: rare, worth its cost, and no session is stuck."""

import asyncio
import json
import threading
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bridle import Agent, Compaction, History, Message, Text, Usage
from bridle.core.compaction.strategies import GAIN_SHARE_MIN, NEEDED_GAIN_SHARE_MIN
from bridle.events import Compacted
from bridle.testing.scripted_model import simulated, text_reply

WORDS = "word "
NOTED = "Noted."
MEGABYTES_10 = 10_000_000


async def read_compactions(agent):
    return [each.event for each in await agent.store.read("s") if isinstance(each.event, Compacted)]


def run_prompts(window, words, count, *, reply=NOTED, **options):
    async def main():
        agent = Agent(simulated(lambda facts: reply), context_tokens=window, compaction=Compaction(**options))
        stops = []
        for number in range(count):
            stops.append((await agent.run(f"note {number}: {WORDS * words}", session="s")).stop)
        return stops, await read_compactions(agent)

    return asyncio.run(main())


@pytest.mark.sampled
@pytest.mark.slow
@pytest.mark.parametrize(
    ("window", "words", "count"),
    [(30_000, 1_000, 200), (30_000, 5_000, 60), (12_000, 300, 200), (100_000, 8_000, 60)],
)
def test_with_shorter_prompts_a_conversation_goes_on_and_compactions_are_rare(window, words, count):
    stops, events = run_prompts(window, words, count, shorten_prompts=True)
    assert set(stops) == {"done"}
    gains = [each.before_tokens - each.after_tokens for each in events]
    assert min(gains) >= NEEDED_GAIN_SHARE_MIN * window
    assert sum(gains) >= len(gains) * GAIN_SHARE_MIN * window
    # What a compaction removes must have been added since the last one.
    added = count * (words + 200)
    assert len(events) <= added / (GAIN_SHARE_MIN * window) + 1
    assert sum((each.usd for each in events), Decimal(0)) <= len(events) * events[0].usd * 4


@pytest.mark.parametrize("reply_words", [1, 100, 200])
@pytest.mark.parametrize(("window", "words"), [(30_000, 1_000), (12_000, 700), (60_000, 3_000)])
def test_a_compaction_that_cannot_gain_does_not_run(window, words, reply_words):
    """Prompts stay word for word: when they fill the window, the run ends as context, and nothing is paid for it."""
    count = window // words + 5
    stops, events = run_prompts(window, words, count, reply="so it is " * reply_words)
    for event in events:
        gain = event.before_tokens - event.after_tokens
        # a summary may be a little longer than was reckoned
        assert (
            gain >= 0.9 * NEEDED_GAIN_SHARE_MIN * window or event.after_tokens <= window < event.before_tokens
        )
    # Each compaction removes replies that were written since the last one.
    assert len(events) <= 2 + count * 3 * reply_words / (NEEDED_GAIN_SHARE_MIN * window)
    first = stops.index("context") if "context" in stops else count
    assert set(stops[:first]) <= {"done"}
    assert (first + 1) * (words + 20) >= 0.8 * window, "it ended although it could fit"
    assert set(stops[first:]) <= {"context"}


def test_a_full_conversation_goes_on_once_prompts_may_be_shortened():
    async def main():
        full = Agent(simulated(lambda facts: NOTED), context_tokens=12_000)
        result = None
        for number in range(20):
            result = await full.run(f"{number}: {WORDS * 900}", session="s")
        wider = Agent(
            simulated(lambda facts: NOTED), context_tokens=12_000, store=full.store,
            compaction=Compaction(shorten_prompts=True),
        )  # fmt: skip
        return result, await wider.run("and now?", session="s")

    stopped, after = asyncio.run(main())
    assert stopped.stop == "context"
    assert "Compaction(shorten_prompts=True)" in stopped.reason
    assert after.stop == "done"


RATIOS = [0.0, 0.5, 0.89, 0.9, 0.95, 0.99, 1.0, 1.01, 1.05, 1.1, 1.5, 5.0]


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("window", [8_000, 30_000, 200_000])
def test_a_usage_that_is_not_the_prompts_size_does_not_end_a_session(window, ratio):
    """Hosted tools add up their inner steps: the usage says little about the next prompt."""
    counted = Usage(input=int(window * ratio), output=5)

    async def main():
        agent = Agent(simulated(lambda facts: text_reply(NOTED, usage=counted)), context_tokens=window)
        results = [await agent.run(f"note {number}: {WORDS * 20}", session="s") for number in range(6)]
        return [each.stop for each in results], await read_compactions(agent)

    stops, events = asyncio.run(main())
    assert stops == ["done"] * 6
    assert events == [], "nothing had to be shortened"


@pytest.mark.parametrize("ratio", [0.9, 1.05, 5.0])
@pytest.mark.parametrize("reply_size", [10, 30_000, 200_000])
@pytest.mark.parametrize("window", [8_000, 30_000])
def test_after_any_reply_and_usage_the_session_goes_on(window, reply_size, ratio):
    counted = Usage(input=int(window * ratio), output=reply_size // 4)
    sizes = iter([reply_size])

    async def main():
        def choose(facts):
            return text_reply("b" * next(sizes, 2), usage=counted)

        agent = Agent(simulated(choose), context_tokens=window)
        first = await agent.run("write", session="s")
        return first, [await agent.run(f"next {number}", session="s") for number in range(3)]

    first, following = asyncio.run(main())
    assert first.stop == "done"
    assert [each.stop for each in following] == ["done"] * 3, following[0].reason


def test_a_reply_of_ten_megabytes_does_not_end_a_session():
    """No simulated model writes that much, so the reply is imported."""
    said = (
        Message(role="user", parts=(Text(text="write"),)),
        Message(role="assistant", parts=(Text(text="b" * MEGABYTES_10),)),
    )

    async def main():
        agent = Agent(simulated(lambda facts: NOTED))
        first = await agent.run("go on", session="s", history=History(messages=said))
        return [first, await agent.run("next", session="s"), await agent.run("next", session="s")]

    assert [each.stop for each in asyncio.run(main())] == ["done"] * 3


def encode_chunk(**fields):
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", **fields}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def encode_stream(text, usage):
    """The pieces of a streamed reply of the Chat Completions wire."""
    for start in range(0, len(text), 100_000):
        delta = {"role": "assistant", "content": text[start : start + 100_000]}
        yield encode_chunk(choices=[{"index": 0, "delta": delta, "finish_reason": None}])
    yield encode_chunk(choices=[{"index": 0, "delta": {}, "finish_reason": "stop"}])
    yield encode_chunk(choices=[], usage=usage) + b"data: [DONE]\n\n"


def encode_whole(text, usage):
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    yield json.dumps({"id": "c", "created": 1, "model": "m", "choices": [choice], "usage": usage}).encode()


@contextmanager
def serve_long_reply(asked):
    """A provider on this machine whose first reply has ten megabytes; yields its address.

    `asked` collects the sizes of the requests.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            request = json.loads(body := self.rfile.read(int(self.headers["content-length"])))
            asked.append(len(body))
            text = "b" * MEGABYTES_10 if len(asked) == 1 else NOTED
            usage = {"prompt_tokens": len(body) // 4, "completion_tokens": len(text) // 4}
            usage["total_tokens"] = sum(usage.values())
            streamed = request.get("stream", False)
            self.send_response(200)
            self.send_header("content-type", "text/event-stream" if streamed else "application/json")
            self.end_headers()
            for piece in (encode_stream if streamed else encode_whole)(text, usage):
                self.wfile.write(piece)

        def log_message(self, *words):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.slow
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
def test_a_reply_of_ten_megabytes_that_arrives_does_not_end_a_session(streamed):
    async def run(agent, prompt):
        if not streamed:
            return await agent.run(prompt, session="s")
        stream = agent.stream(prompt, session="s")
        async for _ in stream:
            pass
        return await stream.result()

    async def main(url):
        agent = Agent(f"local:m@{url}")
        return [await run(agent, prompt) for prompt in ("write", "next", "and next")]

    asked: list[int] = []
    with serve_long_reply(asked) as url:
        first, *following = asyncio.run(main(url))
    assert (first.stop, len(first.text)) == ("done", MEGABYTES_10)
    assert [(each.stop, each.text) for each in following] == [("done", NOTED)] * 2, following[0].reason
    assert max(asked) < MEGABYTES_10 // 2, asked


@pytest.mark.parametrize("size", [20_000, 400_000])
@pytest.mark.parametrize("window", [6_000, 30_000])
def test_a_prompt_that_is_too_long_stops_with_advice_and_a_smaller_one_goes_on(window, size):
    async def main():
        agent = Agent(simulated(lambda facts: NOTED), context_tokens=window)
        return await agent.run("1" * size, session="s"), await agent.run("hello", session="s")

    large, small = asyncio.run(main())
    assert large.stop in ("done", "context")
    if large.stop == "context":
        assert "the prompt m1" in large.reason
        assert "larger window" in large.reason
    assert small.stop == "done", small.reason
