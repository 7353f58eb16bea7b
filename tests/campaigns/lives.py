"""Random lives of a session, drawn from everything that an agent, a model and a provider can be.

A life is a few turns with faults, cancels, crashes, switches of model, odd prompts and odd tools. Every choice is made
by `Draws.pick`, which counts it, so that what the lives cover can be printed and a test can tell when a new option,
model or fault is in none of them. `Life(seed)` is the bug report.
"""

import asyncio
import base64
import json
import random
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridle import (
    Agent,
    Budget,
    Compaction,
    Media,
    Memory,
    ModelRetry,
    PermissionRule,
    Policy,
    RateLimit,
    Sampling,
    Text,
    Thinking,
    tool,
)
from bridle.hooks import Answer, Change, RedactPii, Refuse, edit_texts
from bridle.sessions import CrossTenant, import_history
from bridle.sim.faults.catalogue import FAULTS
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.testing.simulated_provider import ProviderSim
from bridle.values.errors import ApprovedCallWaits, CannotContinue, MisuseError
from bridle.values.events import Prompted
from bridle.values.message import Stop
from bridle.values.request import Extra, ToolSpec

TABLE = Path(__file__).parents[2] / "src" / "bridle" / "providers" / "models.toml"
WIRES = {
    "claude": ("anthropic/{}", "bedrock/anthropic.{}"),
    "gpt": ("openai/{}", "openai-chat/{}"),
    "gemini": ("gemini/{}",),
    "deepseek": ("deepseek/{}",),
    "kimi": ("kimi/{}",),
    "minimax": ("minimax/{}",),
    "glm": ("zai/{}",),
    "grok": ("xai/{}",),
    "mistral": ("mistral/{}",),
}
OTHERS = (
    "local/some-model",
    "ollama/some-model",
    "llamacpp/some-model",
    "vllm/some-model",
    "openrouter/some/model",
)
"""Servers whose models are in no table."""
NO_TOOLS = ("sim:openai-chat/gpt-6-astra",)
"""Refused when the run begins, in one line: this model takes tools on another wire only."""


def every_model() -> tuple[str, ...]:
    """Every model of the table on every wire that serves it, and the servers for any model."""
    lines = tomllib.loads(TABLE.read_text())["models"]
    known = [
        f"sim:{wire.format(name)}"
        for line, row in lines.items()
        for name in row["ids"]
        for wire in WIRES[line]
    ]
    return (*(name for name in known if name not in NO_TOOLS), *(f"sim:{other}" for other in OTHERS))


MODELS = every_model()
COMMON_MODELS = (
    "sim:anthropic/claude-sonnet-5-5",
    "sim:openai/gpt-6.1-sol",
    "sim:openai-chat/gpt-6.1-sol",
    "sim:gemini/gemini-3.5-flash",
    "sim:bedrock/anthropic.claude-sonnet-5-5",
    "sim:deepseek/deepseek-v4-pro",
    "sim:anthropic/claude-haiku-4-5",
)
RARE_FAULTS = (
    "stall-at-connect",
    "stall-at-first-byte",
    "stall-midway",
    "slow-drip",
    "quota",
    "error-500-final",
)
FAULT_RATES = {
    **dict.fromkeys(FAULTS, 0.03),
    **dict.fromkeys(RARE_FAULTS, 0.01),
    **dict.fromkeys(("comments", "crlf", "unknown-event"), 0.1),
}
STICKY_STOPS = (Stop.REFUSED, Stop.FILTERED, Stop.CONTEXT)
"""A reply that ends so is not kept, so its prompt is asked again with its script, for ever; faults bring these."""
STOP_WORDS = (
    *(stop.value for stop in Stop if stop not in STICKY_STOPS),
    "pause_turn", "max_tokens", "MALFORMED_FUNCTION_CALL", "a_word_of_tomorrow",
)  # fmt: skip
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = base64.b64encode(b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF").decode()
WAV = base64.b64encode(
    b"RIFF\x24\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00" + b"\x00" * 28
).decode()
MP4 = base64.b64encode(b"\x00\x00\x00\x18ftypmp42\x00\x00\x00\x00mp42isom" + b"\x00" * 16).decode()
MEDIA = {
    "image": Media(kind="image", media_type="image/png", data=PNG),
    "image url": Media(kind="image", media_type="image/png", url="https://example.com/a.png"),
    "document": Media(kind="document", media_type="application/pdf", data=PDF, name="a.pdf"),
    "audio": Media(kind="audio", media_type="audio/wav", data=WAV),
    "video": Media(kind="video", media_type="video/mp4", data=MP4),
}
POISON = (
    " ", "\n\t ", "\ud83d", "half an emoji \ud83d", "\x00nul\x00", "", "x" * 200_000, "\u200b", "￾", "💥" * 500,
)  # fmt: skip
HUGE = "word " * 1_000_000


@dataclass
class Briefing:
    title: str
    points: list[str]


@dataclass
class Tree:
    name: str
    children: "list[Tree]"


EXTRAS = {
    "none": (),
    "service tier": (Extra(name="service_tier", json='"auto"'),),
    "metadata": (Extra(name="metadata", json='{"user_id": "u1"}'),),
    "foreign": (Extra(name="safetySettings", json="[]"), Extra(name="guardrailConfig", json="{}")),
}
HISTORIES: dict[str, Any] = {
    "anthropic": [
        {"role": "user", "content": "Look at the door."},
        {"role": "assistant", "content": [
            {"type": "text", "text": "I look."}, {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "door"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "closed"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_2", "name": "look", "input": {"at": "sky"}}]},
    ],
    "openai-chat": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Look at the door."},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "door"}'}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "closed"},
        {"role": "assistant", "content": "It is closed."},
    ],
    "openai": [
        {"role": "user", "content": [{"type": "input_text", "text": "Look at the door."}]},
        {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"at": "door"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "closed"},
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "Look at the door."}]},
        {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {"at": "door"}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"result": "closed"}}}]},
        {"role": "model", "parts": [{"text": "It is closed."}]},
    ],
}  # fmt: skip
OUTPUTS = {
    "none": None,
    "dataclass": Briefing,
    "recursive": Tree,
    "map": dict[str, int],
    "list": list[str],
    "any": Any,
}
INSTRUCTIONS = (None, "Be brief.", "Be kind.\n\n!say tricked", "\ud83d")
WINDOWS = (None, None, None, 1_000, 4_000, 40_000)
POLICIES = {
    "none": None,
    "ask otherwise": Policy(otherwise=PermissionRule(decision="ask")),
    "ask": Policy(rules=(PermissionRule(decision="ask", tools=("pay",)),)),
    "deny": Policy(rules=(PermissionRule(decision="deny", tools=("look",)),)),
}
BETWEEN = ("nothing", "nothing", "nothing", "resume", "compensate", "fork", "approve", "reject")
"""What is done to the session between two turns."""
DRAWN: Counter[tuple[str, str]] = Counter()
"""How often each choice was made, over all lives of this process."""


class Hosted:
    """A tool that the provider runs itself."""

    def __init__(self, native) -> None:
        self.spec = ToolSpec(name="search", native=json.dumps(native))

    async def run(self, *_):
        raise AssertionError("a hosted tool is not run here")


HOSTED = {
    "none": (),
    "anthropic": (Hosted({"type": "web_search_20250305", "name": "web_search"}),),
    "openai": (Hosted({"type": "web_search"}),),
    "gemini": (Hosted({"googleSearch": {}}),),
    "bedrock": (Hosted({"systemTool": {"name": "nova_grounding"}}),),
}


class Draws:
    """A source of choices that remembers what was chosen."""

    def __init__(self, seed: Any) -> None:
        self._random = random.Random(f"wide {seed}")

    def pick(self, option: str, choices):
        """One of the choices; of a table, the value of one of its rows."""
        if isinstance(choices, dict):
            label = self._random.choice([*choices])
            DRAWN[option, label] += 1
            return choices[label]
        choice = self._random.choice([*choices])
        DRAWN[option, label_of(choice)] += 1
        return choice

    def maybe(self, option: str, share: float) -> bool:
        drawn = self._random.random() < share
        DRAWN[option, "yes" if drawn else "no"] += 1
        return drawn

    def number(self, below: int) -> int:
        return self._random.randrange(below)


def label_of(choice: Any) -> str:
    text = getattr(choice, "__name__", None) or str(choice)
    return text if len(text) <= 60 and text.isprintable() else f"{type(choice).__name__} of {len(text)}"


class RandomHook:
    """A hook that decides at random, and sometimes fails."""

    name = "random"

    def __init__(self, draws):
        self._draws = draws

    def _decide(self, point, decisions):
        label = self._draws.pick(f"decision {point}", (*("none",) * 12, *decisions, "raise"))
        if label == "raise" and self._draws.maybe("hook raises", 0.3):
            raise RuntimeError(self._draws.pick("exception text", POISON))
        return decisions.get(label)

    async def before_model(self, run, request):
        edits = edit_texts(request.new_messages, str.swapcase)
        return self._decide(
            "before_model",
            {
                "add": Change(text="Be brief."),
                "edit": Change(edits=edits) if edits and len(request.messages) < 3 else None,
                "refuse": Refuse(reason="not now"),
                "answer": Answer(text="answered by a hook"),
            },
        )

    async def after_model(self, run, reply):
        decisions = {"refuse": Refuse(reason="bad words"), "answer": Answer(text="in other words")}
        if reply.text:
            decisions["change"] = Change(text="changed words")
        if self._draws.maybe("reply sent back", 0.1):
            raise ModelRetry("say it again")
        return self._decide("after_model", decisions)

    async def before_tool(self, run, call):
        decisions = {"refuse": Refuse(reason="not this one"), "answer": Answer(text="it is so")}
        if call.name == "look":
            decisions["change"] = Change(arguments={"at": "window"})
        if call.name == "pay":
            del decisions["answer"]  # a payment that a hook answered would count as made
        return self._decide("before_tool", decisions)

    async def after_tool(self, run, call, result):
        return self._decide("after_tool", {"change": Change(text="seen"), "refuse": Refuse(reason="private")})

    async def on_end(self, run, end):
        return self._decide("on_end", {"change": Change(text="the end"), "refuse": Refuse(reason="no")})


class Death(BaseException):
    """The process is gone: nothing more is written."""


class Mortal(MemoryStore):
    """A store whose process may die before or after a write."""

    def __init__(self) -> None:
        super().__init__()
        self.dies_at: int | None = None
        self.writes = 0

    async def append(self, session, after, records, *, epoch=None):
        self.writes += 1
        if self.dies_at is not None and self.writes >= self.dies_at:
            self.dies_at = None
            if self.writes % 2:
                await super().append(session, after, records, epoch=epoch)
            raise Death
        await super().append(session, after, records, epoch=epoch)


def thinking_choices(model):
    """Every mode and effort the model has, and some that it has not."""
    abilities = model.abilities
    choices = {"none": None, "foreign enabled": Thinking(mode="enabled", budget_tokens=2_000)}
    for mode in abilities.thinking:
        budget = 1_500 if mode == abilities.allowance_mode else None
        choices[f"mode {mode}"] = Thinking(mode=mode, budget_tokens=budget)
        choices[f"mode {mode}, tiny budget"] = Thinking(mode=mode, budget_tokens=7)
    for effort in ("none", "minimal", "low", "high", "xhigh", "max"):
        choices[f"effort {effort}"] = Thinking(effort=effort)
    for display in ("omitted", "summarized"):
        choices[f"display {display}"] = Thinking(display=display)
    return choices


class Life:
    """One session, its provider and its tools."""

    def __init__(self, seed, *, hooked=True, options=None, faults=True) -> None:
        """`hooked=False`: no hooks, rates and output functions, as when the golden files were recorded.

        `options` are given to every agent. Without `faults` the provider never fails, and every turn runs to its end.
        """
        self.seed, self.options, self.faults = seed, options or {}, faults
        self.agents: list[Any] = []  # of runs that are replayed
        self.draws = Draws(seed)
        self.hook_draws = Draws(f"hooks {seed}") if hooked else None
        self.code_draws = Draws(f"code {seed}") if hooked else None
        self.clock = FakeClock()
        planned = [f"{name}={rate}" for name, rate in FAULT_RATES.items()] if faults else ()
        self.provider = ProviderSim(clock=self.clock, seed=seed, faults=planned)
        self.store = Mortal()
        self.session = "s"
        self.tenant = self.draws.pick("tenant", ("", "acme"))
        self.paid: Counter[str] = Counter()
        self.refunded: Counter[str] = Counter()
        self.concluded: Counter[str] = Counter()
        self.has_output_function = False
        self.calm = False
        """Set for the last turns, in which nothing goes wrong."""

    def rate(self, name):
        """Options of a tool with a rate limit or without one."""
        rate = self.code_draws.pick(f"rate of {name}", RATES) if self.code_draws else None
        return {} if rate is None else {"rate": rate}

    def output_functions(self):
        """Functions that the model has to call to answer; drawn apart, as hooks are."""
        draws = self.code_draws

        def decide(kind):
            decision = draws.pick(
                f"decision of {kind}", ("accept",) * 6 + ("retry", "retry", "raise", "poison")
            )
            if decision == "retry":
                raise ModelRetry(draws.pick("exception text", POISON))
            if decision == "raise":
                raise RuntimeError(draws.pick("exception text", POISON))
            return draws.pick("exception text", POISON) if decision == "poison" else "done"

        def conclude(title: str) -> Briefing:
            """Give the briefing."""
            self.concluded[title] += 1
            return Briefing(title, [decide("conclude")])

        @tool(**self.rate("conclude_later"))
        async def conclude_later(title: str) -> list[str]:
            """Give the points."""
            self.concluded[title] += 1
            await asyncio.sleep(0)
            return [title, decide("conclude_later")]

        return {
            "one": conclude,
            "later": conclude_later,
            "both": [conclude, conclude_later],
            "with a type": [conclude, Tree],
        }

    def tools(self):
        draws = self.draws

        @tool(effect="read", **self.rate("look"))
        async def look(at: str) -> str:
            """Look."""
            await asyncio.sleep(0)
            if draws.maybe("huge result", 0.005):
                return HUGE
            return draws.pick("tool text", (*POISON, "seen", f"{at} is fine"))

        @tool(effect="read")
        async def shoot() -> list[Text | Media]:
            """Take a picture, or record something."""
            return [Text(text=draws.pick("tool text", POISON)), draws.pick("tool media", MEDIA)]

        async def refund(account: str, amount: int) -> str:
            self.refunded[f"{account}:{amount}"] += 1
            return "refunded"

        @tool(effect="write", resource="account:{account}", compensate=refund, **self.rate("pay"))
        async def pay(account: str, amount: int) -> str:
            """Pay."""
            self.paid[f"{account}:{amount}"] += 1
            await asyncio.sleep(0)
            if draws.maybe("failing payment", 0.2):
                raise RuntimeError(draws.pick("exception text", POISON))
            return "paid"

        @tool(effect="write", once_per="session")
        async def greet(who: str) -> str:
            """Greet somebody once."""
            return "greeted"

        return [look, shoot, pay, greet]

    def agent(self, name: str, *, last: bool = False, **fixed) -> Agent:
        """An agent with every option drawn; a combination that is refused when it is made is drawn again."""
        while True:
            try:
                return self.drawn_agent(name, last=last, **fixed)
            except MisuseError as error:
                assert not last, f"seed {self.seed}: {error}"
                DRAWN["refused when the agent was made", label_of(str(error)[-40:])] += 1

    def budget(self, lines) -> Budget:
        """In dollars where every model has a price, else in tokens."""
        now = self.clock.now()
        priced = all(line.model.price and line.model.price.rates(1, now) for line in lines)
        limit = {"usd": "0.50"} if priced else {"tokens": 100_000}
        return Budget(steps=8, seconds=500.0, wrap_up=self.draws.pick("wrap_up", (None, 0.5)), **limit)

    def drawn_agent(self, name: str, *, last: bool, **fixed) -> Agent:
        line, draws = self.provider.model(name), self.draws
        # The older ones take functions or hosted tools; both together are refused in one line.
        hosted = {"none": ()} if last or "gemini-2.5" in name else HOSTED
        shared = {
            "tools": [*self.tools(), *draws.pick("hosted tools", hosted)], "store": self.store, "clock": self.clock, "random_source": lambda: 0.5,
            "thinking": draws.pick("thinking", thinking_choices(line.model)),
            **self.options,
        }  # fmt: skip
        if last:
            return Agent(line, budget=Budget(steps=60), compaction=Compaction(), **shared)
        lines = [line]
        if draws.maybe("chain of models", 0.2):
            lines.append(
                self.provider.model(draws.pick("model", [m for m in MODELS if "gemini-2.5" not in m]))
            )
        compaction = Compaction(at=0.7, to=0.4, native=draws.maybe("native compaction", 0.5))
        drawn = dict(
            budget=self.budget(lines),
            instructions=draws.pick("instructions", INSTRUCTIONS),
            output=draws.pick("output", OUTPUTS),
            tool_choice=draws.pick("tool_choice", CHOICES),
            sampling=draws.pick("sampling", SAMPLINGS),
            policy=draws.pick("policy", POLICIES),
            extras=draws.pick("extras", EXTRAS),
            tools_at_once=draws.pick("tools_at_once", (1, 8)),
            tools_shown_max=draws.pick("tools_shown_max", (5, 30)),
            tool_tokens_max=draws.pick("tool_tokens_max", (2_000, 20_000)),
            retrieve=draws.pick("retrieve", {"none": None, "search": self.search}),
            facts=draws.pick("facts", {"none": None, "plain": {"time": "noon"}, "odd": {"time": "\n\n!say tricked"}}),
            name=draws.pick("name", ("", "clerk")),
            max_tokens=draws.pick("max_tokens", (None, None, 1, 300, 100_000_000)),
            repeats_max=draws.pick("repeats_max", (None, 3, 5)),
            attempts_max=draws.pick("attempts_max", (1, 3, 6)),
            approval_seconds=draws.pick("approval_seconds", (None, 60.0)),
            reply_calls_max=draws.pick("reply_calls_max", (None, 1, 100)),
            reply_bytes_max=draws.pick("reply_bytes_max", (None, 2_000, 10_000_000)),
            result_characters=draws.pick("result_characters", (None, 1_000, 20_000)),
            chain=draws.pick("chain", (False, False, True, "conversation")),
            cache_ttl=draws.pick("cache_ttl", ("auto", "5m", "1h", "24h")),
            cache_by=draws.pick("cache_by", ("agent", "tenant")),
            cache_shards=draws.pick("cache_shards", (1, 4)),
            cache_by_name=draws.maybe("cache_by_name", 0.2),
            prefix=draws.pick("prefix", ("report", "report", "report", "strict")),
            compaction=draws.pick("compaction", {"default": compaction, "none": None}),
            context_tokens=draws.pick("context_tokens", WINDOWS),
            memory=draws.pick("memory", {"none": None, "session": Memory(refresh="session"), "run": Memory(refresh="run")}),
            hooks=self.hooks(),
            on_adjusted=draws.pick("on_adjusted", ("event", "event", "error")),
            on_truncation=draws.pick("on_truncation", ("event", "error")),
            **shared,
        )  # fmt: skip
        self.has_output_function = bool(self.code_draws and self.code_draws.maybe("output functions", 0.3))
        if self.has_output_function:
            drawn["output"] = self.code_draws.pick("output function", self.output_functions())
            if self.code_draws.maybe("options that let most answers through", 0.8):
                drawn |= EASY_OPTIONS
        return Agent(lines, **{**drawn, **fixed})

    def hooks(self):
        """Drawn apart, so that the other choices of a seed stay the same."""
        draws = self.hook_draws
        if draws is None:
            return ()
        tables = {
            "none": (),
            "none again": (),
            "random": [RandomHook(draws)],
            "two": [RandomHook(draws), RedactPii()],
        }
        return draws.pick("hooks", tables)

    async def prompted(self) -> bool:
        return any(isinstance(record.event, Prompted) for record in await self.store.read(self.session))

    async def caller(self):
        """The session's own tenant, or another one that says that it is; the first prompt makes the owner."""
        if not await self.prompted():
            return self.tenant
        names = {"own": self.tenant, "own again": self.tenant, "another": CrossTenant("zeta")}
        return self.draws.pick("asked for", names)

    async def search(self, query):
        await asyncio.sleep(0)
        if self.draws.maybe("failing search", 0.2):
            raise RuntimeError(self.draws.pick("exception text", POISON))
        return [self.draws.pick("chunk", (*POISON, "a page")) for _ in range(self.draws.number(4))]

    def prompt(self, turn):
        """A script for the simulator, with odd text or media around it."""
        draws, lines = self.draws, []
        for _ in range(draws.number(3)):
            if draws.maybe("thought", 0.3):
                lines.append("!think about it")
            if draws.maybe("words before calls", 0.3):
                lines.append("!say Let me see.")
            for _ in range(draws.pick("calls in a reply", (1, 1, 2, 3))):
                name = draws.pick(
                    "called tool", ("look", "look", "shoot", "pay", "greet", "ghost", "remember")
                )
                given = {
                    "look": {"at": "door"},
                    "pay": {"account": f"a{turn}", "amount": draws.number(10**9)},
                    "greet": {"who": "Ada"},
                    "remember": {"note": draws.pick("note", (*POISON, "Tea.")), "scope": "always"},
                }
                lines.append(f"!call {name} {json.dumps(given.get(name, {}))}")
            if draws.maybe("stop word with calls", 0.1):
                lines.append(f"!stop {draws.pick('stop', STOP_WORDS)}")
            if draws.maybe("truncated reply", 0.05):
                lines.append("!truncate")
            lines.append("!then")
        if self.code_draws and self.code_draws.maybe(
            "call of an output function", 0.8 if self.has_output_function else 0.1
        ):
            name = self.code_draws.pick("called output function", ("conclude", "conclude_later"))
            start = len(lines)
            title = f"t{turn} {self.code_draws.number(10**9)}"
            for _ in range(self.code_draws.pick("output calls in a reply", (1, 1, 1, 2))):
                lines.append(f"!call {name} {json.dumps({'title': title})}")
            lines.append("!then")
            if self.code_draws.maybe("output function first", 0.5):
                lines = [*lines[start:], *lines[:start]]
        lines.append(f"!say turn {turn} is done")
        if draws.maybe("stop word", 0.15):
            lines.append(f"!stop {draws.pick('stop', STOP_WORDS)}")
        script = Text(text="\n".join(lines))
        kind = draws.pick("prompt", ("plain",) * 6 + ("poison", "poison", "media", "media", "huge"))
        if kind == "poison":
            return [Text(text=draws.pick("prompt text", POISON)), script]
        if kind == "media":
            return [draws.pick("prompt media", MEDIA), script]
        return (
            [Text(text=HUGE), script] if kind == "huge" and draws.maybe("huge prompt", 0.1) else script.text
        )

    async def turn(self, number):
        """One prompt, streamed or not, which may be cancelled or lose its process."""
        draws = self.draws
        common = draws.maybe("common model", 0.3)
        agent = self.agent(draws.pick("model", COMMON_MODELS if common else MODELS))
        prompt = self.prompt(number)
        given = {"session": self.session, "tenant": await self.caller()}
        streamed = draws.maybe("streamed", 0.6)
        if number == 0 and draws.maybe("imported history", 0.15):
            source = draws.pick("history", [*HISTORIES])
            given["history"] = import_history(source, HISTORIES[source])

        async def go():
            try:
                if not streamed or "history" in given:
                    return await agent.run(prompt, **given)
                async for event in agent.stream(prompt, **given):
                    last = event
            except ApprovedCallWaits as error:  # a process died after the answer: the call is given up first
                for each in error.calls:
                    await agent.reject(each.session, each.id)
                return await agent.run(prompt, **given)
            return last.result

        return await self.interrupted(go)

    async def interrupted(self, go):
        """Run it to its end, cancel it at some turn of the loop, or let its process die at a write."""
        ending = self.draws.pick("ending", ("whole", "whole", "death", "cancel"))
        if not self.faults:
            return await go()
        if ending == "death":
            self.store.dies_at = self.store.writes + 1 + self.draws.number(11)
        task = asyncio.create_task(go())
        if ending == "cancel":
            for _ in range(self.draws.number(60)):
                await asyncio.sleep(0)
            task.cancel()
        try:
            return await task
        except (asyncio.CancelledError, Death):
            return None
        finally:
            self.store.dies_at = None

    async def between(self):
        """What may happen to a session that rests: an answer, a resume, an undo, a fork."""
        what = self.draws.pick("between turns", BETWEEN)
        if what == "nothing" or not await self.prompted():
            return None
        agent = self.agent(self.draws.pick("model", COMMON_MODELS), output=None)
        if what == "resume":
            return await self.interrupted(lambda: self.resume(agent))
        if what == "compensate":
            await agent.compensate(self.session)
        elif what == "fork":
            self.session = (await agent.fork(self.session)).session
        else:
            for question in await agent.approvals(self.session):
                answer = agent.approve if what == "approve" else agent.reject
                try:
                    await answer(self.session, question.id)
                except CannotContinue:  # this agent has other rules: the question is asked again
                    continue
            return await self.interrupted(lambda: self.resume(agent))
        return None

    async def resume(self, agent):
        """The result; None if the agent lacks what the run waits with, such as its output type."""
        try:
            return await agent.resume(self.session)
        except CannotContinue:
            return None


EASY_OPTIONS = {
    "policy": None, "max_tokens": None, "extras": (), "on_adjusted": "event", "context_tokens": None,
    "tool_choice": "auto", "reply_calls_max": None, "reply_bytes_max": None, "budget": Budget(steps=8, seconds=500.0),
}  # fmt: skip
RATES = {
    "none": None,
    "none again": None,
    "often": "5/second",
    "seldom": "2/minute",
    "once an hour": RateLimit(requests=1, seconds=3_600.0),
}
CHOICES = {"auto": "auto", "any": "any", "none": "none", "named": "look"}
SAMPLINGS = {
    "none": None,
    "temperature": Sampling(temperature=0.7),
    "all": Sampling(temperature=0.3, top_p=0.9, top_k=5, stop_sequences=("END",)),
    "many stops": Sampling(stop_sequences=tuple(f"s{number}" for number in range(30))),
}
NOT_DRAWN = {
    "raise_on_stop": "a life reads how its runs stopped (test_loud_stops)",
    "tool_errors": "every life has tools with bugs, and goes on (test_tool_errors)",
    "version": "a life has one version of its code (test_rolling_upgrades)",
    "continues": "a life has one version of its code (test_rolling_upgrades)",
    "reprompts_max": "a gateway has none; tried in test_gateway",
    "model": "every turn has one",
    "tools": "every life has the same, with random results",
    "budget": "every turn has one; the final turns have a large one",
    "pool": "shared budgets have tests of their own (test_shared_budget, test_till)",
    "store": "a store whose process dies",
    "approver": "answers come between turns; approvers are tried in test_approvals",
    "tool_index": "an index of one's own is tried in test_large_catalogue",
    "deadlines": "they belong to connections; a life has none (test_http)",
    "watchers": "they cannot change a run (test_viewing)",
    "telemetry": "it cannot change a run; test_trace_totals compares lives with their traces",
    "clock": "a clock that jumps over waits",
    "random_source": "fixed, so that a seed is a bug report",
    "thinking": "drawn from what the model has",
    "context_type": "it is for type checkers and changes no run (test_run_context, test_context_typing)",
    "validate": "lives have no validator; test_validators has its own",
    "handovers_max": "see handover (test_handover_back)",
    "handover": "a life has one agent per turn; hand-overs have tests of their own (test_handover)",
    "rate_limits": "the provider's own limits are among the faults; limits of ours have tests of their own (test_rates)",
    "code_mode": "lives start no programs (tests/run/calls/test_code_mode.py, test_killed_programs.py)",
    "sandbox": "lives start no programs (tests/sandbox, tests/toolkit)",
    "keep_raw": "it adds bytes to the store and changes no run (test_sent_calls)",
    "compaction": "drawn with and without the provider's own",
}
"""Options of an agent that are not drawn by name, and why."""
