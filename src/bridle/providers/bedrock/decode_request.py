"""Decodes requests of Bedrock Converse: the reverse of `encode`, for simulation and import.

Decoding is tolerant: content that Bridle's values do not model is kept as native members, opaque parts or
extras, so that the request can be encoded again with the same meaning. Only a body that is not a request at
all is refused, with the failure the provider would give.

A wire message with results and text becomes a tool message and a user message; encoding joins them again.
Messages are numbered m1, m2, … and the calls of message n are cn_0, cn_1, …; results find their calls by the
provider's id, repeated ids in order. A cache point at the end of a list or after a system text becomes a
breakpoint; one inside a message is a part of its own.
"""

import re
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import unquote

from bridle.ports.codec import HttpRequest
from bridle.providers.schema.tool_schema import is_sent_unchanged
from bridle.providers.wire.json import drop_nulls, dumps, loads
from bridle.providers.wire.request_reader import MessageReader, rejection_maker
from bridle.values.message import Opaque, Part, Role, Text
from bridle.values.model import Abilities, Endpoint, Model
from bridle.values.request import Breakpoint, Extra, OutputSpec, Request, Sampling, Thinking, ToolChoice

from .dialect import DEFAULT_DIALECT, FAMILY
from .parts import CACHE_POINT, Block, decode_part
from .tools import OUTPUT_DIALECT, cache_point_ttl, decode_tool_choice, decode_tools

ABILITIES = Abilities(system_messages=True, cache_marks=4)
"""A request reveals only the name of its model; everything it asks for is assumed to be supported."""

_PATH = re.compile(r".*/model/(?P<model>.+)/converse(?P<streams>-stream)?")
_rejection = rejection_maker({"invalid": "ValidationException", "not_found": "UnknownOperationException"})
_ROLES = ("user", "assistant", "system")
_NO_CACHE_POINT_AFTER = ("document", "video")
_KNOWN_FIELDS = frozenset({"modelId", "messages", "system"})
"""Fields that `Request` models completely; the unread rest of others becomes an extra."""


def decode_request(request: HttpRequest) -> Request:
    model_id, streams = parse_path(request.path)
    try:
        body = loads(request.body)
    except ValueError as error:
        raise _rejection("invalid", f"The request body is not valid JSON: {error}") from None
    if not isinstance(body, dict):
        raise _rejection("invalid", "The request body is not a JSON object")
    body = drop_nulls(body)
    line = _BedrockMessageReader(FAMILY, model_id)
    for index, message in enumerate(_list_or_empty(body, "messages")):
        line.add_message(index, message)
    marks: list[Breakpoint] = []
    rest = _UnreadFields({name: value for name, value in body.items() if name not in _KNOWN_FIELDS})
    config = {"tools": rest.take("toolConfig.tools"), "toolChoice": rest.take("toolConfig.toolChoice")}
    tools = decode_tools(config, marks)
    choice = decode_tool_choice(config["toolChoice"])
    if choice is None:
        rest.put_back("toolConfig", {"toolChoice": config["toolChoice"]})
    system = _decode_system(_list_or_empty(body, "system"), marks)
    return Request(
        model=Model(id=model_id, endpoint=Endpoint(name=FAMILY, family=FAMILY), abilities=ABILITIES),
        system=system,
        tools=tools,
        messages=tuple(line.messages),
        tool_choice=choice or ToolChoice(),
        max_tokens=rest.take("inferenceConfig.maxTokens", int),
        output=_decode_output(rest),
        thinking=_decode_thinking(rest),
        sampling=_decode_sampling(rest),
        breakpoints=(*marks, *line.marks),
        stream=streams,
        extras=tuple(Extra(name=name, json=dumps(value).decode()) for name, value in rest.remaining()),
    )


def parse_path(path: str) -> tuple[str, bool]:
    """Return the model named in a path, and True if the path requests a stream."""
    found = _PATH.fullmatch(path.partition("?")[0].rstrip("/"))
    if found is None:
        raise _rejection("not_found", f"No conversation is held at {path}")
    return unquote(found["model"]), bool(found["streams"])


class _BedrockMessageReader(MessageReader):
    def add_message(self, index: int, message: object) -> None:
        if not isinstance(message, dict) or message.get("role") not in _ROLES:
            raise _rejection(
                "invalid", f"Value at 'messages.{index}.role' must be one of {', '.join(_ROLES)}"
            )
        blocks = message.get("content") or []
        if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
            raise _rejection("invalid", f"Value at 'messages.{index}.content' must be a list of objects")
        bare, ttl = _split_cache_point(blocks)
        role: Role = message["role"]
        answers, words = _split_results(bare) if role == "user" else ([], bare)
        if answers:
            self._append_blocks("tool", answers)
        if words or not answers:
            self._append_blocks(role, words)
        if ttl is not None:
            self.marks.append(
                Breakpoint(position="message", message=len(self.messages) - 1, ttl=cast("Any", ttl))
            )

    def _append_blocks(self, role: Role, blocks: Sequence[Block]) -> None:
        self.append_message(
            role, self.link_calls(_decode_block(role, blocks, at) for at in range(len(blocks)))
        )


def _decode_block(role: Role, blocks: Sequence[Block], at: int) -> Part:
    if _is_cache_point_spacer(blocks[max(at - 1, 0) : at + 2]):
        return Opaque(kind="text", native=dumps(blocks[at]).decode())
    return decode_part(blocks[at], of_model=role == "assistant")


class _UnreadFields:
    """The fields of a body that have not been read yet."""

    def __init__(self, fields: Block) -> None:
        self._fields = fields

    def take(self, place: str, *types: type) -> Any:
        """Remove and return the value at a location; None if there is none, or none of these types."""
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
                del holder[name]  # it had no other member
        return value

    def put_back(self, name: str, value: Block) -> None:
        self._fields[name] = {**self._fields.get(name, {}), **value}

    def remaining(self) -> list[tuple[str, Any]]:
        """Return the fields that still hold something: an empty object has no meaning here."""
        return [(name, value) for name, value in self._fields.items() if value != {}]


def _split_cache_point(blocks: list[Block]) -> tuple[list[Block], str | None]:
    """Remove the cache point at the end; return the blocks and its TTL."""
    if len(blocks) < 2 or next(iter(blocks[-2]), "") in (*_NO_CACHE_POINT_AFTER, CACHE_POINT):
        return blocks, None
    ttl = cache_point_ttl(blocks[-1])
    return (blocks if ttl is None else blocks[:-1]), ttl


def _is_cache_point_spacer(around: Sequence[Block]) -> bool:
    """Return True if the middle block is a blank text that separates a document from a cache point."""
    kinds = [next(iter(block), "") for block in around]
    spaced = kinds in ([kind, "text", CACHE_POINT] for kind in _NO_CACHE_POINT_AFTER)
    return spaced and not str(around[1]["text"]).strip()


def _split_results(blocks: list[Block]) -> tuple[list[Block], list[Block]]:
    """Split blocks into results, with the cache points among them, and everything else."""
    last = max((at for at, block in enumerate(blocks) if "toolResult" in block), default=-1)
    if all("toolResult" in block or CACHE_POINT in block for block in blocks[: last + 1]):
        return blocks[: last + 1], blocks[last + 1 :]
    answers = [block for block in blocks if "toolResult" in block]
    return answers, [block for block in blocks if "toolResult" not in block]


def _decode_system(blocks: list[Any], marks: list[Breakpoint]) -> tuple[Text, ...]:
    if not all(isinstance(block, dict) for block in blocks):
        raise _rejection("invalid", "Value at 'system' must be a list of objects")
    bare: list[Block] = []
    for at, block in enumerate(blocks):
        markable = bool(at) and next(iter(blocks[at - 1]), "") not in (*_NO_CACHE_POINT_AFTER, CACHE_POINT)
        ttl = cache_point_ttl(block) if markable else None
        if ttl is None:
            bare.append(block)
            continue
        place = -1 if at == len(blocks) - 1 else len(bare) - 1
        marks.append(Breakpoint(position="system", block=place, ttl=cast("Any", ttl)))
    parts = (decode_part(block, of_model=False) for block in bare)
    # The system prompt consists of texts, so a block without text becomes the `native` of an empty one.
    return tuple(
        part if isinstance(part, Text) else Text(text="", native=dumps(block).decode())
        for part, block in zip(parts, bare, strict=True)
    )


def _decode_thinking(rest: _UnreadFields) -> Thinking | None:
    thinking = Thinking(
        mode=rest.take(DEFAULT_DIALECT.mode_at, str) or "",
        budget_tokens=rest.take(DEFAULT_DIALECT.budget_at, int),
        display=rest.take(DEFAULT_DIALECT.display_at, str) or "",
        effort=rest.take(DEFAULT_DIALECT.effort_at, str) or "",
    )
    return thinking if thinking != Thinking() else None


def _decode_output(rest: _UnreadFields) -> OutputSpec | None:
    wanted = rest.take("outputConfig.textFormat")
    match wanted:
        case {"type": "json_schema", "structure": {"jsonSchema": {"schema": str(schema), **named}}}:
            name, description = named.pop("name", None) or "", named.pop("description", None) or ""
            plain = not named and len(wanted) == 2 and len(wanted["structure"]) == 1
            plain = plain and _is_json_object(schema) and is_sent_unchanged(schema, OUTPUT_DIALECT)
            if plain and isinstance(name, str) and isinstance(description, str):
                return OutputSpec(name=name, parameters=schema, description=description)
    if wanted is not None:
        rest.put_back("outputConfig", {"textFormat": wanted})
    return None


def _is_json_object(schema: str) -> bool:
    try:
        return isinstance(loads(schema), dict)
    except ValueError:
        return False


def _decode_sampling(rest: _UnreadFields) -> Sampling:
    stops = rest.take("inferenceConfig.stopSequences")
    temperature = rest.take("inferenceConfig.temperature", int, float)
    top_p = rest.take("inferenceConfig.topP", int, float)
    return Sampling(
        temperature=None if temperature is None else float(temperature),
        top_p=None if top_p is None else float(top_p),
        stop_sequences=tuple(map(str, stops)) if isinstance(stops, list) else (),
    )


def _list_or_empty(body: Block, name: str) -> list[Any]:
    value = body.get(name, [])
    if not isinstance(value, list):
        raise _rejection("invalid", f"Value at '{name}' must be a list")
    return value
