"""Random conversations for the cache: abstract requests (see cache_oracle), and their bodies on each wire.

They do what people do to caches: go on, go on with sixty blocks at once, wait too long, go back and go on
differently, change a tool, a setting or an account, move the marks.
"""

import json
import random
from dataclasses import replace
from typing import Any

from tests.sim.cache.cache_oracle import Ask, Piece, Turn, World, definition

WORLDS = [
    World("anthropic", "claude-sonnet-5-5", "marks", 512, runs=True),
    World(
        "anthropic",
        "claude-haiku-4-5",
        "marks",
        4_096,
        runs=True,
        forgets_thoughts=True,
        thinking="disabled",
        effort="",
    ),
    World("bedrock_converse", "global.anthropic.claude-fable-5-2", "marks", 512),
    World("openai_responses", "gpt-6.1-sol", "points", 1_024, seconds=1_800),
    World("openai_chat", "gpt-6.1-sol", "points", 1_024, seconds=1_800),
    World("openai_responses", "gpt-5.4", "prefix", 1_024, step=128),
    World("openai_chat", "gpt-5.5", "prefix", 1_024, step=2_048, seconds=86_400),
    World("openai_chat", "deepseek-v4-flash", "prefix", 64, step=64, seconds=3_600),
    World("gemini", "gemini-2.5-flash", "prefix", 2_048),
]
WAITS = (
    *(0, 1, 10, 60, 150) * 3,
    299,
    300,
    301,
    600,
    1_799,
    1_800,
    1_801,
    3_599,
    3_600,
    3_601,
    43_200,
    90_000,
)
_WORDS = [
    "a",
    "tree",
    "is",
    "not",
    "17",
    "houses,",
    "{but}",
    "the",
    "Größe",
    "of",
    "日本",
    "=",
    "x_1;",
    "f(\n\n ",
    "u?e=f",
]
_SIZES = (1, 3, 9, 40, 90, 130, 300, 700, 2_100)
_POOL: dict[tuple[int, int], str] = {}


def words(dice: random.Random) -> str:
    """One of a few hundred texts, so that texts come again and again."""
    size, number = dice.choice(_SIZES), dice.randrange(20)
    if (size, number) not in _POOL:
        own = random.Random(size * 1_000 + number)
        shared = " ".join(_WORDS * 3)[: own.choice((0, 40, 200))]
        _POOL[size, number] = shared + " ".join(own.choice(_WORDS) for _ in range(size)) + "."
    return _POOL[size, number]


def conversation(dice: random.Random, world: World) -> list[Ask]:
    ask = Ask(
        time=1_000.0,
        tools=tuple(_tool(dice) for _ in range(dice.choice((0, 0, 1, 3)))),
        system=tuple(Piece("text", words(dice)) for _ in range(dice.choice((0, 1, 1, 2)))),
        turns=(Turn("user", (Piece("text", words(dice)),)),),
        settings={"instructions": True} if dice.random() < 0.5 else {},
    )
    if world.family == "openai_responses" and ask.settings:
        ask = replace(ask, system=ask.system[:1])
    asks: list[Ask] = []
    for _ in range(dice.randint(2, 9)):
        asks.append(_marked(dice, world, ask))
        ask = replace(ask, time=ask.time + dice.choice(WAITS))
        change = dice.choice(CHANGES)
        ask = change(dice, world, ask, asks)
    return asks


# --- what happens between two requests -----------------------------------------------------------


def _goes_on(dice, world, ask, _asks):
    return replace(ask, turns=(*ask.turns, *_step(dice, world, dice.choice((1, 1, 2, 3)))))


def _goes_far(dice, world, ask, _asks):
    """A turn of sixty blocks: calls in a row, or texts."""
    if dice.random() < 0.5:
        return replace(ask, turns=(*ask.turns, *_step(dice, world, dice.choice((19, 20, 21, 30)))))
    many = tuple(Piece("text", words(dice)) for _ in range(dice.choice((18, 19, 20, 21, 60))))
    return replace(ask, turns=(*ask.turns, _answer(dice), Turn("user", many)))


def _person_speaks(dice, world, ask, _asks):
    pieces = [Piece("text", words(dice)) for _ in range(dice.choice((1, 1, 2)))]
    if dice.random() < 0.1:
        pieces.append(Piece("image", words(dice)))
    return replace(ask, turns=(*ask.turns, _answer(dice), Turn("user", tuple(pieces))))


def _goes_back(dice, _world, ask, asks):
    earlier = dice.choice(asks)
    bare = tuple(Turn(turn.role, tuple(replace(p, mark="") for p in turn.pieces)) for turn in earlier.turns)
    return replace(ask, turns=bare, tools=_strip_marks(earlier.tools), system=_strip_marks(earlier.system))


def _ask_again(_dice, _world, ask, _asks):
    return ask


def _other_tools(dice, _world, ask, _asks):
    tools = list(ask.tools)
    if tools and dice.random() < 0.5:
        tools.pop(dice.randrange(len(tools)))
    else:
        tools.insert(dice.randrange(len(tools) + 1), _tool(dice))
    return replace(ask, tools=tuple(tools))


def _other_system(dice, _world, ask, _asks):
    if not ask.system:
        return ask
    return replace(ask, system=(*ask.system[:-1], Piece("text", words(dice))))


def _other_words(dice, _world, ask, _asks):
    """One old piece is edited near its end, so that most of its tokens stay."""
    at = dice.randrange(len(ask.turns))
    turn = ask.turns[at]
    edited = replace(turn.pieces[-1], text=turn.pieces[-1].text[:-2] + " edited.")
    turns = (*ask.turns[:at], Turn(turn.role, (*turn.pieces[:-1], edited)), *ask.turns[at + 1 :])
    return replace(ask, turns=turns)


def _other_setting(dice, world, ask, _asks):
    name, values = dice.choice(SETTINGS[world.family] or [("", ("",))])
    return replace(ask, settings={**ask.settings, name: dice.choice(values)}) if name else ask


def _other_account(dice, _world, ask, _asks):
    return replace(ask, account=dice.choice("ab"))


CHANGES = (
    *[_goes_on] * 8,
    *[_person_speaks] * 4,
    *[_goes_far] * 2,
    *[_goes_back] * 2,
    _ask_again,
    _other_tools,
    _other_system,
    _other_words,
    _other_setting,
    _other_setting,
    _other_account,
)
_OPENAI = [
    ("effort", (None, "low", "high")),
    ("verbosity", (None, "medium", "low")),
    ("tier", (None, "auto", "flex")),
    ("key", (None, "k1", "k2")),
    ("parallel", (None, True, False)),
]
SETTINGS = {
    "anthropic": [
        ("choice", (None, "auto", "any")),
        ("thinking", (None, "adaptive", "disabled")),
        ("effort", (None, "high", "low")),
        ("speed", (None, "standard", "fast")),
    ],
    "bedrock_converse": [("choice", (None, "auto", "any")), ("effort", (None, "high", "low"))],
    "openai_responses": [*_OPENAI, ("kept", ("", "12h", "30m", "24h")), ("explicit", (False, True))],
    "openai_chat": [*_OPENAI, ("kept", ("", "12h", "30m", "24h")), ("explicit", (False, True))],
    "gemini": [],
}


def _tool(dice):
    return Piece("tool", words(dice), id=f"tool_{dice.randrange(50)}")


def _answer(dice):
    return Turn("assistant", (Piece("text", words(dice)),))


def _step(dice, world, calls):
    """The model calls tools, and their results come back."""
    mark = dice.randrange(10**6)
    thought = (Piece("thought", words(dice), id=f"s{mark}"),) if dice.random() < 0.5 else ()
    said = (Piece("text", words(dice)),) if dice.random() < 0.5 else ()
    ids = [f"c{mark}_{number}" for number in range(calls)]
    asked = tuple(Piece("call", words(dice), id=id_) for id_ in ids)
    brought = tuple(Piece("result", words(dice), id=id_) for id_ in ids)
    thought = thought if world.family in ("anthropic", "bedrock_converse") else ()
    return Turn("assistant", (*thought, *said, *asked)), Turn("tool", brought)


# --- marks ----------------------------------------------------------------------------------------


def _marked(dice, world, ask):
    if world.way == "prefix" or dice.random() < 0.1:
        return ask
    spots = [("tools", at, 0) for at in range(len(ask.tools))] if world.way == "marks" else []
    spots += [("system", at, 0) for at in range(len(ask.system)) if world.way == "marks"]
    for at, turn in enumerate(ask.turns):
        for number, piece in enumerate(turn.pieces):
            markable = piece.kind != "thought" if world.way == "marks" else piece.kind == "text"
            if markable and (world.way == "marks" or turn.role == "user"):
                spots.append(("turns", at, number))
    most = 4 if world.way == "marks" else dice.choice((0, 1, 3, 5, 70))
    chosen = sorted(dice.sample(range(len(spots)), min(len(spots), dice.randint(0, most))))
    if world.way == "marks" and spots and dice.random() < 0.7:
        chosen = sorted({*chosen[:3], len(spots) - 1})
    if world.way == "points":
        ttls = [dice.choice(("30m", "30m", "12h")) for _ in chosen]
    else:
        long = dice.randint(0, len(chosen)) if dice.random() < 0.5 else 0
        ttls = ["1h"] * long + ["5m"] * (len(chosen) - long)
    marks = {spots[at]: ttl for at, ttl in zip(chosen, ttls, strict=True)}
    return replace(
        ask,
        tools=tuple(replace(p, mark=marks.get(("tools", n, 0), "")) for n, p in enumerate(ask.tools)),
        system=tuple(replace(p, mark=marks.get(("system", n, 0), "")) for n, p in enumerate(ask.system)),
        turns=tuple(
            Turn(
                turn.role,
                tuple(replace(p, mark=marks.get(("turns", at, n), "")) for n, p in enumerate(turn.pieces)),
            )
            for at, turn in enumerate(ask.turns)
        ),
    )


def _strip_marks(pieces):
    return tuple(replace(piece, mark="") for piece in pieces)


# --- on the wire ----------------------------------------------------------------------------------


def body(world: World, ask: Ask, dice: random.Random) -> dict:
    return {
        "anthropic": _messages,
        "bedrock_converse": _converse,
        "openai_responses": _responses,
        "openai_chat": _chat,
        "gemini": _generate,
    }[world.family](world, ask, dice)


def headers(world: World, ask: Ask) -> dict[str, str]:
    name = {"anthropic": "x-api-key", "gemini": "x-goog-api-key"}.get(world.family, "authorization")
    return {name: ask.account}


def _drop_none(fields):
    return {name: value for name, value in fields.items() if value is not None}


def _messages(world, ask, dice):
    def block(piece):
        wire = {
            "text": {"type": "text", "text": piece.text},
            "image": {"type": "image", "source": {"type": "base64", "data": piece.text}},
            "call": {"type": "tool_use", "id": piece.id, "name": "look", "input": {"q": piece.text}},
            "result": {"type": "tool_result", "tool_use_id": piece.id, "content": piece.text},
            "thought": {"type": "thinking", "thinking": piece.text, "signature": piece.id},
            "tool": definition(world.family, piece),
        }[piece.kind]
        return {**wire, **({"cache_control": {"type": "ephemeral", "ttl": piece.mark}} if piece.mark else {})}

    said = ask.settings
    last = ask.turns[-1].pieces[-1]
    automatic = last.kind != "thought" and last.mark and dice.random() < 0.5
    messages = [
        {
            "role": "assistant" if turn.role == "assistant" else "user",
            "content": [block(piece) for piece in turn.pieces],
        }
        for turn in ask.turns
    ]
    if automatic:
        del messages[-1]["content"][-1]["cache_control"]
    return _drop_none(
        {
            "model": world.model,
            "max_tokens": 100,
            "tools": [block(tool) for tool in ask.tools] or None,
            "system": [block(piece) for piece in ask.system] or None,
            "messages": messages,
            "cache_control": {"type": "ephemeral", "ttl": last.mark} if automatic else None,
            "tool_choice": {"type": said["choice"]} if said.get("choice") else None,
            "thinking": {"type": said["thinking"]} if said.get("thinking") else None,
            "output_config": {"effort": said["effort"]} if said.get("effort") else None,
            "speed": said.get("speed"),
        }
    )


def _converse(world, ask, _dice):
    def blocks(pieces):
        wired = []
        for piece in pieces:
            wired.append(
                {
                    "text": {"text": piece.text},
                    "image": {"image": {"format": "png", "source": {"bytes": piece.text}}},
                    "call": {"toolUse": {"toolUseId": piece.id, "name": "look", "input": {"q": piece.text}}},
                    "result": {"toolResult": {"toolUseId": piece.id, "content": [{"text": piece.text}]}},
                    "thought": {
                        "reasoningContent": {"reasoningText": {"text": piece.text, "signature": piece.id}}
                    },
                    "tool": definition(world.family, piece),
                }[piece.kind]
            )
            if piece.mark:
                wired.append({"cachePoint": {"type": "default", "ttl": piece.mark}})
        return wired

    said = ask.settings
    choice = {"toolChoice": {said["choice"]: {}}} if said.get("choice") else {}
    return _drop_none(
        {
            "system": blocks(ask.system) or None,
            "toolConfig": {"tools": blocks(ask.tools), **choice} if ask.tools or choice else None,
            "messages": [
                {
                    "role": "assistant" if turn.role == "assistant" else "user",
                    "content": blocks(turn.pieces),
                }
                for turn in ask.turns
            ],
            "outputConfig": {"effort": said["effort"]} if said.get("effort") else None,
        }
    )


def _point(piece):
    return {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": piece.mark}} if piece.mark else {}


def _cache_fields(world, said):
    kept, explicit = said.get("kept") or None, said.get("explicit")
    if world.way == "prefix":
        return {"prompt_cache_retention": kept}
    options = _drop_none({"ttl": kept, "mode": "explicit" if explicit else None})
    return {"prompt_cache_options": options or None}


def _responses(world, ask, _dice):
    said, items = ask.settings, []
    instructed = said.get("instructions")
    if not instructed:
        items += [{"role": "system", "content": piece.text} for piece in ask.system]
    for turn in ask.turns:
        if turn.role == "user":
            parts = []
            for piece in turn.pieces:
                image = {"type": "input_image", "image_url": piece.text}
                text = {"type": "input_text", "text": piece.text, **_point(piece)}
                parts.append(image if piece.kind == "image" else text)
            items.append({"type": "message", "role": "user", "content": parts})
        for piece in turn.pieces if turn.role != "user" else ():
            if piece.kind == "text":
                part = {"type": "output_text", "text": piece.text, "annotations": []}
                items.append({"type": "message", "role": "assistant", "content": [part]})
            elif piece.kind == "call":
                arguments = _arguments(piece.text)
                items.append(
                    {"type": "function_call", "call_id": piece.id, "name": "look", "arguments": arguments}
                )
            else:
                items.append({"type": "function_call_output", "call_id": piece.id, "output": piece.text})
    return _drop_none(
        {
            "model": world.model,
            "instructions": ask.system[0].text if instructed and ask.system else None,
            "tools": [definition(world.family, tool) for tool in ask.tools] or None,
            "input": items,
            "reasoning": {"effort": said["effort"]} if said.get("effort") else None,
            "text": {"verbosity": said["verbosity"]} if said.get("verbosity") else None,
            "service_tier": said.get("tier"),
            "prompt_cache_key": said.get("key"),
            "parallel_tool_calls": said.get("parallel"),
            **_cache_fields(world, said),
        }
    )


def _chat(world, ask, _dice):
    said = ask.settings
    messages = [{"role": "system", "content": piece.text} for piece in ask.system]
    for turn in ask.turns:
        if turn.role == "user":
            parts = []
            for piece in turn.pieces:
                image = {"type": "image_url", "image_url": {"url": piece.text}}
                text: Any = {"type": "text", "text": piece.text, **_point(piece)}
                parts.append(image if piece.kind == "image" else text)
            messages.append({"role": "user", "content": parts})
        elif turn.role == "tool":
            messages += [
                {"role": "tool", "tool_call_id": piece.id, "content": piece.text} for piece in turn.pieces
            ]
        else:
            calls = [
                {
                    "id": piece.id,
                    "type": "function",
                    "function": {"name": "look", "arguments": _arguments(piece.text)},
                }
                for piece in turn.pieces
                if piece.kind == "call"
            ]
            text = "".join(piece.text for piece in turn.pieces if piece.kind == "text")
            messages.append(
                {"role": "assistant", "content": text or None, **({"tool_calls": calls} if calls else {})}
            )
    return _drop_none(
        {
            "model": world.model,
            "tools": [definition(world.family, tool) for tool in ask.tools] or None,
            "messages": messages,
            "reasoning_effort": said.get("effort"),
            "verbosity": said.get("verbosity"),
            "service_tier": said.get("tier"),
            "prompt_cache_key": said.get("key"),
            "parallel_tool_calls": said.get("parallel"),
            **_cache_fields(world, said),
        }
    )


def _generate(world, ask, _dice):
    def part(piece):
        return {
            "text": {"text": piece.text},
            "image": {"inlineData": {"mimeType": "image/png", "data": piece.text}},
            "call": {"functionCall": {"id": piece.id, "name": "look", "args": {"q": piece.text}}},
            "result": {
                "functionResponse": {"id": piece.id, "name": "look", "response": {"output": piece.text}}
            },
        }[piece.kind]

    return _drop_none(
        {
            "tools": [{"functionDeclarations": [definition(world.family, tool) for tool in ask.tools]}]
            if ask.tools
            else None,
            "systemInstruction": {"parts": [part(piece) for piece in ask.system]} if ask.system else None,
            "contents": [
                {
                    "role": "model" if turn.role == "assistant" else "user",
                    "parts": [part(piece) for piece in turn.pieces],
                }
                for turn in ask.turns
            ],
        }
    )


def _arguments(text: str) -> str:
    return json.dumps({"q": text}, separators=(",", ":"), ensure_ascii=False)
