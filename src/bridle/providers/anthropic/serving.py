"""The Messages wire as this program serves it: streams of replies, paths, lists of models, counts of tokens."""

from collections.abc import Sequence

from msgspec.structs import replace

from bridle.ports.codec import HttpRequest
from bridle.ports.served_wire import ClientTool, ServedWire, WireRoute
from bridle.ports.tool import Json
from bridle.providers.wire.answer_format import move_format, read_schema
from bridle.providers.wire.call_arguments import read_function, take_plain_tools
from bridle.providers.wire.json import dumps
from bridle.providers.wire.reply_encoding import ReplyWriter
from bridle.values.errors import Failure
from bridle.values.message import Reasoning, Reply, Text, ToolCall
from bridle.values.request import OutputSpec, Request

from .codec import encode_deferred_tool
from .encode_reply import (
    encode_block,
    encode_event,
    encode_failure,
    encode_reply,
    encode_stop,
    encode_usage,
    split_block,
)
from .header_fields import read_headers
from .parts import FAMILY, Block


class AnthropicReplyWriter(ReplyWriter):
    def open(self) -> bytes:
        """The beginning, with counts of 0: the tokens of a run are known at its end."""
        message: Block = {
            "id": self.identity,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }
        return encode_event({"type": "message_start", "message": message}) + self.keep_alive()

    def keep_alive(self) -> bytes:
        return encode_event({"type": "ping"})

    def _begin_part(self, part: Text | Reasoning | ToolCall) -> bytes:
        block: Block
        match part:
            case Text():
                block = {"type": "text", "text": ""}
            case ToolCall():
                block = {**encode_block(replace(part, arguments="{}"), ""), "input": {}}
            case _:
                block = {"type": "thinking", "thinking": "", "signature": ""}
        return self._encode("content_block_start", content_block=block)

    def _extend_part(self, part: Text | Reasoning | ToolCall, piece: str) -> bytes:
        match part:
            case Text():
                delta = {"type": "text_delta", "text": piece}
            case ToolCall():
                delta = {"type": "input_json_delta", "partial_json": piece}
            case _:
                delta = {"type": "thinking_delta", "thinking": piece}
        return self._encode("content_block_delta", delta=delta)

    def _end_part(self) -> bytes:
        return self._encode("content_block_stop")

    def close(self, reply: Reply) -> bytes:
        frames = [self._end_part()] if self.parts else []
        for index, part in enumerate(reply.parts):
            if isinstance(part, ToolCall) and index >= len(self.parts):
                stub, deltas = split_block(part, encode_block(part, ""), reply.stop)
                frames.append(self._encode("content_block_start", index, content_block=stub))
                frames += [self._encode("content_block_delta", index, delta=delta) for delta in deltas]
                frames.append(self._encode("content_block_stop", index))
        end = {"type": "message_delta", "delta": encode_stop(reply), "usage": encode_usage(reply.usage)}
        return b"".join((*frames, encode_event(end), encode_event({"type": "message_stop"})))

    def fail(self, failure: Failure) -> bytes:
        return b"event: error\ndata: %b\n\n" % b"".join(encode_failure(failure).frames)

    def _encode(self, kind: str, index: int | None = None, **members: Block) -> bytes:
        return encode_event(
            {"type": kind, "index": len(self.parts) - 1 if index is None else index, **members}
        )


_COUNTING = "/count_tokens"
_NO_DATE = "1970-01-01T00:00:00Z"


def describe_model(name: str) -> Json:
    return {"type": "model", "id": name, "display_name": name, "created_at": _NO_DATE}


def list_models(names: Sequence[str]) -> Json:
    ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
    return {"data": [describe_model(name) for name in names], "has_more": False, **ends}


def read_counted(request: HttpRequest) -> HttpRequest:
    return replace(request, path=request.path.removesuffix(_COUNTING))


def take_tools(request: Request) -> tuple[Request, tuple[ClientTool, ...]]:
    """The tools; those that are not in the prompt until a result refers to them keep that mark."""
    _, plain = take_plain_tools(replace(request, deferred_tools=()))
    deferred = (
        ClientTool(
            spec=read_function(spec), definition=dumps(encode_deferred_tool(spec, request.model)).decode()
        )
        for spec in request.deferred_tools
    )
    return request, (*plain, *deferred)


def read_output(request: Request) -> Request:
    """The request with the schema of its `output_config.format`, or of `output_format`, which is older."""

    def read_older(given: Block) -> tuple[OutputSpec | None, Block]:
        output = read_schema("output", given.get("schema")) if given.get("type") == "json_schema" else None
        taken = ("type", "schema") if output is not None else ()
        return output, {name: value for name, value in given.items() if name not in taken}

    def read(given: Block) -> tuple[OutputSpec | None, Block]:
        if not isinstance(given.get("format"), dict):
            return None, given
        output, rest = read_older(given["format"])
        kept = {name: value for name, value in given.items() if name != "format"}
        return output, {**kept, "format": rest} if rest else kept

    return move_format(move_format(request, "output_config", read), "output_format", read_older)


SERVED = ServedWire(
    family=FAMILY,
    mount="/anthropic",
    routes=(
        WireRoute("POST", "/v1/messages", "answer"),
        WireRoute("POST", f"/v1/messages{_COUNTING}", "count"),
        WireRoute("GET", "/v1/models", "list"),
        WireRoute("GET", "/v1/models/{model:path}", "show"),
    ),
    make_stream=AnthropicReplyWriter,
    encode_reply=encode_reply,
    encode_failure=encode_failure,
    take_tools=take_tools,
    id_prefix="msg_",
    describe_model=describe_model,
    list_models=list_models,
    read_counted=read_counted,
    describe_count=lambda count: {"input_tokens": count},
    overflow_words="prompt is too long",
    read_headers=read_headers,
    read_output=read_output,
)
