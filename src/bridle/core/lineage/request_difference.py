"""Finds the first difference between two requests, by layer, and describes it in words.

Layers are compared in the order of the prompt (docs/prompt_layers.py): a difference in an early layer is the cause of
later ones, and all that follows it is a cache miss.
"""

import json
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher, unified_diff
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from bridle.core.cache.prefix import find_difference_index
from bridle.core.context.assemble import memory_text
from bridle.core.context.token_estimate import written_instructions
from bridle.core.json_differences import list_differences
from bridle.core.state import State
from bridle.values.lineage import RequestDifference, RequestLayer
from bridle.values.message import Message, Part, Text, ToolResult
from bridle.values.request import Request, ToolSpec
from bridle.values.text import parse_json

CHANGES_MAX = 12
WORDS_MAX = 4_000
"""Longer changes are shown as excerpts: comparing them word by word would take too long."""
CONTEXT_WORDS = 3
DIFF_LINES_MAX, DIFF_COLUMNS_MAX = 200, 2_000
OPTION_FIELDS = (
    "tool_choice", "max_tokens", "output", "thinking", "sampling", "stored_prompt", "conversation",
    "server_state_until",
    "keeps_server_state", "asks_native_summary", "summary_instructions", "extras", "cache_key", "breakpoints",
    "compare_reply_id",
)  # fmt: skip
WORD = re.compile(r"\S+\s*|\s+")


class PromptSide(NamedTuple):
    """A request and the state that it was made in."""

    request: Request
    state: State


def compare_requests(before: PromptSide, now: PromptSide) -> RequestDifference | None:
    """First difference between two requests; None if they are equal."""
    for layer, place, changes in _list_layers(before, now):
        return RequestDifference(layer=layer, place=place, changes=tuple(changes)[:CHANGES_MAX])
    return None


def find_first_byte(before: bytes, now: bytes) -> int:
    """Offset of the first differing byte; -1 if there is none."""
    if before == now:
        return -1
    low, high = 0, min(len(before), len(now))
    while low < high:
        middle = (low + high + 1) // 2
        if before[:middle] == now[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def add_bodies(difference: RequestDifference, before: bytes, now: bytes) -> RequestDifference:
    """The difference with the places where the encoded requests differ."""
    first, diff = find_first_byte(before, now), tuple(diff_bodies(before, now))
    return replace(difference, first_byte=first, body_bytes=len(before), diff=diff)


def diff_bodies(before: bytes, now: bytes) -> Iterator[str]:
    """The differing lines of two JSON bodies; only the first ones if there are many."""
    sides = (_format_body(before), _format_body(now))
    lines = unified_diff(*sides, "before", "now", n=2, lineterm="")
    for number, line in enumerate(lines):
        if number == DIFF_LINES_MAX:
            yield "…"
            return
        yield line if len(line) <= DIFF_COLUMNS_MAX else line[: DIFF_COLUMNS_MAX - 1] + "…"


def _format_body(body: bytes) -> list[str]:
    try:
        return json.dumps(parse_json(body.decode()), indent=1, ensure_ascii=False).split("\n")
    except ValueError:
        return body.decode("utf-8", "replace").split("\n")


def _list_layers(
    before: PromptSide, now: PromptSide
) -> Iterator[tuple[RequestLayer, str, Iterator[str] | Sequence[str]]]:
    one, other = before.request, now.request
    if one.model.model_key != other.model.model_key:
        yield "model", other.model.name, [f"{one.model.name} became {other.model.name}"]
    tools, new_tools = (*one.tools, *one.deferred_tools), (*other.tools, *other.deferred_tools)
    if tools != new_tools:
        yield "tools", *_compare_tools(tools, new_tools)
    if one.system != other.system:
        yield _compare_system(before, now)
    if one.messages != other.messages:
        yield "history", *_compare_messages(one.messages, other.messages)
    for name in OPTION_FIELDS:
        if getattr(one, name) != getattr(other, name):
            yield "options", name, _compare_values(getattr(one, name), getattr(other, name), name)
    if one.model != other.model:
        yield "model", other.model.name, _compare_values(one.model, other.model, "model")


def _compare_values(before: object, now: object, name: str) -> Iterator[str]:
    return list_differences(
        msgspec.to_builtins(before, str_keys=True), msgspec.to_builtins(now, str_keys=True), name
    )


def _compare_tools(before: Sequence[ToolSpec], now: Sequence[ToolSpec]) -> tuple[str, Sequence[str]]:
    at = find_difference_index(before, now)
    named, new_named = {each.name: each for each in before}, {each.name: each for each in now}
    changes = [f"{name} is gone" for name in named if name not in new_named]
    changes += [f"{name} is new" for name in new_named if name not in named]
    for name, spec in named.items():
        if name in new_named and new_named[name] != spec:
            changes += list_differences(_describe_tool(spec), _describe_tool(new_named[name]), at=name)
    if not changes:
        changes.append(f"the order was {', '.join(named)} and is {', '.join(new_named)}")
    place = now[at].name if at < len(now) else before[at].name
    return f"tool {at + 1} ({place})", changes


def _describe_tool(spec: ToolSpec) -> object:
    described = msgspec.to_builtins(spec, str_keys=True)
    if isinstance(described.get("parameters"), str):
        described["parameters"] = parse_json(described["parameters"])
    return described


def _compare_system(before: PromptSide, now: PromptSide) -> tuple[RequestLayer, str, Iterator[str]]:
    one, other = _name_system(before.state), _name_system(now.state)
    for layer, text in one.items():
        if text != other[layer]:
            return layer, layer, describe_text_change(text, other[layer])
    joined = ("\n".join(text.text for text in each.request.system) for each in (before, now))
    return "instructions", "system prompt", describe_text_change(*joined)


def _name_system(state: State) -> dict[RequestLayer, str]:
    written = written_instructions(state) if state.settings.session_functions else ""
    return {"instructions": state.settings.instructions, "notes": memory_text(state), "session": written}


def _compare_messages(before: Sequence[Message], now: Sequence[Message]) -> tuple[str, Iterator[str]]:
    at = find_difference_index(before, now)
    if at >= len(before) or at >= len(now):
        side, gone = (before, "is gone") if at < len(before) else (now, "is new")
        message = side[at]
        text = describe_part(message.parts[0]) if message.parts else ""
        return f"message {message.id or at + 1}", iter([f"the {message.role} message {gone}: {text}"])
    one, other = before[at], now[at]
    part = find_difference_index(one.parts, other.parts)
    place = f"message {other.id or at + 1}, part {part + 1}"
    if part < len(one.parts) and part < len(other.parts):
        a, b = one.parts[part], other.parts[part]
        if isinstance(a, Text) and isinstance(b, Text) and a.text != b.text:
            return place, describe_text_change(a.text, b.text)
    return place, _compare_values(one, other, "message")


def describe_part(part: Part) -> str:
    """The beginning of a part's text, or its kind."""
    text = part.text if isinstance(part, Text | ToolResult) else type(part).__name__
    return text if len(text) <= 80 else text[:79] + "…"


def describe_text_change(before: str, now: str) -> Iterator[str]:
    """The changed words of a text, each with the words before it."""
    one, other = WORD.findall(before), WORD.findall(now)
    start = find_difference_index(one, other)
    end = find_difference_index(one[start:][::-1], other[start:][::-1])
    a, b = one[start : len(one) - end], other[start : len(other) - end]
    if len(a) + len(b) > WORDS_MAX:
        yield from list_differences("".join(a), "".join(b), at=f"after word {start}")
        return
    for kind, a_from, a_to, b_from, b_to in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if kind != "equal":
            lead = "".join(one[max(0, start + a_from - CONTEXT_WORDS) : start + a_from]).strip()
            gone, new = "".join(a[a_from:a_to]).strip(), "".join(b[b_from:b_to]).strip()
            where = f"after {lead!r}" if lead else "at the beginning"
            yield f"{where}: {_quote(gone)} became {_quote(new)}"


def _quote(text: str) -> str:
    shown = text if len(text) <= 120 else text[:119] + "…"
    return repr(shown) if shown else "nothing"
