"""Reference decoder for Chat Completions replies; see `reference_decoder.py`.

The first choice is the reply. Chunks of a stream are added up: text to text, and fragments of a call to the
call with their index, or to the last one. Reasoning appears in up to three places, which repeat one another.
Counts have many names; a total that only fits with cached or reasoning tokens added shows that this server
counts them separately.
"""

from collections.abc import Sequence
from typing import Any

from .reference_decoder import (
    WHOLE_BODY,
    NamedDocument,
    ReferenceReply,
    arguments_text,
    as_objects,
    as_text,
    explain_uneven_total,
    first_nonzero,
    get_path,
    join_pieces,
    read_count,
)

STOPS = {
    "stop": "done",
    "eos": "done",
    "end_turn": "done",
    "stop_sequence": "done",
    "tool_calls": "tools",
    "tool_call": "tools",
    "tool_use": "tools",
    "function_call": "tools",
    "length": "length",
    "max_tokens": "length",
    "content_filter": "filtered",
    "safety": "filtered",
    "sensitive": "filtered",
    "refusal": "refused",
    "model_length": "context",
    "model_context_window_exceeded": "context",
}
_ERROR_STOPS = ("error", "network_error", "insufficient_system_resource", "abort")
"""Stop reasons of a server that aborted: there is no reply."""
_CACHE_READ_PATHS = (
    ("prompt_tokens_details", "cached_tokens"),
    ("prompt_cache_hit_tokens",),
    ("cache_read_input_tokens",),
    ("prompt_tokens_details", "cache_read_input_tokens"),
    ("cached_tokens",),
    ("num_cached_tokens",),
)
_CACHE_WRITE_PATHS = (
    ("prompt_tokens_details", "cache_write_tokens"),
    ("cache_creation_input_tokens",),
    ("prompt_tokens_details", "cache_creation_input_tokens"),
)
_REASONING_PATHS = (("completion_tokens_details", "reasoning_tokens"), ("reasoning_tokens",))
_RECOUNT_FACTOR = 1.5
"""Reasoning that exceeds the whole answer by less than this factor is the same tokens, counted twice."""
_REASONING_FIELDS = ("reasoning_content", "reasoning")


def read_openai_chat(documents: Sequence[NamedDocument]) -> ReferenceReply | None:
    message: dict[str, Any] = {}
    reason = ""
    usage: Any = None
    place: int | None = None
    for _, event in documents:
        if get_path(event, "error"):
            return None
        usage = get_path(event, "usage") or get_path(event, "x_groq", "usage") or usage
        for choice in as_objects(get_path(event, "choices")):
            place = read_count(choice, "index") if place is None else place
            if read_count(choice, "index") != place:
                continue
            if choice.get("error"):
                return None
            whole = choice.get("message")
            if isinstance(whole, dict) and (
                documents[0][0] == WHOLE_BODY or (not message and not choice.get("delta"))
            ):
                message = whole
            elif isinstance(choice.get("delta"), dict):
                _add_delta(message, choice["delta"])
            reason = as_text(choice.get("finish_reason")) or reason
    if place is None or reason.lower() in _ERROR_STOPS:
        return None
    calls = _message_calls(message, cut=STOPS.get(reason.lower()) == "length")
    return ReferenceReply(
        text=_message_text(message),
        reasoning=_message_reasoning(message),
        calls=calls,
        counts=_read_usage(usage) if isinstance(usage, dict) and usage else {},
        stop=_stop_class(reason, message, called=bool(calls)),
        exceptions=_usage_exceptions(usage),
    )


def _add_delta(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name in ("content", "refusal", *_REASONING_FIELDS):
        piece, before = delta.get(name), message.get(name)
        if isinstance(piece, list) or isinstance(before, list):
            message[name] = [*_content_pieces(before), *_content_pieces(piece)]
        elif isinstance(piece, str):
            message[name] = as_text(before) + piece
    message["reasoning_details"] = [
        *message.get("reasoning_details", []), *as_objects(delta.get("reasoning_details")),
    ]  # fmt: skip
    message["thinking_blocks"] = [
        *message.get("thinking_blocks", []),
        *as_objects(delta.get("thinking_blocks")),
    ]
    for name in ("audio", "function_call"):
        if isinstance(piece := delta.get(name), dict):
            held = message.setdefault(name, {})
            for inner, value in piece.items():
                held[inner] = held.get(inner, "") + value if isinstance(value, str) else value
    calls = message.setdefault("tool_calls", [])
    for piece in as_objects(delta.get("tool_calls")):
        _add_call(calls, piece)


def _add_call(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    number_, known = piece.get("index"), as_text(piece.get("id"))
    name = as_text(get_path(piece, "function", "name"))
    call = next((call for call in calls if number_ is not None and call["index"] == number_), None)
    if number_ is None and calls and not known:
        call = calls[-1]
    if call is None or (name and known and call["id"] and known != call["id"]):
        call = {"index": number_, "id": known, "function": {"name": "", "arguments": ""}}
        calls.insert(0, call)
        calls.append(calls.pop(0))
    function = call["function"]
    function["name"] = function["name"] or name
    arguments = get_path(piece, "function", "arguments")
    function["arguments"] += (
        arguments if isinstance(arguments, str) else arguments_text(arguments) if arguments else ""
    )


def _content_pieces(content: object) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else as_objects(content)


def _message_text(message: dict[str, Any]) -> str:
    documents = [
        as_text(piece.get("text"))
        for piece in _content_pieces(message.get("content"))
        if piece.get("type") == "text"
    ]
    return join_pieces(
        [*documents, as_text(message.get("refusal")), as_text(get_path(message, "audio", "transcript"))]
    )


def _message_reasoning(message: dict[str, Any]) -> str:
    details = as_objects(message.get("reasoning_details"))
    blocks = [as_text(each.get("thinking")) for each in as_objects(message.get("thinking_blocks"))]
    told = [as_text(each.get("text")) + as_text(each.get("summary")) for each in details]
    detailed = "".join([join_pieces(told), *blocks])
    plain = dict.fromkeys(as_text(message.get(name)) for name in _REASONING_FIELDS)
    thought = [piece for piece in _content_pieces(message.get("content")) if piece.get("type") == "thinking"]
    inner = [
        as_text(each.get("text")) for piece in thought for each in _content_pieces(piece.get("thinking"))
    ]
    return join_pieces([*(text for text in plain if text != detailed), detailed, *inner])


def _message_calls(message: dict[str, Any], *, cut: bool) -> tuple[tuple[str, str], ...]:
    asked = [_call_body(call) for call in as_objects(message.get("tool_calls"))]
    if isinstance(message.get("function_call"), dict):
        asked.append(message["function_call"])
    asked = [each for each in asked if as_text(each.get("name"))]
    return tuple(
        (
            as_text(each.get("name")),
            ""
            if cut and each is asked[-1] and not each.get("arguments")
            else arguments_text(each.get("arguments")),
        )
        for each in asked
    )


def _call_body(call: dict[str, Any]) -> dict[str, Any]:
    custom = call.get("custom")
    if isinstance(custom, dict) and custom.get("name"):
        return {"name": custom.get("name"), "arguments": {"input": as_text(custom.get("input"))}}
    function = call.get("function")
    return function if isinstance(function, dict) else {}


def _stop_class(reason: str, message: dict[str, Any], *, called: bool) -> str:
    stop = STOPS.get(reason.lower(), "other")
    if as_text(message.get("refusal")):
        return "refused"
    return "tools" if called and stop in ("done", "other") else stop


def _read_usage(usage: dict[str, Any]) -> dict[str, int]:
    prompt, output = read_count(usage, "prompt_tokens"), read_count(usage, "completion_tokens")
    cached, cache_written, reasoned = (
        first_nonzero(*(read_count(usage, *path) for path in paths))
        for paths in (_CACHE_READ_PATHS, _CACHE_WRITE_PATHS, _REASONING_PATHS)
    )
    total = read_count(usage, "total_tokens")
    excess = total - prompt - output
    if excess > 0:
        # The total exceeds its parts. Cached or audio tokens belong to the prompt, anything else to
        # reasoning.
        is_prompt_audio = (
            "prompt_audio_seconds" in usage
            or read_count(usage, "prompt_tokens_details", "audio_tokens") == excess
        )
        uncounted = (
            cached + cache_written
            if excess in (cached + cache_written, cached + cache_written + reasoned)
            else 0
        )
        prompt += excess if is_prompt_audio else uncounted
        output += 0 if is_prompt_audio else excess - uncounted
    elif reasoned > output and (not total or reasoned > _RECOUNT_FACTOR * output):
        output += reasoned
    counts = {"prompt": prompt, "cache_read": cached, "cache_write": cache_written, "output": output}
    counts["reasoning"] = min(reasoned, output)
    return counts | ({"total": total} if total else {})


def _usage_exceptions(usage: object) -> dict[str, str]:
    if not isinstance(usage, dict):
        return {}
    counts = _read_usage(usage)
    prompt, output = counts["prompt"], counts["output"]
    exceptions = explain_uneven_total(counts.get("total", 0), prompt, output)
    if exceptions and output > read_count(usage, "completion_tokens"):
        exceptions["total"] = (
            "the total leaves the reasoning out: there is more of it than of the whole answer"
        )
    if counts["cache_read"] + counts["cache_write"] > prompt:
        why = f"the cached count exceeds the whole prompt of {prompt}"
        exceptions |= {"cache_read": why, "cache_write": why}
    return exceptions
