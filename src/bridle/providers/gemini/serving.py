"""Gemini's wire as this program serves it: streams of replies, paths, lists of models, counts of tokens."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from bridle.ports.codec import HttpRequest
from bridle.ports.served_wire import ServedWire, WireRoute
from bridle.ports.tool import Json
from bridle.providers.wire.answer_format import move_format, read_schema
from bridle.providers.wire.call_arguments import take_plain_tools
from bridle.providers.wire.json import dumps, loads
from bridle.providers.wire.reply_encoding import ReplyWriter
from bridle.values.errors import Failure
from bridle.values.message import Reasoning, Reply, Text, ToolCall
from bridle.values.request import OutputSpec, Request

from .decode_request import PLAIN_JSON_TYPE, make_rejection
from .encode_reply import (
    JSON_TYPE,
    encode_block,
    encode_chunk,
    encode_event,
    encode_failure,
    encode_reply,
    encode_stop,
    encode_usage,
)
from .parts import FAMILY, Block
from .tools import convert_old_schema


class GeminiReplyWriter(ReplyWriter):
    """Events, or the items of one JSON array: the wire's default, if the URL has no `alt=sse`."""

    streams_calls = False

    def __init__(
        self, identity: str, request: Request, query: Mapping[str, str], repeated: Mapping[str, object]
    ) -> None:
        super().__init__(identity, request, query, repeated)
        self._is_array, self._has_items = query.get("alt") != "sse", False
        self.content_type = JSON_TYPE if self._is_array else "text/event-stream"

    def keep_alive(self) -> bytes:
        """An empty text: clients of this wire do not expect comments."""
        return self._write_item({"candidates": [_make_candidate([{"text": ""}])], **self._frame})

    def _extend_part(self, part: Text | Reasoning | ToolCall, piece: str) -> bytes:
        block: Block = {"text": piece} if isinstance(part, Text) else {"text": piece, "thought": True}
        return self._write_item({"candidates": [_make_candidate([block])], **self._frame})

    def _write_item(self, item: Block) -> bytes:
        before, self._has_items = b",\r\n" if self._has_items else b"[", True
        return before + dumps(item) if self._is_array else encode_event(item)

    def close(self, reply: Reply) -> bytes:
        calls = [encode_block(part) for part in reply.parts if isinstance(part, ToolCall)]
        last = encode_chunk(reply, calls or [{"text": ""}], encode_stop(reply))
        ended = self._write_item({**last, "usageMetadata": encode_usage(reply.usage), **self._frame})
        return ended + self._end

    def fail(self, failure: Failure) -> bytes:
        error: Block = loads(b"".join(encode_failure(failure).frames))
        return self._write_item(error) + self._end

    @property
    def _end(self) -> bytes:
        return b"]" if self._is_array else b""

    @property
    def _frame(self) -> Block:
        return {"modelVersion": self.model, "responseId": self.identity}


def _make_candidate(blocks: list[Block]) -> Block:
    return {"content": {"parts": blocks, "role": "model"}, "index": 0}


_MODEL = "/{version:str}/models/{model:path}"
_COUNTING = ":countTokens"
_METHODS = ["generateContent", "streamGenerateContent", "countTokens"]


def describe_model(name: str) -> Json:
    return {"name": f"models/{name}", "displayName": name, "supportedGenerationMethods": _METHODS}


def list_models(names: Sequence[str]) -> Json:
    return {"models": [describe_model(name) for name in names]}


def read_counted(request: HttpRequest) -> HttpRequest:
    """The request, which may be inside the one that asks."""
    path = request.path.removesuffix(_COUNTING) + ":generateContent"
    try:
        given = loads(request.body)
    except ValueError as error:
        raise make_rejection("invalid", f"Invalid JSON payload received. {error}") from None
    inner = given.get("generateContentRequest") if isinstance(given, dict) else None
    return replace(request, path=path, body=dumps(inner) if isinstance(inner, dict) else request.body)


def read_output(request: Request) -> Request:
    """The request with the schema of its answer, which may be in the older dialect."""

    def read(given: Block) -> tuple[OutputSpec | None, Block]:
        is_json = given.get("responseMimeType") == PLAIN_JSON_TYPE
        old, schema = given.get("responseSchema"), given.get("responseJsonSchema")
        if schema is None and isinstance(old, dict):
            schema = convert_old_schema(old)
        output = read_schema("output", schema) if is_json else None
        if output is None:
            return None, given
        taken = ("responseMimeType", "responseJsonSchema", "responseSchema")
        return output, {name: value for name, value in given.items() if name not in taken}

    return move_format(request, "generationConfig", read)


SERVED = ServedWire(
    family=FAMILY,
    mount="/gemini",
    routes=(
        WireRoute("POST", f"{_MODEL}{_COUNTING}", "count"),
        WireRoute("POST", _MODEL, "answer"),
        WireRoute("GET", "/{version:str}/models", "list"),
        WireRoute("GET", _MODEL, "show"),
    ),
    make_stream=GeminiReplyWriter,
    encode_reply=encode_reply,
    encode_failure=encode_failure,
    take_tools=take_plain_tools,
    id_prefix="",
    describe_model=describe_model,
    list_models=list_models,
    read_counted=read_counted,
    describe_count=lambda count: {"totalTokens": count},
    overflow_words="The input token count exceeds the maximum number of tokens allowed",
    read_output=read_output,
)
