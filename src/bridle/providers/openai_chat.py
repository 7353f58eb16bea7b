"""OpenAI Chat Completions, our side and theirs, for every server that speaks it.

The body is joined, never written anew: model, tools and instructions first, then the messages, each
encoded once, and behind them everything that may change from one request to the next.  So the bytes of
one request up to its last message begin the bytes of the following one, whatever changes in between.

Many servers speak this wire and no two of them alike.  How they differ is a `Dialect` that comes with
the endpoint; an endpoint without one gets the protocol as it is documented.

The rest of the family, by what it does (each file is `_openai_chat_` and this word):

    dialect    how servers differ, as data             failures   what goes wrong, both ways
    content    parts of content, both ways             ends       stops and counts, both ways
    thoughts   reasoning, wherever it is put           fields     what is asked beside the messages
    calls      calls of tools, both ways               strict     which shapes may be enforced
    message    a model's whole message, both ways      read       requests, as a server sees them
    write      messages on their way out               speak      replies, as a server gives them
    decode     replies, from bytes in any slices       meaning    which requests a server takes for equal
    alternate  turns, where a server insists           growing    a message, while it is said
    growing_calls      its calls, told apart

Keys are no business of a codec: whoever sends the request adds them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Raw

from ..ports.codec import Decoder, HttpReply, HttpRequest, Kept
from ..values.errors import Failure, MisuseError
from ..values.message import Reply
from ..values.model import Endpoint, Model
from ..values.request import Mark, OutputSpec, Request
from ._dialect import spoken_at
from ._json import dumps, loads
from ._kept import KeptForModel
from ._listed_form import Signs
from ._marks import system_ttls, tools_ttl
from ._names import SHORT
from ._openai_chat_content import Block, block_of
from ._openai_chat_decode import ChatDecoder
from ._openai_chat_dialect import ANSWER_SCHEMA, FAMILY, SCHEMA, Dialect
from ._openai_chat_failures import speak_failure
from ._openai_chat_fields import check_tools, delivery_of, fields_of, tool_of
from ._openai_chat_meaning import CHANGES, meaning
from ._openai_chat_message import joined, members_of
from ._openai_chat_read import read
from ._openai_chat_speak import speak
from ._openai_chat_write import MessageWriter
from ._openai_prompts import BREAKPOINT, POINT, message_points
from ._remarks import Carries, unsent_settings
from ._shell import json_headers, kept_here
from ._tool_schema import reason_unfit, restoring, schema_remarks

PATH = "/chat/completions"
_PROTOCOL = Dialect()
SIGNS = Signs(
    members=frozenset({"tool_calls", "tool_call_id", "function_call"}),
    roles=frozenset({"tool", "function"}),
    content_types=frozenset({"image_url", "input_audio", "file", "video_url"}),
)
"""What only lists of this wire have."""


class OpenAIChatCodec:
    def __init__(
        self, dialects: Mapping[str, Dialect] | None = None, *, otherwise: Dialect = _PROTOCOL
    ) -> None:
        """`dialects` by the name of an endpoint, before its own, and what is spoken where there is none."""
        self._dialects = dict(dialects or {})
        self._otherwise = otherwise

    @property
    def family(self) -> str:
        return FAMILY

    @property
    def listed(self) -> str:
        return "messages"

    def recognizes(self, item: object) -> bool:
        return SIGNS.fit(item)

    def keep(self) -> KeptForModel:
        return KeptForModel(lambda place, name: MessageWriter(place, name, self._dialect(place)))

    def encode(self, request: Request, kept: Kept | None = None) -> HttpRequest:
        """`digest` covers the body, except for how the answer is delivered; it costs only new messages."""
        kept = kept_here(kept, KeptForModel, self.keep)
        dialect = self._dialect(request.model.endpoint)
        check_tools(request, dialect)
        kept.on_model(request.model)
        follows = kept.writes(request.messages)
        kept.head(
            (
                request.model.id,
                request.tools,
                request.system,
                tools_ttl(request),
                system_ttls(request),
                follows,
            ),
            lambda: _head(request, dialect, follows=follows),
        )
        fields = dumps(fields_of(request, dialect))[1:-1]
        delivery = dumps(delivery_of(request, dialect))[1:-1]
        body, digest = kept.body(
            request.messages,
            b"]" + (b"," + fields if fields else b""),
            _message_marks(request, dialect),
            ending=(b"," + delivery if delivery else b"") + b"}",
        )
        return HttpRequest(path=PATH, body=body, headers=json_headers(request), digest=digest)

    def remarks(self, request: Request) -> tuple[str, ...]:
        dialect = self._dialect(request.model.endpoint)
        carries = Carries(
            top_k=dialect.top_k,
            parallel=dialect.parallel_switch,
            mode=bool(dialect.mode_at),
            budget=bool(dialect.budget_at),
            effort=bool(dialect.effort_at),
        )
        return (*schema_remarks(request, SCHEMA, ANSWER_SCHEMA), *unsent_settings(request, carries))

    def reason_unfit(self, output: OutputSpec, model: Model) -> str:
        return reason_unfit(output, ANSWER_SCHEMA)

    def decoder(self, request: Request, status: int, headers: Mapping[str, str]) -> Decoder:
        dialect = self._dialect(request.model.endpoint)
        decoder = ChatDecoder(request.model, dialect, status, headers, tools=bool(request.tools))
        return restoring(SHORT.decoder(decoder, request.tools), request, SCHEMA)

    def read(self, request: HttpRequest) -> Request:
        return read(request)

    def speak(self, reply: Reply, *, stream: bool) -> HttpReply:
        return speak(reply, stream=stream)

    def speak_failure(self, failure: Failure) -> HttpReply:
        return speak_failure(failure)

    def meaning(self, request: HttpRequest) -> object:
        """The body with everything removed that a server does not tell apart."""
        return meaning(request)

    @property
    def changes(self) -> Sequence[tuple[Callable[[Any], Any], str]]:
        """What is changed on purpose in requests that were read and are written again, and why."""
        return CHANGES

    def _dialect(self, endpoint: Endpoint | None) -> Dialect:
        given = self._dialects.get(endpoint.name) if endpoint else None
        return given or spoken_at(endpoint, self._otherwise)


def _head(request: Request, dialect: Dialect, *, follows: bool) -> bytes:
    """Everything up to the first message; the instructions are a message here, and never change."""
    head: Block = {"model": request.model.id} if request.model.id else {}
    if request.tools:
        tools = [tool_of(spec) for spec in request.tools]
        if dialect.cache_marks and (ttl := tools_ttl(request)):
            last = tools[-1]
            tools[-1] = {
                **(last if isinstance(last, dict) else loads(bytes(last))),
                **_mark_with(ttl, dialect),
            }
        head["tools"] = tools
    written = dumps({**head, "messages": []})[:-2]
    system: list[Block | Raw] = []
    ttls = system_ttls(request) if dialect.cache_marks else {}
    for at, text in enumerate(request.system):
        if (block := block_of(text, dialect, own=True)) is not None:
            system.append(block)
        if at in ttls and system and isinstance(last := system[-1], dict):
            system[-1] = {**last, **_mark_with(ttls[at], dialect)}
    if not system:
        return written
    content = system if dialect.cache_marks else joined(system, dialect)
    message = {"role": dialect.system_role, "content": content, **members_of(request.system)}
    return written + dumps(message) + (b"," if follows else b"")


def _message_marks(request: Request, dialect: Dialect) -> dict[int, bytes]:
    if not dialect.cache_marks:
        return {}
    if dialect.breakpoints:
        return message_points(request)
    count = len(request.messages)
    marks: dict[int, str] = {}
    for mark in request.marks:
        if mark.place == "message":
            if not -count <= mark.message < count:
                raise MisuseError(f"no message {mark.message} to mark: the request has {count}")
            marks[mark.message % count] = mark.ttl
    end = _mark(request, "end")
    if end and count:
        marks[count - 1] = end.ttl
    return {index: b"," + dumps(_mark_with(ttl, dialect))[1:-1] for index, ttl in marks.items()}


def _mark(request: Request, place: str) -> Mark | None:
    return next((mark for mark in request.marks if mark.place == place), None)


def _mark_with(ttl: str, dialect: Dialect) -> Block:
    if dialect.breakpoints:
        return {BREAKPOINT: POINT}
    return {"cache_control": {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}}


CODEC = OpenAIChatCodec()
