"""Assembles a model's message from the deltas of a stream.

The result is the message as a complete reply would contain it, so both are decoded alike. Text is held in the
pieces it came in and joined once, at the end. Unknown members are kept: objects are updated, lists are
extended (entries with the same index are one entry), and any other value is replaced.
"""

from typing import Any

from bridle.providers.wire.json import repair_surrogates, text_or_empty
from bridle.values.message import ToolCall
from bridle.values.result import CallReady, Delta, ReasoningDelta, TextDelta, ToolCallDelta

from .content import Block
from .partial_calls import PartialChatCalls
from .reasoning import (
    BLOCKS_FIELD,
    DETAILS_FIELD,
    REASONING_FIELDS,
    REASONING_MEMBERS,
    ThinkTagParser,
    list_blocks,
    remove_echo,
)

_STREAMED_MEMBERS = frozenset({"text", "summary", "data"})
"""Members of a detail that arrive in pieces."""
_KNOWN_MEMBERS = frozenset(
    {
        "role",
        "content",
        "refusal",
        "audio",
        "tool_calls",
        "function_call",
        BLOCKS_FIELD,
        DETAILS_FIELD,
        *REASONING_FIELDS,
    }
)


class _ContentRun:
    """Adjacent pieces of content of one type."""

    __slots__ = ("kind", "members", "pieces")

    def __init__(self, kind: str, members: Block) -> None:
        self.kind = kind
        self.members = members
        self.pieces: list[str] = []

    def build_block(self) -> Block:
        text = "".join(self.pieces)
        if self.kind == "thinking":
            return {**self.members, "thinking": [{"type": "text", "text": text}]}
        return {**self.members, "text": text} if self.kind == "text" else self.members


class PartialChatMessage:
    def __init__(self, *, think_tags: bool) -> None:
        self._runs: list[_ContentRun] = []
        self._thoughts: dict[str, list[str]] = {}
        self._details: list[tuple[Block, dict[str, list[str]]]] = []
        self._blocks: list[tuple[Block, list[str]]] = []
        """Blocks of another wire: their members, and their text in pieces."""
        self._refusal: list[str] = []
        self._sound: Block = {}
        self._spoken: dict[str, list[str]] = {"data": [], "transcript": []}
        self._calls = PartialChatCalls()
        self._legacy = PartialChatCalls()
        self._ready = 0
        self._more: Block = {}
        self._shown_from = ""
        self._half = ""
        self._tags = ThinkTagParser() if think_tags else None

    def apply_delta(self, delta: Block) -> list[Delta]:
        """Apply any delta; return what it showed."""
        if not delta:
            return []
        deltas: list[Delta] = []
        if not REASONING_MEMBERS.isdisjoint(delta):
            self._apply_reasoning(delta, deltas)
        content = delta.get("content")
        if isinstance(content, str):
            deltas += self.append_text(content)
        elif isinstance(content, list):
            for block in content:
                deltas += self._apply_block(block)
        if refusal := delta.get("refusal"):
            deltas += self._append_to(self._refusal, refusal)
        deltas += self._apply_audio(delta.get("audio"))
        listed, legacy = delta.get("tool_calls"), delta.get("function_call")
        if isinstance(listed, list):
            for call, text in self._calls.apply_pieces(listed):
                deltas.append(ToolCallDelta(index=call.place, name=call.name, arguments=text))
            deltas += self._completed_calls()
        if isinstance(legacy, dict):
            for call, text in self._legacy.apply_pieces([{"index": 0, "function": legacy}]):
                deltas.append(ToolCallDelta(index=call.place, name=call.name, arguments=text))
        if not _KNOWN_MEMBERS.issuperset(delta):
            for name, value in delta.items():
                if name not in _KNOWN_MEMBERS and (kept := remove_echo(name, value)) is not None:
                    self._more[name] = _merge_values(self._more.get(name), kept)
        return deltas

    def _apply_reasoning(self, delta: Block, deltas: list[Delta]) -> None:
        for name in REASONING_FIELDS:
            if isinstance(text := delta.get(name), str):
                deltas += self.append_reasoning(name, text)
        deltas += self._apply_details(delta.get(DETAILS_FIELD))
        for block in list_blocks(delta):
            deltas += self._apply_thinking(block)

    def _completed_calls(self) -> list[Delta]:
        """Return calls that another call followed: this wire does not mark the end of a call otherwise."""
        calls, ready = self._calls.calls, []
        while self._ready < len(calls) - 1:
            call = calls[self._ready]
            if call.is_complete:
                tool_call = ToolCall(id="", name=call.name, arguments=repair_surrogates(call.arguments))
                ready.append(CallReady(index=call.place, call=tool_call))
            self._ready += 1
        return list(ready)

    def append_text(self, text: str) -> list[Delta]:
        """Append a piece of plain text. This is the hot path."""
        if not text:
            return []
        if not self._runs or self._runs[-1].kind != "text":
            self._runs.append(_ContentRun("text", {"type": "text"}))
        self._runs[-1].pieces.append(text)
        if self._half or not text.isascii():
            text = self._join_surrogates(text)
        if self._tags is not None:
            return self._tags.feed(text)
        return [TextDelta(text=text)] if text else []

    def append_reasoning(self, field: str, text: str) -> list[Delta]:
        if not text:
            return []
        self._thoughts.setdefault(field, []).append(text)
        return self._reasoning_deltas(field, text)

    def append_arguments(self, index: int, arguments: str) -> Delta | None:
        """Append a piece of arguments; None if its call is unknown."""
        call = self._calls.find_by_index(index)
        if call is None:
            return None
        call.append(arguments)
        return ToolCallDelta(index=call.place, name=call.name, arguments=repair_surrogates(arguments))

    def flush(self) -> list[Delta]:
        """Return text held back because it might have been the start of a tag or half a character."""
        half = repair_surrogates(self._half)
        self._half = ""
        if self._tags is not None:
            return [*self._tags.feed(half), *self._tags.flush()]
        return [TextDelta(text=half)] if half else []

    @property
    def content(self) -> Any:
        if all(run.kind == "text" and len(run.members) == 1 for run in self._runs):
            return "".join(piece for run in self._runs for piece in run.pieces)
        return [run.build_block() for run in self._runs]

    @property
    def is_empty(self) -> bool:
        thoughts = self._thoughts or self._details or self._blocks
        return not (self._runs or thoughts or self._refusal or self._calls.calls)

    @property
    def is_complete(self) -> bool:
        """True if nothing shows that more was to come: every call has complete arguments, or none."""
        calls = [*self._calls.calls, *self._legacy.calls]
        return all(call.is_complete or call.is_custom or not call.arguments.strip() for call in calls)

    def build_message(self) -> Block:
        message: Block = {**self._more, "role": "assistant", "content": self.content}
        message.update((field, "".join(pieces)) for field, pieces in self._thoughts.items())
        if self._details:
            message[DETAILS_FIELD] = [
                {**members, **{name: "".join(texts) for name, texts in pieces.items()}}
                for members, pieces in self._details
            ]
        if self._blocks:
            message[BLOCKS_FIELD] = [
                {**members, "thinking": "".join(pieces)} if members.get("type") == "thinking" else members
                for members, pieces in self._blocks
            ]
        if self._refusal:
            message["refusal"] = "".join(self._refusal)
        if self._sound or any(self._spoken.values()):
            spoken = {name: "".join(pieces) for name, pieces in self._spoken.items() if pieces}
            message["audio"] = {**self._sound, **spoken}
        if self._calls.calls:
            message["tool_calls"] = [call.build_call() for call in self._calls.calls]
        if self._legacy.calls:
            message["function_call"] = self._legacy.calls[0].build_call()["function"]
        return message

    def _join_surrogates(self, text: str) -> str:
        """Return the text to show, without half a character at its end: the other half is in the next piece."""
        text = self._half + text
        self._half = text[-1] if "\ud800" <= text[-1] <= "\udbff" else ""
        return repair_surrogates(text[:-1] if self._half else text)

    def _apply_block(self, block: object) -> list[Delta]:
        if isinstance(block, str):
            return self.append_text(block)
        if not isinstance(block, dict):
            return []
        kind = text_or_empty(block.get("type"))
        members = {name: value for name, value in block.items() if name not in ("text", "thinking")}
        if kind not in ("text", "thinking"):
            self._runs.append(_ContentRun("", block))
            return []
        if not self._runs or self._runs[-1].kind != kind:
            self._runs.append(_ContentRun(kind, {}))
        run = self._runs[-1]
        run.members = {**run.members, **members}
        if kind == "text":
            return self.append_text(text_or_empty(block.get("text")))
        inner = block.get("thinking")
        text = "".join(
            text_or_empty(each.get("text")) if isinstance(each, dict) else text_or_empty(each)
            for each in (inner if isinstance(inner, list) else [inner])
        )
        run.pieces.append(text)
        return self._reasoning_deltas("chunk", text)

    def _apply_details(self, listed: object) -> list[Delta]:
        deltas: list[Delta] = []
        for detail in listed if isinstance(listed, list) else ():
            if not isinstance(detail, dict) or not detail:
                continue
            members, pieces = self._find_detail(detail)
            for name, value in detail.items():
                if name in _STREAMED_MEMBERS and isinstance(value, str):
                    pieces.setdefault(name, []).append(value)
                    if name != "data":
                        deltas += self._reasoning_deltas(DETAILS_FIELD, value)
                elif value or name not in members:
                    members[name] = value
        return deltas

    def _apply_thinking(self, block: Block) -> list[Delta]:
        """Continue the last block, or start one if that is signed or has another index."""
        fragment = {name: value for name, value in block.items() if name != "thinking" and value is not None}
        members = self._blocks[-1][0] if self._blocks else {}
        kinds = {members.get("type"), block.get("type")}
        ended = members.get("signature") or members.get("index") != block.get("index")
        if kinds != {"thinking"} or ended:
            self._blocks.append(({}, []))
        members, pieces = self._blocks[-1]
        members.update(fragment)
        text = text_or_empty(block.get("thinking"))
        pieces.append(text)
        return self._reasoning_deltas(BLOCKS_FIELD, text)

    def _find_detail(self, detail: Block) -> tuple[Block, dict[str, list[str]]]:
        """Return the detail with the same type and index; only some servers give each an id."""
        for members, pieces in reversed(self._details):
            ids = {text_or_empty(members.get("id")), text_or_empty(detail.get("id"))} - {""}
            if len(ids) < 2 and all(members.get(name) == detail.get(name) for name in ("type", "index")):
                return members, pieces
        self._details.append(({}, {}))
        return self._details[-1]

    def _apply_audio(self, audio: object) -> list[Delta]:
        if not isinstance(audio, dict):
            return []
        self._sound.update((n, v) for n, v in audio.items() if n not in self._spoken and v is not None)
        self._spoken["data"].append(text_or_empty(audio.get("data")))
        return self._append_to(self._spoken["transcript"], audio.get("transcript"))

    def _append_to(self, pieces: list[str], text: object) -> list[Delta]:
        if not isinstance(text, str) or not text:
            return []
        pieces.append(text)
        return [TextDelta(text=repair_surrogates(text))]

    def _reasoning_deltas(self, place: str, text: str) -> list[Delta]:
        """Return the deltas of reasoning; some servers send it in two fields, and only the first is shown."""
        self._shown_from = self._shown_from or place
        return (
            [ReasoningDelta(reasoning=repair_surrogates(text))] if text and place == self._shown_from else []
        )


def _merge_values(current: Any, value: Any) -> Any:
    if isinstance(current, dict) and isinstance(value, dict):
        current.update(value)
        return current
    if not isinstance(current, list) or not isinstance(value, list):
        return value
    for entry in value:
        index = entry.get("index") if isinstance(entry, dict) else None
        same = None
        if index is not None:
            same = next((one for one in current if isinstance(one, dict) and one.get("index") == index), None)
        if same is None:
            current.append(entry)
        else:
            same.update(entry)
    return current
