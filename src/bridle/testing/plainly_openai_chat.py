"""What a reply of Chat Completions says, read plainly: see `plainly.py`.

The first choice is the reply.  Pieces of a stream are added up: words to words, and pieces of a call to
the call with their number, or to the last one.  Reasoning stands in up to three places, which repeat one
another.  Counts have many names; a total that only fits when cached or reasoned tokens are added shows
that this server counts them apart.
"""

from collections.abc import Sequence
from typing import Any

from .plainly import WHOLE, Said, Told, first, inside, joined, listed, number, uneven, words, written

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
_GAVE_UP = ("error", "network_error", "insufficient_system_resource", "abort")
"""What a server says that broke off: then there is no reply."""
_CACHED = (
    ("prompt_tokens_details", "cached_tokens"),
    ("prompt_cache_hit_tokens",),
    ("cache_read_input_tokens",),
    ("prompt_tokens_details", "cache_read_input_tokens"),
    ("cached_tokens",),
    ("num_cached_tokens",),
)
_WRITTEN = (
    ("prompt_tokens_details", "cache_write_tokens"),
    ("cache_creation_input_tokens",),
    ("prompt_tokens_details", "cache_creation_input_tokens"),
)
_REASONED = (("completion_tokens_details", "reasoning_tokens"), ("reasoning_tokens",))
_RECOUNTED = 1.5
"""Reasoning beyond the whole answer by less than this is the same tokens, counted by somebody else."""
_FIELDS = ("reasoning_content", "reasoning")


def told(said: Sequence[Said]) -> Told | None:
    message: dict[str, Any] = {}
    reason = ""
    usage: Any = None
    place: int | None = None
    for _, event in said:
        if inside(event, "error"):
            return None
        usage = inside(event, "usage") or inside(event, "x_groq", "usage") or usage
        for choice in listed(inside(event, "choices")):
            place = number(choice, "index") if place is None else place
            if number(choice, "index") != place:
                continue
            if choice.get("error"):
                return None
            whole = choice.get("message")
            if isinstance(whole, dict) and (said[0][0] == WHOLE or (not message and not choice.get("delta"))):
                message = whole
            elif isinstance(choice.get("delta"), dict):
                _add(message, choice["delta"])
            reason = words(choice.get("finish_reason")) or reason
    if place is None or reason.lower() in _GAVE_UP:
        return None
    calls = _calls(message, cut=STOPS.get(reason.lower()) == "length")
    return Told(
        text=_text(message),
        reasoning=_reasoning(message),
        calls=calls,
        counts=_counts(usage) if isinstance(usage, dict) and usage else {},
        stop=_stop(reason, message, called=bool(calls)),
        excused=_excused(usage),
    )


def _add(message: dict[str, Any], delta: dict[str, Any]) -> None:
    for name in ("content", "refusal", *_FIELDS):
        piece, before = delta.get(name), message.get(name)
        if isinstance(piece, list) or isinstance(before, list):
            message[name] = [*_pieces(before), *_pieces(piece)]
        elif isinstance(piece, str):
            message[name] = words(before) + piece
    message["reasoning_details"] = [
        *message.get("reasoning_details", []), *listed(delta.get("reasoning_details")),
    ]  # fmt: skip
    message["thinking_blocks"] = [*message.get("thinking_blocks", []), *listed(delta.get("thinking_blocks"))]
    for name in ("audio", "function_call"):
        if isinstance(piece := delta.get(name), dict):
            held = message.setdefault(name, {})
            for inner, value in piece.items():
                held[inner] = held.get(inner, "") + value if isinstance(value, str) else value
    calls = message.setdefault("tool_calls", [])
    for piece in listed(delta.get("tool_calls")):
        _add_call(calls, piece)


def _add_call(calls: list[dict[str, Any]], piece: dict[str, Any]) -> None:
    number_, known = piece.get("index"), words(piece.get("id"))
    name = words(inside(piece, "function", "name"))
    call = next((call for call in calls if number_ is not None and call["index"] == number_), None)
    if number_ is None and calls and not known:
        call = calls[-1]
    if call is None or (name and known and call["id"] and known != call["id"]):
        call = {"index": number_, "id": known, "function": {"name": "", "arguments": ""}}
        calls.insert(0, call)
        calls.append(calls.pop(0))
    function = call["function"]
    function["name"] = function["name"] or name
    arguments = inside(piece, "function", "arguments")
    function["arguments"] += (
        arguments if isinstance(arguments, str) else written(arguments) if arguments else ""
    )


def _pieces(content: object) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else listed(content)


def _text(message: dict[str, Any]) -> str:
    said = [
        words(piece.get("text")) for piece in _pieces(message.get("content")) if piece.get("type") == "text"
    ]
    return joined([*said, words(message.get("refusal")), words(inside(message, "audio", "transcript"))])


def _reasoning(message: dict[str, Any]) -> str:
    details = listed(message.get("reasoning_details"))
    blocks = [words(each.get("thinking")) for each in listed(message.get("thinking_blocks"))]
    told = [words(each.get("text")) + words(each.get("summary")) for each in details]
    detailed = "".join([joined(told), *blocks])
    plain = dict.fromkeys(words(message.get(name)) for name in _FIELDS)
    thought = [piece for piece in _pieces(message.get("content")) if piece.get("type") == "thinking"]
    inner = [words(each.get("text")) for piece in thought for each in _pieces(piece.get("thinking"))]
    return joined([*(text for text in plain if text != detailed), detailed, *inner])


def _calls(message: dict[str, Any], *, cut: bool) -> tuple[tuple[str, str], ...]:
    asked = [_inner(call) for call in listed(message.get("tool_calls"))]
    if isinstance(message.get("function_call"), dict):
        asked.append(message["function_call"])
    asked = [each for each in asked if words(each.get("name"))]
    return tuple(
        (
            words(each.get("name")),
            "" if cut and each is asked[-1] and not each.get("arguments") else written(each.get("arguments")),
        )
        for each in asked
    )


def _inner(call: dict[str, Any]) -> dict[str, Any]:
    custom = call.get("custom")
    if isinstance(custom, dict) and custom.get("name"):
        return {"name": custom.get("name"), "arguments": {"input": words(custom.get("input"))}}
    function = call.get("function")
    return function if isinstance(function, dict) else {}


def _stop(reason: str, message: dict[str, Any], *, called: bool) -> str:
    stop = STOPS.get(reason.lower(), "other")
    if words(message.get("refusal")):
        return "refused"
    return "tools" if called and stop in ("done", "other") else stop


def _counts(usage: dict[str, Any]) -> dict[str, int]:
    prompt, output = number(usage, "prompt_tokens"), number(usage, "completion_tokens")
    cached, kept, reasoned = (
        first(*(number(usage, *path) for path in paths)) for paths in (_CACHED, _WRITTEN, _REASONED)
    )
    total = number(usage, "total_tokens")
    beside = total - prompt - output
    if beside > 0:
        # The total says more than its parts: cached or heard, which was read; anything else was thought.
        heard = (
            "prompt_audio_seconds" in usage
            or number(usage, "prompt_tokens_details", "audio_tokens") == beside
        )
        uncounted = cached + kept if beside in (cached + kept, cached + kept + reasoned) else 0
        prompt += beside if heard else uncounted
        output += 0 if heard else beside - uncounted
    elif reasoned > output and (not total or reasoned > _RECOUNTED * output):
        output += reasoned
    counts = {"prompt": prompt, "cache_read": cached, "cache_write": kept, "output": output}
    counts["reasoning"] = min(reasoned, output)
    return counts | ({"total": total} if total else {})


def _excused(usage: object) -> dict[str, str]:
    if not isinstance(usage, dict):
        return {}
    counts = _counts(usage)
    prompt, output = counts["prompt"], counts["output"]
    excused = uneven(counts.get("total", 0), prompt, output)
    if excused and output > number(usage, "completion_tokens"):
        excused["total"] = "the total leaves the reasoning out: there is more of it than of the whole answer"
    if counts["cache_read"] + counts["cache_write"] > prompt:
        why = f"more is said to be cached than the whole prompt of {prompt}"
        excused |= {"cache_read": why, "cache_write": why}
    return excused
