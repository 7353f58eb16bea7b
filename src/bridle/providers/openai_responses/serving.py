"""The Responses wire as this program serves it: streams of replies, paths, counts of tokens.

Every item of a reply has an id, which clients require. Chat Completions lists the models.
"""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from bridle.ports.codec import HttpRequest
from bridle.ports.served_wire import ClientTool, ServedWire, WireRoute
from bridle.providers.wire.answer_format import move_format, take_json_schema
from bridle.providers.wire.call_arguments import read_function
from bridle.providers.wire.json import dumps, loads
from bridle.providers.wire.reply_encoding import ReplyWriter
from bridle.values.errors import Failure
from bridle.values.message import Message, Opaque, Part, Reasoning, Reply, Stop, Text, ToolCall
from bridle.values.model import Origin
from bridle.values.request import OutputSpec, Request

from .content import FAMILY, Block
from .decode_request import ADDITIONAL_TOOLS, list_client_tools
from .encode_reply import (
    announced_item,
    encode_event,
    encode_failure,
    encode_reply,
    encode_response,
    encode_stop,
    encode_usage,
    split_item,
)
from .parts import CUSTOM_CALL, encode_items, list_unsent_members, parse_native

NO_ORIGIN = Origin(family="", endpoint="", model="")
_PREFIXES: dict[type, str] = {Text: "msg", Reasoning: "rs", ToolCall: "fc"}


def _name_item(identity: str, place: int, part: Part) -> Part:
    if not isinstance(part, Text | Reasoning | ToolCall):
        return part
    native: Block = loads(part.native) if part.native is not None else {}
    if "id" in native or "message" in native:
        return part
    status = {} if native.get("type") == CUSTOM_CALL else {"status": "completed"}
    named: Block = {"id": _make_id(identity, place, part), **status, **native}
    return replace(part, native=dumps({"message": named} if isinstance(part, Text) else named).decode())


def _make_id(identity: str, place: int, part: Part) -> str:
    is_custom = isinstance(part, ToolCall) and part.native is not None and CUSTOM_CALL in part.native
    return f"{'ctc' if is_custom else _PREFIXES[type(part)]}_{identity.removeprefix('resp_')}_{place}"


class ResponsesReplyWriter(ReplyWriter):
    _count = 0

    def open(self) -> bytes:
        response = self._describe(Reply(parts=(), stop=Stop.DONE, origin=NO_ORIGIN))
        return self._encode("response.created", response=response) + self._encode(
            "response.in_progress", response=response
        )

    def name_parts(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        return tuple(_name_item(self.identity, place, part) for place, part in enumerate(parts))

    def _begin_part(self, part: Text | Reasoning | ToolCall) -> bytes:
        item = self._item(part)
        added = self._encode("response.output_item.added", item=announced_item(item), **self._at)
        return added if isinstance(part, ToolCall) else added + self._encode_part("added", part, "")

    def _extend_part(self, part: Text | Reasoning | ToolCall, piece: str) -> bytes:
        if isinstance(part, ToolCall):
            return self._encode("response.function_call_arguments.delta", **self._where, delta=piece)
        kind, place = self._text_event(part)
        return self._encode(f"{kind}.delta", **self._where, **place, delta=piece)

    def _end_part(self) -> bytes:
        part = self.parts[-1]
        if isinstance(part, ToolCall):
            done = self._encode(
                "response.function_call_arguments.done", **self._where, arguments=part.arguments
            )
            return done + self._encode("response.output_item.done", item=self._item(part), **self._at)
        kind, place = self._text_event(part)
        done = self._encode(f"{kind}.done", **self._where, **place, text=part.text)
        ended = self._encode_part("done", part, part.text)
        return done + ended + self._encode("response.output_item.done", item=self._item(part), **self._at)

    def close(self, reply: Reply) -> bytes:
        frames = [self._end_part()] if self.parts else []
        output = [self._item(part, place) for place, part in enumerate(reply.parts)]
        for place, (part, item) in enumerate(zip(reply.parts, output, strict=True)):
            if isinstance(part, ToolCall) and place >= len(self.parts):
                at = {"output_index": place}
                frames.append(self._encode("response.output_item.added", item=announced_item(item), **at))
                for event in split_item(item):
                    frames.append(self._encode(event.pop("type"), **event, item_id=item["id"], **at))
                frames.append(self._encode("response.output_item.done", item=item, **at))
        end = {**self._describe(reply), **encode_stop(reply), "output": output}
        end["usage"] = encode_usage(reply.usage)
        kind = "completed" if end["status"] == "completed" else "incomplete"
        return b"".join((*frames, self._encode(f"response.{kind}", response=end)))

    def fail(self, failure: Failure) -> bytes:
        error = loads(b"".join(encode_failure(failure).frames))["error"]
        told = {"code": error["code"] or error["type"], "message": error["message"]}
        response = self._describe(Reply(parts=(), stop=Stop.OTHER, origin=NO_ORIGIN))
        return self._encode("response.failed", response={**response, "status": "failed", "error": told})

    def _describe(self, reply: Reply) -> Block:
        response = encode_response(self.identity, reply)
        return {**response, "model": self.model, "store": True, **self._repeated}

    def _item(self, part: Part, place: int | None = None) -> Block:
        at = len(self.parts) - 1 if place is None else place
        named = _name_item(self.identity, at, part)
        pairs = [(named, parse_native(named))]
        items = encode_items(pairs, own=True, sent_id=lambda call, native: call.wire_id or call.id)
        item: Block = loads(dumps(items[0]))
        return item

    @property
    def _at(self) -> dict[str, Any]:
        return {"output_index": len(self.parts) - 1}

    @property
    def _where(self) -> dict[str, Any]:
        place = len(self.parts) - 1
        return {"item_id": _make_id(self.identity, place, self.parts[place]), "output_index": place}

    def _text_event(self, part: Text | Reasoning) -> tuple[str, dict[str, Any]]:
        if isinstance(part, Text):
            return "response.output_text", {"content_index": 0}
        return "response.reasoning_summary_text", {"summary_index": 0}

    def _encode_part(self, what: str, part: Text | Reasoning, text: str) -> bytes:
        if isinstance(part, Text):
            inner: Block = {"type": "output_text", "text": text, "annotations": []}
            return self._encode(f"response.content_part.{what}", **self._where, content_index=0, part=inner)
        inner = {"type": "summary_text", "text": text}
        return self._encode(
            f"response.reasoning_summary_part.{what}", **self._where, summary_index=0, part=inner
        )

    def _encode(self, kind: str, **members: Any) -> bytes:
        number, self._count = self._count, self._count + 1
        return encode_event({"type": kind, "sequence_number": number, **members})


_COUNTING = "/input_tokens"


def read_counted(request: HttpRequest) -> HttpRequest:
    return replace(request, path=request.path.removesuffix(_COUNTING))


def take_tools(request: Request) -> tuple[Request, tuple[ClientTool, ...]]:
    """The tools, and the request without the items that only declare some."""
    tools = tuple(
        replace(tool, spec=read_function(tool.spec), definition=tool.definition or tool.spec.native or "")
        for tool in list_client_tools(request)
    )
    messages = tuple(message for message in map(_drop_declarations, request.messages) if message.parts)
    is_changed = len(messages) < len(request.messages)
    return replace(request, messages=messages, breakpoints=()) if is_changed else request, tools


def _drop_declarations(message: Message) -> Message:
    if not any(isinstance(part, Opaque) and part.kind == ADDITIONAL_TOOLS for part in message.parts):
        return message
    kept = [part for part in message.parts if not isinstance(part, Opaque) or part.kind != ADDITIONAL_TOOLS]
    return replace(message, parts=tuple(kept))


def read_output(request: Request) -> Request:
    """The request with the schema of its `text.format`."""

    def read(given: Block) -> tuple[OutputSpec | None, Block]:
        shape = given.get("format")
        if not isinstance(shape, dict) or shape.get("type") != "json_schema":
            return None, given
        output, rest = take_json_schema(shape)
        kept = {name: value for name, value in given.items() if name != "format"}
        return output, {**kept, "format": rest} if rest else kept

    return move_format(request, "text", read)


SERVED = ServedWire(  # langchain reads `text.format` of a response to parse its text
    family=FAMILY,
    cache_mark="prompt_cache_breakpoint",
    mount="/openai/v1",
    routes=(
        WireRoute("POST", "/responses", "answer"),
        WireRoute("POST", f"/responses{_COUNTING}", "count"),
    ),
    make_stream=ResponsesReplyWriter,
    encode_reply=encode_reply,
    encode_failure=encode_failure,
    take_tools=take_tools,
    id_prefix="resp_",
    describe_model=lambda name: {"id": name},
    list_models=lambda names: {"data": [{"id": name} for name in names]},
    read_counted=read_counted,
    describe_count=lambda count: {"object": "response.input_tokens", "input_tokens": count},
    overflow_words="Your input exceeds the context window of this model",
    streamed_failures=frozenset({"context"}),  # Codex looks for them there
    list_unsent=list_unsent_members,
    read_output=read_output,
    created_field="created_at",
    repeated_fields=(
        "instructions",
        "max_output_tokens",
        "metadata",
        "parallel_tool_calls",
        "previous_response_id",
        "reasoning",
        "store",
        "temperature",
        "text",
        "tool_choice",
        "tools",
        "top_p",
        "truncation",
        "user",
    ),
)
