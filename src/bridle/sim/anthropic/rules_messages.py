"""Rules of the Messages API about messages: content, tool results and media."""

import re
from collections.abc import Iterator
from itertools import takewhile, zip_longest

from bridle.sim.rules.engine import RawRequest, RuleFinding
from bridle.sim.rules.media_data import is_base64, is_mislabelled
from bridle.sim.rules.raw_request import JsonObject, as_list, as_mapping, field, messages
from bridle.values.base import Value

from .request import blocks, list_blocks, rule
from .rules_fields import BLOCKS, refuse

CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")
_UNANSWERED = (
    "messages.{index}: `tool_use` ids were found without `tool_result` blocks immediately after: {ids}."
    " Each `tool_use` block must have a corresponding `tool_result` block in the next message."
)


def _check_message_empty(request: RawRequest) -> RuleFinding | None:
    sent = messages(request)
    for index, message in enumerate(sent):
        last_word = index == len(sent) - 1 and message.get("role") == "assistant"
        if message.get("content") in ("", []) and message.get("role") != "system" and not last_word:
            return {"index": index}
    return None


def _list_texts(message: JsonObject) -> Iterator[object]:
    """Yield the texts that must not be blank. Blanks between the provider's own tools are accepted."""
    content = blocks(message) if message.get("content") != "" else []
    if not any(item.get("type") == "server_tool_use" for item in content):
        yield from (item.get("text") for item in content if item.get("type") == "text")


def _check_prefill_space(request: RawRequest) -> RuleFinding | None:
    sent = messages(request)
    if not sent or sent[-1].get("role") != "assistant" or field(request, "compaction") is not None:
        return None
    last = (blocks(sent[-1]) or [{}])[-1].get("text")
    return {} if isinstance(last, str) and last != last.rstrip() else None


def _check_call_ids_unique(request: RawRequest) -> RuleFinding | None:
    seen: set[object] = set()
    for place, block in list_blocks(request):
        if block.get("type") == "tool_use":
            if block.get("id") in seen:
                return {"at": place}
            seen.add(block.get("id"))
    return None


def _check_result_missing(request: RawRequest) -> RuleFinding | None:
    for turn, answers in _list_calling_turns(request):
        missing = [
            id_ for id_ in _call_ids(turn) if id_ not in {_answered_call_id(block) for _, block in answers}
        ]
        if missing:
            return {"index": turn.index, "ids": ", ".join(missing)}
    return None


def _check_result_first(request: RawRequest) -> RuleFinding | None:
    """Accept results only before any other content of their message."""
    for turn, answers in _list_calling_turns(request):
        given = [_answered_call_id(block) for _, block in answers]
        in_time = list(takewhile(bool, given))
        late = [id_ for id_ in _call_ids(turn) if id_ in given and id_ not in in_time]
        if late:
            return {"index": turn.index, "ids": ", ".join(late)}
    return None


def _check_call_last(request: RawRequest) -> RuleFinding | None:
    """Require that no text follows a call."""
    for turn, _ in _list_calling_turns(request):
        types = [block.get("type") for _, block in turn.blocks]
        if "text" in types[types.index("tool_use") :]:
            return {"index": turn.index, "ids": ", ".join(_call_ids(turn))}
    return None


def _check_result_orphan(request: RawRequest) -> RuleFinding | None:
    called: list[str] = []
    for turn in _merge_turns(request):
        for place, block in turn.blocks:
            if _answered_call_id(block) and _answered_call_id(block) not in called:
                return {"at": place, "id": _answered_call_id(block)}
        called = _call_ids(turn)
    return None


def _check_result_once(request: RawRequest) -> RuleFinding | None:
    for turn in _merge_turns(request):
        seen: set[str] = set()
        for place, block in turn.blocks:
            if _answered_call_id(block) in seen:
                return {"at": place, "id": _answered_call_id(block)}
            seen.add(_answered_call_id(block) or place)
    return None


class _RoleTurn(Value, kw_only=True, gc=True):
    index: int
    blocks: list[tuple[str, JsonObject]]


def _merge_turns(request: RawRequest) -> list[_RoleTurn]:
    """Merge neighbouring messages of one role into turns.

    A conversation that starts with the assistant gets an empty first turn, which counts.
    """
    turns: list[_RoleTurn] = []
    role: object = None
    sent = messages(request)
    shift = 1 if sent and sent[0].get("role") == "assistant" else 0
    for index, message in enumerate(sent):
        placed = [(f"messages.{index}.content.{n}", block) for n, block in enumerate(blocks(message))]
        if turns and message.get("role") == role:
            turns[-1].blocks.extend(placed)
        else:
            turns.append(_RoleTurn(index=index + shift, blocks=placed))
        role = message.get("role")
    return turns


def _list_calling_turns(request: RawRequest) -> Iterator[tuple[_RoleTurn, list[tuple[str, JsonObject]]]]:
    """Yield each turn that makes calls, with the blocks of the next one."""
    turns = _merge_turns(request)
    for turn, following in zip_longest(turns, turns[1:]):
        if _call_ids(turn):
            yield turn, following.blocks if following else []


def _call_ids(turn: _RoleTurn) -> list[str]:
    return [str(block.get("id")) for _, block in turn.blocks if block.get("type") == "tool_use"]


def _answered_call_id(block: JsonObject) -> str:
    return str(block.get("tool_use_id")) if block.get("type") == "tool_result" else ""


MESSAGE_RULES = (
    refuse(
        "messages-some",
        "",
        lambda body: body.get("messages") == [],
        "messages: at least one message is required",
        evidence="F",
    ),
    rule(
        "message-empty",
        _check_message_empty,
        "messages.{index}: all messages must have non-empty content except for the optional final"
        " assistant message",
        evidence="S",
    ),
    refuse(
        "text-empty",
        "messages[]",
        lambda message: "" in _list_texts(message),
        "messages: text content blocks must be non-empty",
        evidence="S",
    ),
    refuse(
        "text-blank",
        "messages[]",
        lambda message: any(isinstance(text, str) and text.isspace() for text in _list_texts(message)),
        "messages: text content blocks must contain non-whitespace text",
        evidence="S",
    ),
    rule(
        "prefill-space",
        _check_prefill_space,
        "messages: final assistant content cannot end with trailing whitespace",
        evidence="S",
        models="that take a prefill",
    ),
    refuse(
        "call-id",
        BLOCKS,
        lambda block: block.get("type") == "tool_use" and not CALL_ID.fullmatch(str(block.get("id", ""))),
        "{at}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        evidence="S",
    ),
    rule("call-ids-unique", _check_call_ids_unique, "{at}: `tool_use` ids must be unique", evidence="S"),
    rule("result-missing", _check_result_missing, _UNANSWERED, evidence="S"),
    rule("result-first", _check_result_first, _UNANSWERED, evidence="D"),
    rule("call-last", _check_call_last, _UNANSWERED, evidence="S"),
    rule(
        "result-orphan",
        _check_result_orphan,
        "{at}: unexpected `tool_use_id` found in `tool_result` blocks: {id}. Each `tool_result` block must"
        " have a corresponding `tool_use` block in the previous message.",
        evidence="S",
    ),
    rule(
        "result-once",
        _check_result_once,
        "{at}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {id}",
        evidence="S",
    ),
)


_NO_BASE64 = "{at}.source.base64: invalid base64 data"
_EMPTY = "{at}.source.base64: {kind} cannot be empty"
_MISLABELLED = "{at}.source.base64.data: Image does not match the provided media type {label}"


def _list_sources(request: RawRequest) -> Iterator[tuple[str, str, JsonObject]]:
    """Yield every base64 source with its path and block type, also inside results."""
    for place, block in list_blocks(request):
        inside, outer = as_list(block.get("content")), block.get("type")
        inner = ((f"{place}.{outer}.content.{n}", as_mapping(each)) for n, each in enumerate(inside))
        for at, source_block in ((place, block), *inner):
            kind, source = source_block.get("type"), as_mapping(source_block.get("source"))
            if kind in ("image", "document") and source.get("type") == "base64":
                yield f"{at}.{kind}", str(kind), source


def _check_media_base64(request: RawRequest) -> RuleFinding | None:
    for at, _, source in _list_sources(request):
        data = source.get("data")
        if isinstance(data, str) and not is_base64(data):
            return {"at": at}
    return None


def _check_media_empty(request: RawRequest) -> RuleFinding | None:
    empty = ((at, kind) for at, kind, source in _list_sources(request) if source.get("data") == "")
    return next(({"at": at, "kind": kind} for at, kind in empty), None)


def _check_image_label(request: RawRequest) -> RuleFinding | None:
    for at, kind, source in _list_sources(request):
        if kind == "image" and is_mislabelled(source.get("data"), source.get("media_type")):
            return {"at": at, "label": source.get("media_type")}
    return None


MEDIA_RULES = (
    rule("media-empty", _check_media_empty, _EMPTY, evidence="S"),
    rule("media-base64", _check_media_base64, _NO_BASE64, evidence="S"),
    rule("image-label", _check_image_label, _MISLABELLED, evidence="S"),
)
