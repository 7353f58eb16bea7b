"""Stop reason and token usage of a Responses reply.

The status is `completed`, or `incomplete` with a reason; only the items show a call or a refusal.  The content
of an item decides, not its status.  Counts overlap: `input_tokens` includes cache reads and writes,
`output_tokens` includes reasoning.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from msgspec import Meta, Struct, convert
from msgspec.structs import replace

from bridle.providers.wire.input_changes import describe_input_changes
from bridle.providers.wire.json import count_or_zero, loads, object_or_empty, parse_integer, text_or_empty
from bridle.providers.wire.usage import decode_service_terms
from bridle.values.message import Message, Opaque, Part, Reply, Stop, ToolCall
from bridle.values.model import Model, make_origin
from bridle.values.usage import STANDARD_TERMS, Usage

from .content import expand_content
from .hosted import HOSTED_ITEMS, decode_hosted_uses
from .hosted_calls import HOSTED_CALLS
from .parts import CUSTOM_CALL, decode_parts, has_refusal, item_type

Count = Annotated[int, Meta(ge=0)]
STOPS = {
    "max_output_tokens": Stop.LENGTH,
    "content_filter": Stop.FILTERED,
    "max_messages": Stop.PAUSED,
    "steered": Stop.PAUSED,
}
ResponseMembers = TypedDict(  # noqa: UP013 - a list of names
    "ResponseMembers",
    {"id": Any, "object": Any, "model": Any, "status": Any, "error": Any, "incomplete_details": Any, "output": Any,
     "usage": Any, "service_tier": Any, "tool_usage": Any, "prompt_cache_diagnostics": Any,
     "input_transformations": Any},
    total=False,
)  # fmt: skip
"""The members of a response that decide about the reply; the others repeat the request."""
COMPACTED_OBJECT, COMPACTION_DETAIL = "response.compaction", "compaction"
UNFINISHED_STATUSES = {
    "queued": "is still waiting to be made",
    "in_progress": "is still being made",
    "cancelled": "was cancelled",
}
"""States in which a response is not a reply; only background responses have them."""


def build_reply(
    response: Mapping[str, Any], items: Sequence[object], model: Model, messages: Sequence[Message] = ()
) -> Reply:
    """Build a reply to `messages` from the response object; its items may have arrived separately.

    Responses that are not done (`UNFINISHED_STATUSES`) are rejected before. Raises `ValueError` for an item
    without a type: it may have been a call.
    """
    untyped = [item for item in items if isinstance(item, dict) and not item.get("type")]
    if untyped and not all(map(item_type, untyped)):
        raise ValueError("an item of the output has no type")
    details = response.get("incomplete_details")
    reason = text_or_empty(details.get("reason")) if isinstance(details, dict) else ""
    status = text_or_empty(response.get("status")) or ("incomplete" if reason else "completed")
    parts = decode_parts(items, refused=False, surface=True)
    if response.get("object") == COMPACTED_OBJECT:
        parts, stop, detail = tuple(map(_add_message_text, parts)), Stop.PAUSED, COMPACTION_DETAIL
    elif status == "incomplete":
        parts = _disarm_cut_call(parts, items)
        stop, detail = STOPS.get(reason, Stop.OTHER), f"incomplete: {reason}" if reason else status
    elif ToolCall in map(type, parts):
        stop, detail = Stop.TOOLS, status
    elif has_refusal(items):
        parts, stop, detail = decode_parts(items, refused=True, surface=True), Stop.REFUSED, "refusal"
    else:
        stop, detail = Stop.DONE, status
    usage = decode_usage(response.get("usage"))
    for part in parts:
        if type(part) is Opaque and part.kind in HOSTED_ITEMS:
            usage += decode_hosted_uses(response, items, messages)
            break
    # After the sum, which keeps no terms.
    tier = response.get("service_tier")
    if isinstance(tier, str) and tier not in STANDARD_TERMS:
        usage = replace(usage, terms=decode_service_terms(tier))
    return Reply(
        parts=parts,
        stop=stop,
        origin=make_origin(model, text_or_empty(response.get("model"))),
        usage=usage,
        id=text_or_empty(response.get("id")),
        stop_detail=detail,
        cache_miss_reason=_cache_miss_reason(response.get("prompt_cache_diagnostics")),
        input_changes=describe_input_changes(response["input_transformations"])
        if response.get("input_transformations")
        else (),
    )


def _disarm_cut_call(parts: tuple[Part, ...], items: Sequence[object]) -> tuple[Part, ...]:
    """Make a last call unfit to run if its form does not show that it is complete."""
    last, call = items[-1] if items else None, parts[-1] if parts else None
    if not isinstance(last, dict) or not isinstance(call, ToolCall):
        return parts
    if item_type(last) != CUSTOM_CALL and item_type(last) not in HOSTED_CALLS:
        return parts  # complete JSON shows its own end, and a call before the last item is complete
    return (*parts[:-1], replace(call, arguments=call.arguments.removesuffix("}")))


def _cache_miss_reason(told: object) -> str:
    """Return why the prompt was not cached; empty if it was, or if the reason is unknown."""
    miss = isinstance(told, dict) and told.get("type") == "cache_miss"
    return text_or_empty(told.get("reason")) if isinstance(told, dict) and miss else ""


def _add_message_text(part: Part) -> Part:
    """Add the text of a user's message among the items of a compacted conversation, for other families."""
    if not isinstance(part, Opaque) or part.kind != "message":
        return part
    pieces = expand_content(loads(part.native).get("content"), "input_text") or []
    texts = (text_or_empty(piece.get("text")) for piece in pieces if isinstance(piece, dict))
    return replace(part, text="\n".join(filter(None, texts)))


class _UsualInput(Struct, frozen=True, gc=False):
    cached_tokens: Count = 0
    cache_write_tokens: Count = 0
    cache_write_tokens_details: None = None


class _UsualOutput(Struct, frozen=True, gc=False):
    reasoning_tokens: Count = 0


class _UsualResponsesCounts(Struct, gc=False):
    """The counts of an ordinary reply. `decode_usage` reads anything else value by value."""

    input_tokens: Count
    output_tokens: Count
    input_tokens_details: _UsualInput = _UsualInput()
    output_tokens_details: _UsualOutput = _UsualOutput()


def _count_usual_usage(counts: object) -> Usage | None:
    """The usage, if the details are within their totals; None otherwise."""
    try:
        found = convert(counts, _UsualResponsesCounts)
    except ValueError:  # half of a surrogate pair is no ValidationError
        return None
    prompt, output = found.input_tokens, found.output_tokens
    reasoning = found.output_tokens_details.reasoning_tokens
    read, written = found.input_tokens_details.cached_tokens, found.input_tokens_details.cache_write_tokens
    if read + written > prompt or reasoning > output:
        return None
    return Usage(
        input=prompt - read - written,
        cache_read=read,
        cache_write=written,
        output=output,
        reasoning=reasoning,
    )


def decode_usage(counts: object) -> Usage:
    usual = _count_usual_usage(counts)
    if usual is not None:
        return usual
    if not isinstance(counts, dict) or parse_integer(counts.get("input_tokens")) is None:
        return Usage(incomplete=True)
    details = object_or_empty(counts.get("input_tokens_details"))
    made = object_or_empty(counts.get("output_tokens_details"))
    prompt = count_or_zero(counts.get("input_tokens"))
    read = min(count_or_zero(details.get("cached_tokens")), prompt)
    written = min(count_or_zero(details.get("cache_write_tokens")), prompt - read)
    # The longest lifetime has its own price, like one hour on other wires.
    long_lived = count_or_zero(
        object_or_empty(details.get("cache_write_tokens_details")).get("ttl_12h_tokens")
    )
    reasoning = count_or_zero(made.get("reasoning_tokens"))
    return Usage(
        input=prompt - read - written,
        cache_read=read,
        cache_write=written,
        output=max(count_or_zero(counts.get("output_tokens")), reasoning),
        reasoning=reasoning,
        cache_write_1h=min(long_lived, written),
    )
