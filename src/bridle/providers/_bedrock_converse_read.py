"""Requests as Bedrock Converse understands them: the other end of `encode`, for simulating and importing.

Reading is tolerant: what our values have no place for is kept as native members, opaque parts or extras,
so that the request can be written again and still mean the same.  Only what is not a request at all is
refused, with the failure the provider would give.

A wire message that holds results and words becomes a tool message and a user message; writing joins
them again.  Messages are numbered m1, m2, … and the calls of message n are cn_0, cn_1, …; results find
their calls by the provider's id, repeated ids in order.  A cache point at the end of something becomes
a mark, and so does one behind a text of the system; one in the middle of a message is a part of its own.
"""

import re
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import unquote

from msgspec.structs import replace

from ..ports.codec import HttpRequest
from ..values.errors import Failure, ProviderError
from ..values.message import Message, Role
from ..values.model import Abilities, Endpoint, Model, Origin
from ..values.parts import Opaque, Part, Text, ToolCall, ToolResult
from ..values.request import Extra, Mark, OutputSpec, Request, Sampling, Thinking, ToolChoice
from ._bedrock_converse_blocks import CACHE_POINT, Block, part_of
from ._bedrock_converse_dialect import DIALECT, FAMILY
from ._bedrock_converse_tools import ANSWER_SCHEMA, choice_in, tools_in, ttl_of
from ._json import dumps, loads
from ._tool_schema import goes_out_as_it_is

ABILITIES = Abilities(system_messages=True, cache_marks=4)
"""A request tells nothing of its model but the name; what it asks for is taken to be allowed."""

_PATH = re.compile(r".*/model/(?P<model>.+)/converse(?P<streams>-stream)?")
_ROLES = ("user", "assistant", "system")
_UNMARKED = ("document", "video")
_TAKEN = frozenset({"modelId", "messages", "system"})
"""Fields our request has a place for, whole; of others what is left becomes an extra."""


def read(request: HttpRequest) -> Request:
    model_id, streams = place_of(request.path)
    try:
        body = loads(request.body)
    except ValueError as error:
        raise _refused(f"The request body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise _refused("The request body is no JSON object")
    body = {name: value for name, value in body.items() if value is not None}
    line = _Line(model_id)
    for index, message in enumerate(_list(body, "messages")):
        line.add(index, message)
    marks: list[Mark] = []
    rest = _Rest({name: value for name, value in body.items() if name not in _TAKEN})
    config = {"tools": rest.take("toolConfig.tools"), "toolChoice": rest.take("toolConfig.toolChoice")}
    tools = tools_in(config, marks)
    choice = choice_in(config["toolChoice"])
    if choice is None:
        rest.put_back("toolConfig", {"toolChoice": config["toolChoice"]})
    system = _system(_list(body, "system"), marks)
    return Request(
        model=Model(id=model_id, endpoint=Endpoint(name=FAMILY, family=FAMILY), abilities=ABILITIES),
        system=system,
        tools=tools,
        messages=tuple(line.messages),
        tool_choice=choice or ToolChoice(),
        max_tokens=rest.take("inferenceConfig.maxTokens", int),
        output=_output(rest),
        thinking=_thinking(rest),
        sampling=_sampling(rest),
        marks=(*marks, *line.marks),
        stream=streams,
        extras=tuple(Extra(name=name, json=dumps(value).decode()) for name, value in rest.left()),
    )


def place_of(path: str) -> tuple[str, bool]:
    """The model a path names, and whether it asks for a stream."""
    found = _PATH.fullmatch(path.partition("?")[0].rstrip("/"))
    if found is None:
        failure = Failure(
            kind="not_found", message=f"No conversation is held at {path}", status=404,
            code="UnknownOperationException",
        )  # fmt: skip
        raise ProviderError(failure)
    return unquote(found["model"]), bool(found["streams"])


class _Line:
    """The messages read so far, and the calls that wait for a result."""

    def __init__(self, model_id: str) -> None:
        self.messages: list[Message] = []
        self.marks: list[Mark] = []
        self._origin = Origin(family=FAMILY, endpoint=FAMILY, model=model_id)
        self._waiting: dict[str, deque[str]] = defaultdict(deque)
        self._known: dict[str, str] = {}

    def add(self, index: int, message: object) -> None:
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise _refused(f"Value at 'messages.{index}.role' must be one of {', '.join(_ROLES)}")
        blocks = message.get("content") or []
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise _refused(f"Value at 'messages.{index}.content' must be a list of objects")
        bare, ttl = _unmarked(blocks)
        role: Role = message["role"]
        answers, words = _split(bare) if role == "user" else ([], bare)
        if answers:
            self._place("tool", answers)
        if words or not answers:
            self._place(role, words)
        if ttl is not None:
            self.marks.append(Mark(place="message", message=len(self.messages) - 1, ttl=cast("Any", ttl)))

    def _place(self, role: Role, blocks: Sequence[Block]) -> None:
        place, number = len(self.messages), len(self.messages) + 1
        parts: list[Part] = []
        calls = 0
        for at, block in enumerate(blocks):
            part = part_of(block, of_model=role == "assistant")
            if _holds_off(blocks[max(at - 1, 0) : at + 2]):
                part = Opaque(kind="text", native=dumps(block).decode())
            if isinstance(part, ToolCall):
                part = replace(part, id=f"c{number}_{calls}")
                calls += 1
                self._waiting[part.wire_id].append(part.id)
                self._known[part.wire_id] = part.id
            elif isinstance(part, ToolResult):
                waiting = self._waiting[part.call_id]
                answered = waiting.popleft() if waiting else self._known.get(part.call_id, part.call_id)
                part = replace(part, call_id=answered)
            parts.append(part)
        self.messages.append(
            Message(
                role=role,
                parts=tuple(parts),
                id=f"m{number}",
                parent=f"m{place}" if place else "",
                origin=self._origin,
            )
        )


class _Rest:
    """The fields of a body that nobody has taken yet."""

    def __init__(self, fields: Block) -> None:
        self._fields = fields

    def take(self, place: str, *types: type) -> Any:
        """The value at a place, which is gone then; None when there is none, or none of these types."""
        *above, last = place.split(".")
        holders: list[Any] = [self._fields]
        for name in above:
            holders.append(holders[-1].get(name) if isinstance(holders[-1], dict) else None)
        value = holders[-1].get(last) if isinstance(holders[-1], dict) else None
        if value is None or (types and (not isinstance(value, types) or isinstance(value, bool))):
            return None
        del holders[-1][last]
        for holder, name, inner in reversed(list(zip(holders, above, holders[1:], strict=False))):
            if inner == {}:
                del holder[name]  # it held nothing else
        return value

    def put_back(self, name: str, value: Block) -> None:
        self._fields[name] = {**self._fields.get(name, {}), **value}

    def left(self) -> list[tuple[str, Any]]:
        """What holds something still: an object that holds nothing says nothing here."""
        return [(name, value) for name, value in self._fields.items() if value != {}]


def _unmarked(blocks: list[Block]) -> tuple[list[Block], str | None]:
    """The blocks without the cache point at their end, and how long that lasts."""
    if len(blocks) < 2 or next(iter(blocks[-2]), "") in (*_UNMARKED, CACHE_POINT):
        return blocks, None
    ttl = ttl_of(blocks[-1])
    return (blocks if ttl is None else blocks[:-1]), ttl


def _holds_off(around: Sequence[Block]) -> bool:
    """Whether the middle one is blank and only there because no cache point may follow a document."""
    kinds = [next(iter(block), "") for block in around]
    spaced = kinds in ([kind, "text", CACHE_POINT] for kind in _UNMARKED)
    return spaced and not str(around[1]["text"]).strip()


def _split(blocks: list[Block]) -> tuple[list[Block], list[Block]]:
    """Results, with the cache points among them, and everything else."""
    last = max((at for at, block in enumerate(blocks) if "toolResult" in block), default=-1)
    if all("toolResult" in block or CACHE_POINT in block for block in blocks[: last + 1]):
        return blocks[: last + 1], blocks[last + 1 :]
    answers = [block for block in blocks if "toolResult" in block]
    return answers, [block for block in blocks if "toolResult" not in block]


def _system(blocks: list[Any], marks: list[Mark]) -> tuple[Text, ...]:
    if not all(isinstance(block, dict) for block in blocks):
        raise _refused("Value at 'system' must be a list of objects")
    bare: list[Block] = []
    for at, block in enumerate(blocks):
        markable = bool(at) and next(iter(blocks[at - 1]), "") not in (*_UNMARKED, CACHE_POINT)
        ttl = ttl_of(block) if markable else None
        if ttl is None:
            bare.append(block)
            continue
        place = -1 if at == len(blocks) - 1 else len(bare) - 1
        marks.append(Mark(place="system", block=place, ttl=cast("Any", ttl)))
    parts = (part_of(block, of_model=False) for block in bare)
    # Our system is made of texts; what has no words is carried by one that has none either.
    return tuple(
        part if isinstance(part, Text) else Text(text="", native=dumps(block).decode())
        for part, block in zip(parts, bare, strict=True)
    )


def _thinking(rest: _Rest) -> Thinking | None:
    thinking = Thinking(
        mode=rest.take(DIALECT.mode_at, str) or "",
        budget_tokens=rest.take(DIALECT.budget_at, int),
        display=rest.take(DIALECT.display_at, str) or "",
        effort=rest.take(DIALECT.effort_at, str) or "",
    )
    return thinking if thinking != Thinking() else None


def _output(rest: _Rest) -> OutputSpec | None:
    wanted = rest.take("outputConfig.textFormat")
    match wanted:
        case {"type": "json_schema", "structure": {"jsonSchema": {"schema": str(schema), **named}}}:
            name, description = named.pop("name", None) or "", named.pop("description", None) or ""
            plain = not named and len(wanted) == 2 and len(wanted["structure"]) == 1
            plain = plain and _is_object(schema) and goes_out_as_it_is(schema, ANSWER_SCHEMA)
            if plain and isinstance(name, str) and isinstance(description, str):
                return OutputSpec(name=name, parameters=schema, description=description)
    if wanted is not None:
        rest.put_back("outputConfig", {"textFormat": wanted})
    return None


def _is_object(schema: str) -> bool:
    try:
        return isinstance(loads(schema), dict)
    except ValueError:
        return False


def _sampling(rest: _Rest) -> Sampling:
    stops = rest.take("inferenceConfig.stopSequences")
    temperature = rest.take("inferenceConfig.temperature", int, float)
    top_p = rest.take("inferenceConfig.topP", int, float)
    return Sampling(
        temperature=None if temperature is None else float(temperature),
        top_p=None if top_p is None else float(top_p),
        stop_sequences=tuple(map(str, stops)) if isinstance(stops, list) else (),
    )


def _list(body: Block, name: str) -> list[Any]:
    value = body.get(name, [])
    if not isinstance(value, list):
        raise _refused(f"Value at '{name}' must be a list")
    return value


def _refused(message: str) -> ProviderError:
    return ProviderError(Failure(kind="invalid", message=message, status=400, code="ValidationException"))
