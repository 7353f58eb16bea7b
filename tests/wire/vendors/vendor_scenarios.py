"""Random conversations of agents with all models of the tables, for judging what is sent by the vendors' types.

`play(seed)` is one conversation of one to three turns; each turn draws its model, tools, settings and prompt anew.  The
simulator answers.  `DRAWN` counts what was drawn, so that a table can show what the conversations covered.
"""

import json
import random
from collections import Counter
from typing import Any, NamedTuple

from pydantic import BaseModel

from bridle import Agent, Budget, Compaction, Media, Memory, Text, tool
from bridle.providers.catalogue import known_models
from bridle.sessions import import_history
from bridle.stores.memory import MemoryStore
from bridle.testing import FakeClock
from bridle.testing.simulated_provider import ProviderSim
from bridle.tools import RawTool
from bridle.values.errors import MisuseError
from bridle.values.request import Extra, Sampling, Thinking, ToolChoice, ToolSpec

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PDF = "JVBERi0xLjQKMSAwIG9iajw8Pj5lbmRvYmoKdHJhaWxlcjw8Pj4KJSVFT0YK"
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
MP4 = "AAAAGGZ0eXBpc29tAAAAAGlzb21tcDQx"
ELSEWHERE = (
    "azure",
    "azure-chat",
    "anthropic-bedrock",
    "anthropic-vertex",
    "anthropic-vertex-region",
    "anthropic-foundry",
)
"""Endpoints of the same wires at addresses that are not known before they are configured."""
HOSTED: dict[str, Any] = {
    "anthropic": ("web_search", '{"type":"web_search_20260209","name":"web_search","max_uses":2}'),
    "openai_responses": ("web_search", '{"type":"web_search"}'),
    "gemini": ("search", '{"googleSearch":{}}'),
}
EXTRAS = {
    "anthropic": (
        Extra(name="metadata", json='{"user_id":"u1"}'),
        Extra(name="service_tier", json='"standard_only"'),
        Extra(name="inference_geo", json='"us"'),
    ),
    "openai_responses": (
        Extra(name="service_tier", json='"flex"'),
        Extra(name="metadata", json='{"job":"a"}'),
        Extra(name="truncation", json='"disabled"'),
        Extra(name="safety_identifier", json='"u1"'),
    ),
    "openai_chat": (Extra(name="seed", json="7"), Extra(name="user", json='"u1"')),
    "gemini": (
        Extra(
            name="safetySettings", json='[{"category":"HARM_CATEGORY_HARASSMENT","threshold":"BLOCK_NONE"}]'
        ),
    ),
    "bedrock_converse": (
        Extra(name="requestMetadata", json='{"job":"a"}'),
        Extra(name="performanceConfig", json='{"latency":"standard"}'),
    ),
}
ODD_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1, "pattern": "^/"},
        "size": {"type": ["integer", "null"], "minimum": 0},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}},
        "any of": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/node"}]},
    },
    "required": ["path"],
    "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
}
HISTORIES: dict[str, Any] = {
    "anthropic": [
        {"role": "user", "content": "Look."},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "x"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "fine"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "It is fine."}]},
    ],
    "openai-chat": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hello."},
    ],
    "gemini": [
        {"role": "user", "parts": [{"text": "Hello"}]},
        {"role": "model", "parts": [{"text": "Hello."}]},
    ],
}
DRAWN = Counter()


class Sent(NamedTuple):
    url: str
    betas: str
    body: bytes
    seed: int


class City(BaseModel):
    name: str
    people: int | None = None


class Trip(BaseModel):
    cities: list[City]
    note: str = ""


@tool(effect="read")
async def look(at: str, closely: bool = False) -> str:
    """Look at something."""
    return f"{at} is fine"


@tool(effect="read")
async def shoot() -> list[Text | Media]:
    """Take a picture."""
    return [Text(text="Here."), Media(kind="image", media_type="image/png", data=PNG)]


@tool(effect="write")
async def fail(why: str) -> str:
    """Fail."""
    raise RuntimeError(why)


class HostedTool:
    """A tool that the provider runs itself."""

    def __init__(self, name, native):
        self.spec = ToolSpec(name=name, native=native)

    async def run(self, arguments, context):
        raise AssertionError("the provider runs it")


def models():
    return [
        model
        for model in known_models()
        if model.endpoint.name not in ELSEWHERE and not model.endpoint.simulated
    ]


class Scenario:
    def __init__(self, seed):
        self.seed, self.chance, self.clock = seed, random.Random(seed), FakeClock()
        self.provider = ProviderSim(clock=self.clock, seed=seed)
        self.bodies, self.answer = [], self.provider.simulator.answer
        self.provider.simulator.answer = self.keep_and_answer
        self.store = MemoryStore()
        every = models()
        self.chain = self.drew("chain", 0.1)
        self.models = [every[seed % len(every)], *self.chance.choices(every, k=2)]

    def drew(self, what, chance):
        drawn = self.chance.random() < chance
        DRAWN[what] += drawn
        return drawn

    async def play(self):
        turns = self.chance.choice((1, 2, 2, 3))
        history = self.imported()
        for number in range(turns):
            model = self.models[0] if self.chance.random() < 0.6 else self.chance.choice(self.models)
            DRAWN[model.endpoint.family] += 1
            try:
                await self.turn(self.agent(model), number, history)
            except MisuseError:
                DRAWN["refused before it was sent"] += 1
            history = None
        return self.sent()

    async def turn(self, agent, number, history):
        prompt = self.prompt(agent, number)
        if history:
            await agent.run(prompt, session="s", history=history)
        elif self.drew("stream", 0.5):
            async for _ in agent.stream(prompt, session="s"):
                pass
        else:
            await agent.run(prompt, session="s")

    async def keep_and_answer(self, outgoing):
        self.bodies.append(outgoing.body)
        return await self.answer(outgoing)

    def sent(self):
        """The bytes that were sent: exchanges are recorded without the values of extras."""
        return [
            Sent(each.path, dict(each.headers).get("anthropic-beta", ""), body, self.seed)
            for each, body in zip(self.provider.exchanges, self.bodies, strict=True)
        ]

    def imported(self):
        if not self.drew("imported history", 0.1):
            return None
        source = self.chance.choice(sorted(HISTORIES))
        return import_history(source, HISTORIES[source])

    def agent(self, model):
        family = model.endpoint.family
        names = self.tools(family)
        lines = [self.provider.model(model)]
        if self.drew("fallback chain", 0.1):
            lines.append(self.provider.model(self.chance.choice(self.models)))
        return Agent(
            lines if len(lines) > 1 else lines[0],
            tools=names,
            store=self.store,
            clock=self.clock,
            random_source=lambda: 0.5,
            budget=Budget(steps=8, seconds=500.0),
            **self.settings(family, names),
        )

    def tools(self, family):
        given: Any = [each for each in (look, shoot, fail) if self.chance.random() < 0.6]
        if self.drew("raw schema", 0.2):
            given.append(RawTool("odd", "An odd schema.", ODD_SCHEMA, lambda given: "odd"))
        if family in HOSTED and self.drew("hosted tool", 0.15):
            given.append(HostedTool(*HOSTED[family]))
        return given

    def settings(self, family, tools):
        chance = self.chance
        settings = {
            "instructions": chance.choice((None, "Be short.", "Be long. " * 400)),
            "tool_choice": self.choice(tools),
            "thinking": self.thinking(),
            "sampling": self.sampling(),
            "chain": self.chain,
        }
        optional = {
            "output": (City, Trip, dict[str, int], list[str]),
            "max_tokens": (1, 900, 5_000, 60_000),
            "cache_ttl": ("5m", "1h"),
            "cache_by": ("agent", "tenant"),
            "cache_by_name": (True,),
            "compaction": (None, Compaction(at=0.5, to=0.3)),
            "context_tokens": (3_000,),
            "memory": (Memory(),),
            "facts": ({"time": "noon"},),
            "extras": (chance.sample(EXTRAS[family], 1),),
        }
        for name, values in optional.items():
            if self.drew(name, 0.25 if name in ("output", "max_tokens") else 0.1):
                settings[name] = chance.choice(values)
        return settings

    def choice(self, tools):
        chance = self.chance
        own = [each.spec.name for each in tools if not isinstance(each, HostedTool)]
        mode = chance.choice(("auto", "auto", "auto", "any", "none", "tool"))
        if mode == "tool" and not own:
            mode = "auto"
        DRAWN[f"tool_choice {mode}"] += 1
        name = chance.choice(own) if mode == "tool" else ""
        return ToolChoice(mode=mode, name=name, parallel=chance.random() < 0.8)  # type: ignore[arg-type]

    def thinking(self):
        if not self.drew("thinking", 0.5):
            return None
        chance = self.chance
        return Thinking(
            mode=chance.choice(("", "", "adaptive", "enabled", "disabled", "between_tools")),
            effort=chance.choice(("", "", "minimal", "low", "medium", "high", "xhigh", "max", "none")),
            budget_tokens=chance.choice((None, None, None, 100, 1024, 4_000, 100_000)),
            display=chance.choice(("", "", "summarized", "omitted")),
        )

    def sampling(self):
        if not self.drew("sampling", 0.2):
            return None
        chance = self.chance
        return Sampling(
            temperature=chance.choice((None, 0.2, 1.0)),
            top_p=chance.choice((None, 0.9)),
            top_k=chance.choice((None, 40)),
            stop_sequences=chance.choice(((), ("END",), ("a", "b", "c", "d", "e", "f"))),
        )

    def prompt(self, agent, number):
        lines, chance = [], self.chance
        for _ in range(chance.randrange(3)):
            if self.drew("thought", 0.4):
                lines.append("!think Let me see.")
            if self.drew("words beside calls", 0.3):
                lines.append("!say I look.")
            for _ in range(chance.choice((1, 1, 2))):
                name, given = chance.choice(
                    (
                        ("look", {"at": "door"}),
                        ("shoot", {}),
                        ("fail", {"why": "no"}),
                        ("odd", {"path": "/"}),
                        ("ghost", {}),
                    )
                )
                lines.append(f"!call {name} {json.dumps(given)}")
            lines.append("!then")
        lines.append(f"!say turn {number} is done")
        if self.drew("odd end", 0.1):
            lines.append(f"!stop {chance.choice(('length', 'refused', 'paused', 'filtered'))}")
        media = [each for each in MEDIA if self.drew(each.kind, 0.08)]
        return [*media, Text(text="\n".join(lines))]


MEDIA = (
    Media(kind="image", media_type="image/png", data=PNG),
    Media(kind="image", url="https://pictures.example/a.png"),
    Media(kind="document", media_type="application/pdf", data=PDF, name="a.pdf"),
    Media(kind="document", media_type="text/plain", data="aGVsbG8=", name="a.txt"),
    Media(kind="audio", media_type="audio/wav", data=WAV),
    Media(kind="video", media_type="video/mp4", data=MP4),
)


async def play(seed):
    return await Scenario(seed).play()
