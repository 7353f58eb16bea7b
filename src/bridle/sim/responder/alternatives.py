"""Responders other than the rule-based one.

    echo_last_input         repeats its last input
    ScriptedResponder       replies with the steps of a script
    RecordedResponder       replies as a real model did to the same request
    AdversarialResponder    calls unknown tools and passes invalid arguments, by seed

A scripted or recorded responder without an answer raises `MisuseError`, because a test that continues with an
invented answer proves nothing.
"""

import random
import re
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from pathlib import Path

import msgspec

from bridle.core.json_differences import list_differences
from bridle.ports.codec import HttpRequest
from bridle.providers import load_codec
from bridle.transports.recorded import RecordedExchange, read_exchanges
from bridle.values.base import Value
from bridle.values.errors import Failure, MisuseError, ProviderError
from bridle.values.message import Message, Part, Reasoning, Reply, Text, ToolCall, ToolResult
from bridle.values.request import Request, ToolSpec
from bridle.values.text import parse_json

from .conversation import read_conversation
from .decision import ResponderDecision
from .rule_based import compose_reply, play_reply
from .sample_values import fill_schema
from .script import ScriptReply

DIFFERENCES_SHOWN = 6
CALLS_MAX = 3
NONSENSE_ARGUMENTS = (
    '{"',
    "{}",
    "null",
    "[]",
    '"',
    '{"a":1}',
    '{"a":{"b":[[[]]]}}',
    "NaN",
    '{"\\ud800":0}',
    "",
)
"""Invalid arguments of kinds that real models have sent."""


def echo_last_input(request: Request) -> Reply:
    """Reply with the last tool results or the prompt, unchanged."""
    facts = read_conversation(request)
    results = [exchange.text for exchange in facts.last_exchanges]
    return compose_reply(request, [Text(text="\n".join(results) or facts.prompt or "(nothing)")])


class ScriptStep(Value, kw_only=True):
    """One reply of a script, with an optional condition on its request."""

    reply: ScriptReply
    expect: str = ""
    """Regular expression that must match the last user text or tool result."""


class ScriptedResponder:
    """Replies with the steps of a script in order. A retried request gets the same step."""

    def __init__(self, steps: Iterable[ScriptStep]) -> None:
        self._steps = tuple(steps)
        self._taken = 0
        self._point = b""

    def __call__(self, request: Request) -> ResponderDecision:
        point = blake2b(msgspec.json.encode(request.messages), digest_size=16).digest()
        if point != self._point:
            if self._taken == len(self._steps):
                raise MisuseError(
                    f"the script has {len(self._steps)} replies and was asked for one more,"
                    f" after {_last_input(request)!r}"
                )
            step = self._steps[self._taken]
            if step.expect and not re.search(step.expect, _last_input(request)):
                raise MisuseError(
                    f"step {self._taken + 1} of the script expects {step.expect!r},"
                    f" but what was said is {_last_input(request)!r}"
                )
            self._point, self._taken = point, self._taken + 1
        return play_reply(request, self._steps[self._taken - 1].reply)

    def unfinished(self) -> str:
        left = len(self._steps) - self._taken
        return f"{left} of {len(self._steps)} replies of the script were never asked for" if left else ""


class RecordedResponder:
    """Replies from recorded pairs of requests and replies.

    Requests are compared by content, not by bytes, so a recording made with one provider also answers on the
    wire of another.
    """

    def __init__(self, pairs: Sequence[tuple[Request, Reply | Failure]]) -> None:
        self._pairs = list(pairs)
        self._known = [_describe_question(request) for request, _ in self._pairs]
        self._used: set[int] = set()

    def __call__(self, request: Request) -> Reply | Failure:
        question = _describe_question(request)
        matches = [index for index, known in enumerate(self._known) if known == question]
        if not matches:
            raise MisuseError(self._explain_miss(question))
        chosen = next((index for index in matches if index not in self._used), matches[-1])
        self._used.add(chosen)
        answer = self._pairs[chosen][1]
        return msgspec.structs.replace(answer, id="") if isinstance(answer, Reply) else answer

    def unfinished(self) -> str:
        left = len(self._pairs) - len(self._used)
        return f"{left} of {len(self._pairs)} recorded answers were never asked for" if left else ""

    def _explain_miss(self, question: object) -> str:
        if not self._known:
            return "nothing is recorded, so there is no answer"
        found = [list(list_differences(known, question)) for known in self._known]
        nearest = min(range(len(found)), key=lambda index: len(found[index]))
        shown = "; ".join(found[nearest][:DIFFERENCES_SHOWN])
        more = len(found[nearest]) - DIFFERENCES_SHOWN
        rest = f"; and {more} more" if more > 0 else ""
        return f"this was never recorded; nearest is recording {nearest + 1}, where {shown}{rest}"


class AdversarialResponder:
    """Makes every mistake that a model can make with tools, reproducibly for a seed."""

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def __call__(self, request: Request) -> Reply:
        digest = blake2b(msgspec.json.encode(request.messages), digest_size=8).hexdigest()
        rng = random.Random(f"{self._seed} {digest}")
        parts: list[Part] = [Text(text="Let me try this.")] if rng.random() < 0.5 else []
        makers: tuple[Callable[[random.Random, Request], ToolCall], ...] = (
            _call_unknown_tool,
            _call_with_nonsense,
            _call_with_nonsense,
            _call_properly,
        )
        for _ in range(rng.randint(0, CALLS_MAX)):
            parts.append(rng.choice(makers)(rng, request))
        if rng.random() < 0.3:
            parts += [part for part in parts if isinstance(part, ToolCall)][-1:]
        return compose_reply(request, parts or [Text(text=rng.choice(("", " ", "Done.", "I cannot.")))])


def _tools_or_dummy(request: Request) -> tuple[ToolSpec, ...]:
    return request.tools or (ToolSpec(name="nothing"),)


def _call_unknown_tool(rng: random.Random, request: Request) -> ToolCall:
    name = rng.choice(_tools_or_dummy(request)).name
    wrong = rng.choice((name.upper(), f"{name}_", f"functions.{name}", "multi_tool_use.parallel", "x"))
    return ToolCall(id="", name=wrong, arguments="{}")


def _call_with_nonsense(rng: random.Random, request: Request) -> ToolCall:
    return ToolCall(
        id="", name=rng.choice(_tools_or_dummy(request)).name, arguments=rng.choice(NONSENSE_ARGUMENTS)
    )


def _call_properly(rng: random.Random, request: Request) -> ToolCall:
    tool = rng.choice(_tools_or_dummy(request))
    return ToolCall(id="", name=tool.name, arguments=fill_schema(tool.parameters, "", ""))


def _last_input(request: Request) -> str:
    """Return the last user text or tool result."""
    for message in reversed(request.messages):
        if message.role != "assistant":
            return message.text or "\n".join(result.text for result in message.results)
    return ""


def _describe_question(request: Request) -> object:
    """Describe a request for comparison: roles, contents and tool names, without ids or provider data."""
    return {
        "system": "\n".join(text.text for text in request.system),
        "tools": [tool.name for tool in request.tools],
        "messages": [
            {"role": message.role, "parts": [_describe_part(part) for part in parts]}
            for message in _merge_roles(request.messages)
            if (parts := [part for part in message.parts if not isinstance(part, Reasoning)])
        ],
    }


def _merge_roles(messages: Sequence[Message]) -> list[Message]:
    """Merge neighbouring messages of one role, because wires differ in how they group tool results."""
    merged: list[Message] = []
    for message in messages:
        role = "user" if message.role == "tool" else message.role
        if merged and merged[-1].role == role:
            merged[-1] = Message(role=role, parts=(*merged[-1].parts, *message.parts))
        else:
            merged.append(Message(role=role, parts=message.parts))
    return merged


def _describe_part(part: Part) -> object:
    match part:
        case Text():
            return {"text": part.text}
        case ToolCall():
            return {"call": part.name, "arguments": _parse_or_keep(part.arguments)}
        case ToolResult():
            return {"result": part.text}
        case _:
            return {"other": type(part).__name__}


def _parse_or_keep(arguments: str) -> object:
    try:
        return parse_json(arguments or "{}")
    except ValueError:
        return arguments


def load_recorded_responder(path: Path) -> RecordedResponder:
    return RecordedResponder([_decode_exchange(exchanged, path) for exchanged in read_exchanges(path)])


def _decode_exchange(exchanged: RecordedExchange, path: Path) -> tuple[Request, Reply | Failure]:
    if not exchanged.family:
        raise MisuseError(f"a recording in {path} does not say which wire family it is of")
    codec = load_codec(exchanged.family)
    http_request = HttpRequest(
        path=exchanged.path, body=exchanged.body, headers=exchanged.headers, method=exchanged.method
    )
    try:
        request = codec.decode_request(http_request)
    except ProviderError as error:
        raise MisuseError(f"a request in {path} cannot be read: {error}") from None
    answer = exchanged.answer
    decoder = codec.new_decoder(
        request, answer.status, {name.lower(): value for name, value in answer.headers}
    )
    try:
        decoder.feed(answer.body)
        return request, decoder.close()
    except ProviderError as error:
        return request, error.failure
