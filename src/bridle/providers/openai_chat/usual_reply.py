"""Decodes a complete reply of the usual form with one typed parse, and builds the reply of a stream of that form.

The usual form is one choice with text, reasoning and function calls without unknown members, that stopped or
calls tools, and counts that add up. A body of any other form is refused here and read by the tolerant decoder
(decode.py), which gives the same reply for the usual form.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Raw
from msgspec.structs import replace

from bridle.providers.wire.call_arguments import decode_arguments
from bridle.providers.wire.json import repair_surrogates
from bridle.providers.wire.usage import STANDARD_TERMS, decode_service_terms
from bridle.values.message import Part, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Model, Origin, make_origin

from .calls import EMPTY_ARGUMENTS, EMPTY_OBJECT
from .usage import REPLY_FIELDS, UsualChatCounts, choose_stop, count_usual_usage

Nothing = Annotated[list[Raw], Meta(max_length=0)] | None
UsualReason = Literal["stop", "tool_calls"]
USUAL_REASONS = frozenset(get_args(UsualReason))
_REPLY_FIELDS = frozenset(REPLY_FIELDS)


class UsualFunction(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    name: Annotated[str, Meta(min_length=1)]
    arguments: str


class UsualToolCall(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    id: str
    function: UsualFunction
    type: str = ""
    index: int = 0


class UsualChatMessage(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    content: str | None = None
    tool_calls: list[UsualToolCall] | None = None
    reasoning_content: str | None = None
    role: str | None = None
    refusal: None = None
    annotations: Nothing = None
    audio: None = None
    function_call: None = None


class _UsualChoice(msgspec.Struct, gc=False):
    message: UsualChatMessage
    finish_reason: UsualReason
    error: None = None
    base_resp: None = None


class _UsualCompletion(msgspec.Struct, gc=False):
    """Members that decide about the reply; a value of another type is not usual."""

    choices: tuple[_UsualChoice]
    usage: UsualChatCounts
    id: str = ""
    model: str = ""
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
    choice = completion.choices[0]
    return build_usual_reply(
        choice.message,
        choice.finish_reason,
        completion.usage,
        completion.service_tier,
        make_origin(model, completion.model),
        completion.id,
        tools=tools,
    )


def build_streamed_reply(
    message: UsualChatMessage, reason: str, meta: Mapping[str, Any], model: Model, *, tools: bool
) -> Reply | None:
    """The reply to a stream whose message has the usual form; None if the rest of it has another one."""
    if reason not in USUAL_REASONS or not _REPLY_FIELDS.isdisjoint(meta):
        return None
    id_, answered_by, tier = meta.get("id") or "", meta.get("model") or "", meta.get("service_tier")
    if type(id_) is not str or type(answered_by) is not str or not (tier is None or type(tier) is str):
        return None
    try:
        counts = msgspec.convert(meta.get("usage"), UsualChatCounts)
    except ValueError:
        return None
    origin = make_origin(model, repair_surrogates(answered_by))
    return build_usual_reply(message, reason, counts, tier, origin, repair_surrogates(id_), tools=tools)


def build_usual_reply(
    message: UsualChatMessage,
    reason: str,
    counts: UsualChatCounts,
    tier: str | None,
    origin: Origin,
    reply_id: str,
    *,
    tools: bool,
) -> Reply | None:
    usage = count_usual_usage(counts)
    parts: list[Part] = []
    if message.reasoning_content:
        parts.append(Reasoning(text=message.reasoning_content))
    if message.content:
        parts.append(Text(text=message.content))
    for call in message.tool_calls or ():
        given = call.function.arguments
        arguments = EMPTY_OBJECT if given.strip() in EMPTY_ARGUMENTS else decode_arguments(given)
        parts.append(ToolCall(id="", name=call.function.name, arguments=arguments, wire_id=call.id))
    stop = Stop.TOOLS if message.tool_calls else choose_stop(parts, reason, refused=False, tools=tools)
    if usage is None or stop is Stop.MALFORMED:
        return None
    if tier is not None and tier not in STANDARD_TERMS:
        usage = replace(usage, terms=decode_service_terms(tier))
    return Reply(parts=tuple(parts), stop=stop, origin=origin, usage=usage, id=reply_id, stop_detail=reason)
