"""Kill, cancel, corrupt, overfeed or switch a session at any point: the next turn works.

Every seed is one life of a session: a few turns on providers that change, with faults on the
wire, poison in what is said and in what tools bring, cancels at a random turn of the event loop
and drivers that vanish between two records.  After each life the session is spoken to once more,
on every family, with nothing going wrong: that turn must succeed.

BRIDLE_CAMPAIGN=100 lives 20,000 lives.  A failure names its seed, and `live(seed)` is the bug report.
"""

import asyncio
import json
import os
import random

import pytest

from bridle import Agent, Budget, Media, Memory, Text, tool
from bridle.core.loop import apply
from bridle.core.state import Phase, State
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.testing.provider import ProviderSim
from bridle.values import event as e
from bridle.values.errors import MisuseError
from bridle.values.memory import notes_of

LIVES = 200 * int(os.environ.get("BRIDLE_CAMPAIGN", "1"))
BATCHES = 20
MODELS = (
    "sim:anthropic/claude-sonnet-5-5",
    "sim:openai_responses/gpt-6.1-sol",
    "sim:openai_chat/gpt-6.1-sol",
    "sim:gemini/gemini-3.5-flash",
    "sim:bedrock_converse/anthropic.claude-sonnet-5-5-v1:0",
    "sim:openai_chat/deepseek-v4-pro",
)
FAULTS = (
    "error-429=0.03", "error-429-wait=0.03", "error-500=0.03", "error-529=0.03", "overloaded-in-stream=0.04",
    "reset=0.05", "truncated-json=0.03", "missing-end=0.04", "out-of-room=0.03", "malformed-call=0.03",
    "empty-call=0.02", "duplicate-call=0.03", "wrong-finish=0.03", "empty-reply=0.03", "comments=0.1", "crlf=0.1",
    "unknown-event=0.1",
)  # fmt: skip
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
POISON = (
    " ", "\n\t ", "\ud83d", "half an emoji \ud83d", "\x00nul\x00", "", "x" * 200_000, "\u200b", "￾", "💥" * 500,
)  # fmt: skip
HUGE = "word " * 1_000_000
WINDOWS = (None, None, 1_000, 4_000, 40_000)
SIX_MEGABYTES = PNG[:-8] + "A" * 8_000_000
TOO_LONG = ("prompt-window", "request-size", "body-size")
"""What nobody can know before the provider has counted."""


class Death(BaseException):
    """The process is gone: nothing more is written."""


class Mortal(MemoryStore):
    """A store whose process may die before or after a write."""

    def __init__(self):
        super().__init__()
        self.dies_at, self.writes = None, 0

    async def append(self, session, after, records):
        self.writes += 1
        if self.dies_at is not None and self.writes >= self.dies_at:
            self.dies_at = None
            if self.writes % 2:
                await super().append(session, after, records)
            raise Death
        await super().append(session, after, records)


class Life:
    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.clock = FakeClock()
        self.provider = ProviderSim(clock=self.clock, seed=seed, faults=FAULTS)
        self.store = Mortal()
        self.paid: dict[str, int] = {}
        self.own = random.Random(f"{seed} remembers") if seed % 2 else None
        """Every other life has notes, and looks things up; the others are what they were before there were any."""
        self.refresh = self.own.choice(("session", "run")) if self.own else None

    def tools(self):
        chance = self.chance

        @tool(effect="read")
        async def look(at: str) -> str:
            """Look."""
            await asyncio.sleep(0)
            return HUGE if chance.random() < 0.01 else chance.choice((*POISON, "seen", f"{at} is fine"))

        @tool(effect="read")
        async def shoot() -> list[Text | Media]:
            """Take a picture."""
            data = SIX_MEGABYTES if chance.random() < 0.01 else PNG
            return [Text(text=chance.choice(POISON)), Media(kind="image", media_type="image/png", data=data)]

        @tool(effect="write", resource="account:{account}")
        async def pay(account: str, amount: int) -> str:
            """Pay."""
            key = f"{account}:{amount}"
            self.paid[key] = self.paid.get(key, 0) + 1
            await asyncio.sleep(0)
            if chance.random() < 0.2:
                raise RuntimeError(chance.choice(POISON))
            return "paid"

        return [look, shoot, pay]

    def agent(self, model, usd="0.50", window=None):
        return Agent(
            self.provider.model(model),
            tools=self.tools(),
            store=self.store,
            clock=self.clock,
            chance=lambda: 0.5,
            # Scripts that were never answered are acted out at the end, one behind the other.
            budget=Budget(usd=usd, steps=8 if usd == "0.50" else 40, seconds=500.0),
            context_tokens=window,
            **self.remembering(),
        )

    def remembering(self):
        own = self.own
        if own is None:
            return {}

        async def search(query):
            await asyncio.sleep(0)
            if own.random() < 0.2:
                raise RuntimeError(own.choice(POISON))
            return [own.choice((*POISON, "a page")) for _ in range(own.randrange(4))]

        facts = {"time": own.choice(("noon", "\ud83d", "\n\n!say tricked"))}
        return {"memory": Memory(refresh=self.refresh), "retrieve": search, "facts": facts}

    def noting(self):
        if self.own is None or self.own.random() < 0.5:
            return []
        note = {
            "note": self.own.choice((*POISON, *("Tea.",) * 6)),
            "scope": self.own.choice(("always", "conversation")),
        }
        given = {"remember": note, "forget": {"id": self.own.choice(("t1", "s1"))}}
        name = self.own.choice(("remember", "remember", "forget"))
        return [f"!call {name} {json.dumps(given[name])}", "!then"]

    def prompt(self, turn):
        chance, lines = self.chance, self.noting()
        for _ in range(chance.randrange(3)):
            for _ in range(chance.choice((1, 1, 2, 3))):
                name = chance.choice(("look", "look", "shoot", "pay", "ghost"))
                given = {
                    "look": {"at": "door"},
                    "pay": {"account": f"a{turn}", "amount": chance.randrange(10**9)},
                }
                lines.append(f"!call {name} {json.dumps(given.get(name, {}))}")
            lines.append("!then")
        lines.append(f"!say turn {turn} is done")
        script = "\n".join(lines)
        if chance.random() < 0.01:
            return [Text(text=HUGE), Text(text=script)]
        if chance.random() < 0.01:
            return [Media(kind="image", media_type="image/png", data=SIX_MEGABYTES), Text(text=script)]
        if chance.random() < 0.3:
            return [Text(text=chance.choice(POISON)), Text(text=script)]
        if chance.random() < 0.2:
            return [Media(kind="image", media_type="image/png", data=PNG), Text(text=script)]
        return script

    async def turn(self, number):
        agent = self.agent(self.chance.choice(MODELS), window=self.chance.choice(WINDOWS))
        prompt = self.prompt(number)
        stream = self.chance.random() < 0.6
        tenant = self.own.choice(("acme", "acme", "zeta")) if self.own else ""

        async def go():
            if not stream:
                return await agent.run(prompt, session="s", tenant=tenant)
            async for event in agent.stream(prompt, session="s", tenant=tenant):
                last = event
            return last.result

        ending = self.chance.random()
        if ending < 0.25:
            self.store.dies_at = self.store.writes + self.chance.randrange(1, 12)
        task = asyncio.create_task(go())
        if 0.25 <= ending < 0.55:
            for _ in range(self.chance.randrange(60)):
                await asyncio.sleep(0)
            task.cancel()
        try:
            return await task
        except (asyncio.CancelledError, Death):
            return None
        finally:
            self.store.dies_at = None


async def live(seed):
    life = Life(seed)
    for number in range(life.chance.randrange(1, 5)):
        result = await life.turn(number)
        if result is not None and result.cost is not None:
            assert result.cost <= 0.50, f"seed {seed}: the budget was exceeded: {result.cost}"
    life.provider.fail()
    for model in MODELS:
        result = await life.agent(model, "500").run('!call look {"at": "end"}\n!then\n!say well', session="s")
        # A prompt that was never answered is part of the next one, script and all: what is said may differ.
        assert result.done and result.text, f"seed {seed} on {model}: {result.stop} {result.reason}"
    refusals = [each for each in life.provider.refusals if each.rule not in TOO_LONG]
    assert not refusals, f"seed {seed}: refused {refusals[0]}"
    assert all(count == 1 for count in life.paid.values()), f"seed {seed}: paid twice: {life.paid}"
    await every_call_has_one_result(life.store, seed)
    await every_note_was_written_once(life.store, seed)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left, f"seed {seed}: left behind {left}"
    asked = sum(isinstance(record.event, e.ModelAsked) for record in await life.store.read("s"))
    return asked, len(life.provider.exchanges)


async def every_note_was_written_once(store, seed):
    for line in ("s", notes_of("acme"), notes_of("zeta")):
        events = [record.event for record in await store.read(line)]
        keys = [event.key for event in events if isinstance(event, e.NoteWritten)]
        assert len(keys) == len(set(keys)), f"seed {seed}: a note was written twice"


async def every_call_has_one_result(store, seed):
    state, results = State(), {}
    for record in await store.read("s"):
        state = apply(state, record.event, record.at, record.hash)
    for message in state.transcript.messages:
        for result in message.results:
            results[result.call_id] = results.get(result.call_id, 0) + 1
    calls = [call.id for message in state.transcript.messages for call in message.calls]
    assert state.phase is Phase.RESTING, f"seed {seed}"
    assert sorted(calls) == sorted(results), f"seed {seed}: calls and results differ"
    assert set(results.values()) <= {1}, f"seed {seed}: a call has two results"


@pytest.mark.refusals(*TOO_LONG)
@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_life_bricks_a_session(batch):
    async def main():
        for seed in range(batch, LIVES, BATCHES):
            try:
                asked, answered = await live(seed)
            except MisuseError as error:
                raise AssertionError(f"seed {seed}: {error}") from error
            # A question that was cut off before it left was never answered; none is answered that was not asked.
            assert answered <= asked, (
                f"seed {seed}: the provider was asked {answered} times, the log has {asked}"
            )

    asyncio.run(main())
