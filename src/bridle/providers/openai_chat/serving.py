"""Chat Completions as this program serves it: streams of replies, paths, lists of models."""

from collections.abc import Sequence

from msgspec.structs import replace

from bridle.ports.served_wire import ClientTool, ServedWire, WireRoute
from bridle.ports.tool import Json
from bridle.providers.wire.answer_format import Members, move_format, take_json_schema
from bridle.providers.wire.call_arguments import read_function
from bridle.providers.wire.reply_encoding import ReplyWriter
from bridle.values.errors import Failure
from bridle.values.message import Reasoning, Reply, Text, ToolCall
from bridle.values.request import OutputSpec, Request

from .content import Block
from .decode_request import list_client_tools
from .dialect import FAMILY
from .encode_reply import (
    DONE_FRAME,
    call_deltas,
    encode_choice,
    encode_event,
    encode_failure,
    encode_reply,
    encode_reply_message,
    encode_stop,
    encode_usage,
)
from .reasoning import REASONING_FIELDS


class ChatReplyWriter(ReplyWriter):
    def open(self) -> bytes:
        return self._encode({"role": "assistant", "content": ""})

    def _begin_part(self, part: Text | Reasoning | ToolCall) -> bytes:
        if not isinstance(part, ToolCall):
            return b""
        function = {"name": part.name, "arguments": ""}
        return self._encode_call({"id": part.wire_id, "type": "function", "function": function})

    def _extend_part(self, part: Text | Reasoning | ToolCall, piece: str) -> bytes:
        if isinstance(part, ToolCall):
            return self._encode_call({"function": {"arguments": piece}})
        return self._encode({"content" if isinstance(part, Text) else REASONING_FIELDS[0]: piece})

    def _encode_call(self, call: Block) -> bytes:
        return self._encode({"tool_calls": [{"index": self._count_calls() - 1, **call}]})

    def _count_calls(self) -> int:
        return sum(isinstance(part, ToolCall) for part in self.parts)

    def close(self, reply: Reply) -> bytes:
        calls = encode_reply_message(reply, self.identity).get("tool_calls", ())
        written = self._count_calls()
        frames = [
            self._encode(delta)
            for at, call in enumerate(calls)
            if at >= written
            for delta in call_deltas(at, call)
        ]
        frames.append(self._encode({}, encode_stop(reply)))
        usage = encode_usage(reply.usage)
        if usage and not any(extra.name == "stream_options" for extra in self._request.extras):
            frames.append(encode_event({**self._about, "choices": [], "usage": usage}))
        return b"".join((*frames, DONE_FRAME))

    def fail(self, failure: Failure) -> bytes:
        return b"data: %b\n\n" % b"".join(encode_failure(failure).frames) + DONE_FRAME

    @property
    def _about(self) -> Block:
        about = {"id": self.identity, "object": "chat.completion.chunk", "created": 0, "model": self.model}
        return {**about, **self._repeated}

    def _encode(self, delta: Block, reason: str | None = None) -> bytes:
        return encode_event({**self._about, "choices": [encode_choice(delta, reason)]})


def describe_model(name: str) -> Json:
    return {"id": name, "object": "model", "created": 0, "owned_by": "bridle"}


def list_models(names: Sequence[str]) -> Json:
    return {"object": "list", "data": [describe_model(name) for name in names]}


def take_tools(request: Request) -> tuple[Request, tuple[ClientTool, ...]]:
    return request, tuple(
        replace(tool, spec=read_function(tool.spec), definition=tool.definition or tool.spec.native or "")
        for tool in list_client_tools(request)
    )


def read_output(request: Request) -> Request:
    """The request with the schema of its `response_format`."""

    def read(given: Members) -> tuple[OutputSpec | None, Members]:
        if not isinstance(given.get("json_schema"), dict):
            return None, given
        output, rest = take_json_schema(given["json_schema"])
        kept = {name: value for name, value in given.items() if name not in ("type", "json_schema")}
        return output, {**kept, "json_schema": rest} if rest else kept

    return move_format(request, "response_format", read)


SERVED = ServedWire(
    family=FAMILY,
    cache_mark="prompt_cache_breakpoint",
    mount="/openai/v1",
    routes=(
        WireRoute("POST", "/chat/completions", "answer"),
        WireRoute("GET", "/models", "list"),
        WireRoute("GET", "/models/{model:path}", "show"),
    ),
    make_stream=ChatReplyWriter,
    encode_reply=encode_reply,
    encode_failure=encode_failure,
    take_tools=take_tools,
    id_prefix="chatcmpl-",
    describe_model=describe_model,
    list_models=list_models,
    read_counted=lambda request: request,
    describe_count=lambda count: {"input_tokens": count},
    overflow_words="This model's maximum context length is exceeded",
    read_output=read_output,
    created_field="created",
)
