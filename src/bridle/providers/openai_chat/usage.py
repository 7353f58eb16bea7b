"""Stop reason and token usage of a Chat Completions reply.

The finish reason is often wrong (`stop` with calls is common), so the content decides first.  Reasons with
which the server aborts a reply are failures and not in this file's table of stops.

Prompt counts include cached tokens and answer counts include reasoning; ours never overlap.  Some servers
omit one of them; the total shows it, and is used if it exceeds the sum of its parts.  The same count has
several names, tried in order.  A reply without counts has unknown usage, not zero.

Uses of hosted tools are counted by the server, or listed in the message.  A use of unknown kind becomes a term of
the price, which makes the cost unknown unless the price has that term.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta, Struct, convert
from msgspec.structs import replace

from bridle.providers.wire.json import count_or_zero, object_or_empty, text_or_empty
from bridle.providers.wire.usage import decode_service_terms
from bridle.values.errors import FailureKind
from bridle.values.message import Part, Reply, Stop, Text, ToolCall
from bridle.values.model import Model, make_origin
from bridle.values.usage import HostedCount, Usage

from .calls import is_nameless_call, list_calls
from .content import Block
from .dialect import ChatDialect
from .parts import decode_parts, is_refusal, keep_members

Count = Annotated[int, Meta(ge=0)]
STOPS = {
    "stop": Stop.DONE,
    "eos": Stop.DONE,
    "end_turn": Stop.DONE,
    "stop_sequence": Stop.DONE,
    "tool_calls": Stop.TOOLS,
    "tool_call": Stop.TOOLS,
    "tool_use": Stop.TOOLS,
    "function_call": Stop.TOOLS,
    "length": Stop.LENGTH,
    "max_tokens": Stop.LENGTH,
    "content_filter": Stop.FILTERED,
    "safety": Stop.FILTERED,
    "sensitive": Stop.FILTERED,
    "refusal": Stop.REFUSED,
    "model_length": Stop.CONTEXT,
    "model_context_window_exceeded": Stop.CONTEXT,
}
FAILURE_STOPS: dict[str, FailureKind] = {
    "error": "server",
    "network_error": "server",
    "insufficient_system_resource": "overloaded",
    "abort": "cut",
}
"""Reasons with which the server aborts a reply that the model has not finished."""
_LEAKED_CALL = re.compile(
    r"\s*(?:<tool_call>|<function=|<function_calls>|<\|?tool_calls?_?(?:begin|section_begin)?\|?>"
    r"|\[TOOL_CALLS\]|<\|python_tag\|>|<\uff5ctool\u2581calls?\u2581begin\uff5c>|<\|channel\|>commentary to=)"
)
"""Calls that a server should have extracted from the text."""
LEAKED_CALL_DETAIL = "a call was written out as text"
_RECOUNT_FACTOR_MAX = 1.5
"""Largest ratio between two counts of the same tokens: 1.3 in recorded traffic."""
EXECUTED_FIELD = "executed_tools"
"""Member of a message that lists what the server ran."""
_EXECUTED_COUNTS: dict[str, HostedCount] = {
    "search": "searches",
    "browser_search": "searches",
    "browser.search": "searches",
    "visit": "pages",
    "browser.open": "pages",
    "browser.find": "pages",
    "python": "containers",
    "code_interpreter": "containers",
}
"""Types and names of tools that servers ran."""
_OTHER_TOOL = "server_tool"
REPLY_FIELDS = ("citations", "search_results", "images", "related_questions")
"""Members of a complete reply that belong to its content."""


def build_reply(
    message: Block, reason: str, meta: Block, model: Model, dialect: ChatDialect, *, tools: bool
) -> Reply:
    """Build the reply. `tools`: tools were offered, so a call written as text is malformed, not an answer.

    Raises `ValueError` for a call that has an id or arguments and no name.
    """
    cut = STOPS.get(reason.lower()) is Stop.LENGTH
    if not cut and any(map(is_nameless_call, list_calls(message))):
        raise ValueError("a call has no name")
    parts = decode_parts(message, dialect, cut=cut)
    parts = keep_members(parts, {name: meta[name] for name in REPLY_FIELDS if meta.get(name)}, "reply")
    refused = is_refusal(message)
    stop, detail = choose_stop(parts, reason, refused=refused, tools=tools), reason
    if refused:
        detail = f"{reason}: {text_or_empty(message.get('refusal'))}"
    elif stop is Stop.MALFORMED:
        detail = f"{reason}: {LEAKED_CALL_DETAIL}"
    elif stop is Stop.FILTERED and (filtered := _filtered_categories(meta.get("content_filter_results"))):
        detail = f"{reason}: {filtered}"
    return Reply(
        parts=tuple(parts),
        stop=stop,
        origin=make_origin(model, text_or_empty(meta.get("model"))),
        usage=decode_total_usage(meta, message.get(EXECUTED_FIELD)),
        id=text_or_empty(meta.get("id")),
        stop_detail=detail,
    )


def decode_total_usage(meta: Block, executed: object = None) -> Usage:
    """Decode the usage of a reply; `executed` lists the tools that the server ran."""
    counts = meta.get("usage")
    usage = decode_usage(counts) if isinstance(counts, dict) and counts else Usage(incomplete=True)
    tools = [each for each in executed if isinstance(each, dict)] if isinstance(executed, list) else ()
    if tools:
        usage = _add_executed_tools(usage, tools)
    tier = meta.get("service_tier")
    if tier is None or not counts:
        return usage
    return replace(usage, terms=tuple(dict.fromkeys((*decode_service_terms(tier), *usage.terms))))


def _add_executed_tools(usage: Usage, tools: Sequence[Block]) -> Usage:
    names = [[text_or_empty(tool.get(member)) for member in ("type", "name")] for tool in tools]
    kinds = [
        next((_EXECUTED_COUNTS[name] for name in pair if name in _EXECUTED_COUNTS), None) for pair in names
    ]
    counts = Counter(kinds)
    unknown = [
        " ".join(pair).strip() or _OTHER_TOOL for pair, kind in zip(names, kinds, strict=True) if not kind
    ]
    return replace(
        usage,
        searches=max(usage.searches, counts["searches"]),
        pages=max(usage.pages, counts["pages"]),
        containers=max(usage.containers, min(counts["containers"], 1)),  # a reply has one
        terms=(*usage.terms, *dict.fromkeys(unknown)),
    )


class _PromptDetails(Struct, gc=False, forbid_unknown_fields=True):
    cached_tokens: Count | None = None
    cache_write_tokens: Count | None = None
    audio_tokens: Count | None = None


class _OutputDetails(Struct, gc=False):
    reasoning_tokens: Count | None = None


class UsualChatCounts(Struct, gc=False, forbid_unknown_fields=True):
    """The counts of an ordinary reply. `decode_usage` reads anything else value by value."""

    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    prompt_tokens_details: _PromptDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    prompt_cache_hit_tokens: Count = 0
    prompt_cache_miss_tokens: Count = 0


def count_usual_usage(counts: UsualChatCounts) -> Usage | None:
    """The usage, if the total has nothing that its parts do not have; None otherwise."""
    prompt, output = counts.prompt_tokens, counts.completion_tokens
    details, told = counts.prompt_tokens_details, counts.completion_tokens_details
    cached = (details.cached_tokens if details is not None else 0) or counts.prompt_cache_hit_tokens
    written = (details.cache_write_tokens if details is not None else 0) or 0
    reasoning = (told.reasoning_tokens if told is not None else 0) or 0
    if counts.total_tokens != prompt + output or cached + written > prompt or reasoning > output:
        return None
    return Usage(
        input=prompt - cached - written,
        cache_read=cached,
        cache_write=written,
        output=output,
        reasoning=reasoning,
    )


def decode_usage(counts: Mapping[str, Any]) -> Usage:
    try:
        usual = count_usual_usage(convert(counts, UsualChatCounts))
    except ValueError:  # half of a surrogate pair is no ValidationError
        usual = None
    if usual is not None:
        return usual
    prompt, output = (
        count_or_zero(counts.get("prompt_tokens")),
        count_or_zero(counts.get("completion_tokens")),
    )
    details, told = (
        object_or_empty(counts.get("prompt_tokens_details")),
        object_or_empty(counts.get("completion_tokens_details")),
    )
    cached = _first_count(
        (details, "cached_tokens"),
        (counts, "prompt_cache_hit_tokens"),
        (counts, "cache_read_input_tokens"),
        (details, "cache_read_input_tokens"),
        (counts, "cached_tokens"),
        (counts, "num_cached_tokens"),
    )
    written = _first_count(
        (details, "cache_write_tokens"),
        (counts, "cache_creation_input_tokens"),
        (details, "cache_creation_input_tokens"),
    )
    written_1h = 0
    if written:
        split = object_or_empty(counts.get("cache_creation"))
        written_1h = count_or_zero(split.get("ephemeral_1h_input_tokens"))
    reasoning = count_or_zero(told.get("reasoning_tokens")) or count_or_zero(counts.get("reasoning_tokens"))
    total = count_or_zero(counts.get("total_tokens"))
    if (cached or written) and total == prompt + cached + written + output:
        prompt += cached + written
    if _is_reasoning_separate(reasoning, output, total - prompt):
        output += reasoning
    if total > prompt + output:
        # Some servers count audio input in the total only; any other difference is hidden reasoning.
        heard = (
            "prompt_audio_seconds" in counts
            or count_or_zero(details.get("audio_tokens")) == total - prompt - output
        )
        prompt, output = (total - output, output) if heard else (prompt, total - prompt)
    # Some servers count cached tokens beyond the prompt that was sent.
    cached = min(cached, prompt)
    written = min(written, prompt - cached)
    hosted = [object_or_empty(counts.get(name)) for name in ("server_tool_use_details", "server_tool_use")]
    searches, executed = (
        max(count_or_zero(each.get(name)) for each in hosted)
        for name in ("web_search_requests", "tool_calls_executed")
    )
    return Usage(
        input=prompt - cached - written,
        cache_read=cached,
        cache_write=written,
        output=output,
        reasoning=min(reasoning, output),
        cache_write_1h=min(written_1h, written),
        searches=searches,
        # Searches are among the executed calls, except those of the model's vendor.
        terms=(_OTHER_TOOL,) if executed > searches else (),
    )


def _first_count(*places: tuple[Mapping[str, Any], str]) -> int:
    """The first of these members that counts something; 0 if there is none."""
    for counts, name in places:
        if name in counts and (found := count_or_zero(counts[name])):
            return found
    return 0


def choose_stop(parts: Sequence[Part], reason: str, *, refused: bool, tools: bool) -> Stop:
    stop = STOPS.get(reason.lower(), Stop.OTHER)
    if refused:
        return Stop.REFUSED
    if any(isinstance(part, ToolCall) for part in parts):
        return Stop.TOOLS if stop in (Stop.DONE, Stop.OTHER) else stop
    if tools and stop in (Stop.DONE, Stop.TOOLS, Stop.OTHER):
        text = "".join(part.text for part in parts if isinstance(part, Text))
        return Stop.MALFORMED if _LEAKED_CALL.match(text) else stop
    return stop


def _is_reasoning_separate(reasoning: int, output: int, answered: int) -> bool:
    """Return True if reasoning is counted in addition to the answer, not within it as in the protocol.

    `answered` is the total minus the prompt. Reasoning that slightly exceeds the answer is the same tokens
    counted differently; a much larger count can only be separate.
    """
    if answered == output:
        return reasoning > output * _RECOUNT_FACTOR_MAX
    return bool(reasoning) and (answered == output + reasoning or reasoning > output)


def _filtered_categories(results: object) -> str:
    if not isinstance(results, dict):
        return ""
    return ", ".join(
        text_or_empty(name)
        for name, found in results.items()
        if isinstance(found, dict) and found.get("filtered")
    )
