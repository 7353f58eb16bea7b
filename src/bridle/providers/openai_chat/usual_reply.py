"""Decodes a reply of the usual form with one typed parse of its body, or of what a stream was assembled to.

The usual form is one choice with text, reasoning and function calls without unknown members, that stopped or
calls tools, and counts that add up. A body of any other form is refused here and read by the tolerant decoder
(decode.py), which gives the same reply for the usual form.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw
from msgspec.structs import replace

from bridle.providers.wire.call_arguments import decode_arguments
from bridle.providers.wire.json import repair_surrogates, text_or_empty
from bridle.providers.wire.usage import decode_service_terms
from bridle.values.message import Part, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Model, make_origin
from bridle.values.usage import STANDARD_TERMS

from .calls import EMPTY_ARGUMENTS, EMPTY_OBJECT
from .content import Block
from .usage import UsualChatCounts, choose_stop, count_usual_usage

Nothing = Annotated[list[Raw], Meta(max_length=0)] | None


class _UsualFunction(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1)]
    arguments: str


class _UsualToolCall(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    id: str
    function: _UsualFunction
    type: str = ""
    index: int = 0


class _UsualChatMessage(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    content: str | None = None
    tool_calls: list[_UsualToolCall] | None = None
    reasoning_content: str | None = None
    role: str | None = None
    refusal: None = None
    annotations: Nothing = None
    audio: None = None
    function_call: None = None


class _UsualChoice(msgspec.Struct, gc=False):
    message: _UsualChatMessage
    finish_reason: Literal["stop", "tool_calls"]
    error: None = None
    base_resp: None = None


class _UsualCompletion(msgspec.Struct, gc=False):
    """Members that decide about the reply; a value of another type is not usual."""

    choices: tuple[_UsualChoice]
    usage: UsualChatCounts
    id: str | None = None
    model: str | None = None
    service_tier: str | None = None
    error: None = None
    base_resp: None = None
    citations: Nothing = None
    search_results: Nothing = None
    images: Nothing = None
    related_questions: Nothing = None


_decode_completion = msgspec.json.Decoder(_UsualCompletion).decode


def decode_usual_reply(body: bytes, model: Model, *, tools: bool) -> Reply | None:
    """The reply in a body of the usual form; None for any other body. `tools`: tools were offered."""
    try:
        completion = _decode_completion(body)
    except (ValueError, RecursionError):
        return None
    return _build_reply(completion, model, tools=tools)


def convert_reply(message: Block, reason: str, meta: Block, model: Model, *, tools: bool) -> Reply | None:
    """The reply of a stream, from its assembled message and its other members; None if these are not usual."""
    choice = {"message": message, "finish_reason": reason}
    try:
        completion = msgspec.convert({**meta, "choices": (choice,)}, _UsualCompletion)
    except ValueError:
        return None
    return _build_reply(completion, model, tools=tools)


def _build_reply(completion: _UsualCompletion, model: Model, *, tools: bool) -> Reply | None:
    usage, tier = count_usual_usage(completion.usage), completion.service_tier
    choice = completion.choices[0]
    message, reason = choice.message, choice.finish_reason
    parts: list[Part] = []
    if message.reasoning_content:
        parts.append(Reasoning(text=repair_surrogates(message.reasoning_content)))
    if message.content:
        parts.append(Text(text=repair_surrogates(message.content)))
    for call in message.tool_calls or ():
        given = repair_surrogates(call.function.arguments)
        arguments = EMPTY_OBJECT if given.strip() in EMPTY_ARGUMENTS else decode_arguments(given)
        parts.append(ToolCall(id="", name=call.function.name, arguments=arguments, wire_id=call.id))
    stop = Stop.TOOLS if message.tool_calls else choose_stop(parts, reason, refused=False, tools=tools)
    if usage is None or stop is Stop.MALFORMED:
        return None
    if tier is not None and tier not in STANDARD_TERMS:
        usage = replace(usage, terms=decode_service_terms(tier))
    origin = make_origin(model, text_or_empty(completion.model))
    return Reply(
        parts=tuple(parts),
        stop=stop,
        origin=origin,
        usage=usage,
        id=text_or_empty(completion.id),
        stop_detail=reason,
    )
