"""A wire family without a vendor: Bridle's own values as JSON, for tests, documentation and examples.

A request is the JSON of `Request`, a reply the JSON of `Reply`, a failure the JSON of `Failure`. A stream has
one JSON object per line: deltas cut from the reply's text, and the reply itself last. Nothing is lost in
either direction, so it shows the work of a codec and the rules it must obey without any vendor's details.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from bridle.ports.codec import Decoder, EncodedHistory, HttpRequest
from bridle.providers.wire.encoded_history import EncodedMessages, MessageEncoder, WireTurn
from bridle.values.base import Value
from bridle.values.errors import Failure, FailureKind, MisuseError, ProviderError
from bridle.values.message import Message, Reply
from bridle.values.model import Endpoint, Model
from bridle.values.request import Extra, OutputSpec, Request
from bridle.values.result import Delta, TextDelta
from bridle.values.usage import Usage

FAMILY = "scripted"
PATH = "/reply"
LINES = "application/x-ndjson"
# not from outside: our own records and queues
BODY_BYTES_MAX = 64 * 1024 * 1024


class ScriptedLine(Value, kw_only=True):
    """One line of a stream: exactly one of these fields is set."""

    delta: Delta | None = None
    reply: Reply | None = None
    failure: Failure | None = None


encode_json = msgspec.json.Encoder(decimal_format="string").encode
_decode_request = msgspec.json.Decoder(Request).decode
_decode_reply = msgspec.json.Decoder(Reply).decode
_decode_failure = msgspec.json.Decoder(Failure).decode
_decode_line = msgspec.json.Decoder(ScriptedLine).decode


class ScriptedCodec:
    reserved_fields: frozenset[str] = frozenset()

    @property
    def family(self) -> str:
        return FAMILY

    @property
    def messages_field(self) -> str:
        return "messages"

    def recognizes_item(self, item: object) -> bool:
        return False

    def check_extra(self, extra: Extra) -> None:
        """Every extra is sent as it is."""

    def new_history(self) -> EncodedMessages:
        return EncodedMessages(_make_writer)

    def encode(self, request: Request, kept: EncodedHistory | None = None) -> HttpRequest:
        if kept is None:
            kept = self.new_history()
        if not isinstance(kept, EncodedMessages):
            raise MisuseError(
                "this history belongs to another codec; make one with new_history() of the codec that encodes"
            )
        kept.set_endpoint(request.model.endpoint)
        kept.set_head((request.model, request.tools, request.system), lambda: _encode_head(request))
        rest = encode_json(replace(request, system=(), tools=(), messages=(), stream=True))
        changing = msgspec.json.decode(rest, type=dict[str, msgspec.Raw])
        del changing["model"]
        tail = b"]" + (b"," + encode_json(changing)[1:-1] if changing else b"")
        ending = b"}" if request.stream else b',"stream":false}'
        body, digest = kept.build_body(request.messages, tail, ending=ending)
        headers = (("content-type", "application/json"), *request.model.endpoint.headers)
        return HttpRequest(path=PATH, body=body, headers=headers, digest=digest)

    def list_losses(self, request: Request, *, with_schemas: bool = True) -> tuple[str, ...]:
        return ()

    def list_unsent_media(self, messages: Iterable[Message], model: Model) -> tuple[str, ...]:
        return ()

    def explain_unsupported_output(self, output: OutputSpec, model: Model) -> str:
        return ""

    def new_decoder(self, request: Request, status: int, headers: Mapping[str, str]) -> Decoder:
        return ScriptedDecoder(status, headers)

    def decode_request(self, request: HttpRequest) -> Request:
        try:
            return _decode_request(request.body)
        except (ValueError, RecursionError) as error:
            raise ProviderError(
                Failure(kind="invalid", message=f"not a request: {error}", status=400)
            ) from None


class ScriptedDecoder:
    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        self._status = status
        self._is_stream = 200 <= status < 300 and headers.get("content-type", "").startswith(LINES)
        self._held: list[bytes] = []
        self._held_size = 0
        self._text: list[str] = []
        self._reply: Reply | None = None
        self._failure: Failure | None = None

    @property
    def partial_text(self) -> str:
        return "".join(self._text)

    @property
    def partial_usage(self) -> Usage:
        return Usage(incomplete=True)

    def feed(self, data: bytes) -> Sequence[Delta]:
        if self._failure is not None:
            raise ProviderError(self._failure)
        lines = data.split(b"\n") if self._is_stream else [data]
        deltas: list[Delta] = []
        for line in lines[:-1]:
            self._buffer_body(line)
            if (delta := self._apply_line(b"".join(self._held))) is not None:
                deltas.append(delta)
            self._held, self._held_size = [], 0
        self._buffer_body(lines[-1])
        return deltas

    def close(self) -> Reply:
        if self._failure is not None:
            raise ProviderError(self._failure)
        body = b"".join(self._held)
        if not 200 <= self._status < 300:
            raise ProviderError(_decode_failure_body(self._status, body))
        if self._reply is not None:
            return self._reply
        try:
            reply = _decode_line(body).reply if self._is_stream else _decode_reply(body)
        except (ValueError, RecursionError):
            reply = None
        if reply is None:
            raise ProviderError(Failure(kind="cut", message="the reply ended before it was complete"))
        return reply

    def _buffer_body(self, data: bytes) -> None:
        self._held_size += len(data)
        if self._held_size > BODY_BYTES_MAX:
            raise self._fail(
                Failure(kind="garbled", message=f"more than {BODY_BYTES_MAX} bytes in one piece")
            )
        if data:
            self._held.append(data)

    def _apply_line(self, line: bytes) -> Delta | None:
        if not line.strip() or self._reply is not None:
            return None
        try:
            line_value = _decode_line(line)
        except (ValueError, RecursionError) as error:
            raise self._fail(
                Failure(kind="garbled", message=f"a line that cannot be read: {error}")
            ) from None
        if line_value.failure is not None:
            raise self._fail(line_value.failure)
        self._reply = line_value.reply
        if isinstance(line_value.delta, TextDelta):
            self._text.append(line_value.delta.text)
        return line_value.delta

    def _fail(self, failure: Failure) -> ProviderError:
        self._failure = failure
        return ProviderError(failure)


def _make_writer(_: Endpoint | None) -> MessageEncoder:
    def write(message: Message) -> tuple[WireTurn]:
        return (WireTurn(b"", encode_json(message), b""),)

    return write


def _encode_head(request: Request) -> bytes:
    head = {"model": request.model, "system": request.system, "tools": request.tools}
    return encode_json(head)[:-1] + b',"messages":['


def _decode_failure_body(status: int, body: bytes) -> Failure:
    try:
        return _decode_failure(body)
    except (ValueError, RecursionError):
        kind: FailureKind = "server" if status >= 500 else "invalid"
        text = " ".join(body[:1000].decode("utf-8", "replace").split())
        return Failure(kind=kind, message=f"HTTP {status}: {text}", status=status)


CODEC = ScriptedCodec()
