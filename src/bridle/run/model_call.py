"""What was heard of a reply, for the case that it breaks off.

Most providers count what a model wrote at the end of a reply only.  One that is cancelled or cut off before
that was written all the same, and is paid for: what was heard of it is counted by our own measure, on the
dear side, and never as more than was asked for.
"""

import sys
from collections.abc import Callable

from msgspec.structs import asdict, replace

from bridle.core.calls.dispatch import make_call_id
from bridle.core.compaction.strategies import OVERESTIMATE_FACTOR
from bridle.core.context.token_estimate import estimate_text_tokens
from bridle.core.recovery.failure_policy import has_parameter
from bridle.ports.codec import Decoder, EncodedHistory
from bridle.ports.transport import OutgoingRequest
from bridle.providers.wire.rejections import find_rejected_parameter, find_window_tokens
from bridle.run.recovery.rejected_parts import locate_rejected_parts
from bridle.values.errors import Failure, FailureKind, ProviderError
from bridle.values.events import Latency, PartRef
from bridle.values.message import Part, Reply
from bridle.values.model import Model
from bridle.values.redaction import Redactor, find_header_secrets, is_plain_word
from bridle.values.request import Request
from bridle.values.result import CallReady, Delta, ReasoningDelta, TextDelta, ToolCallDelta
from bridle.values.settings import REPLY_BYTES_DEFAULT
from bridle.values.usage import Usage

from .model_connection import ModelConnection


class DeltaCallIds:
    """Gives the deltas of a reply the ids that its calls will have, so that a viewer can match them."""

    def __init__(self, turn: int) -> None:
        self._turn = turn
        self._number_of: dict[int, int] = {}
        """Which call a part of the reply is, by the part's place."""
        self._ready: set[int] = set()

    def identify(self, delta: Delta) -> Delta:
        match delta:
            case ToolCallDelta(index=place):
                return replace(delta, call_id=make_call_id(self._turn, self._call_number(place)))
            case CallReady(index=number, call=call):
                self._ready.add(number)
                return replace(delta, call=replace(call, id=make_call_id(self._turn, number)))
        return delta

    def _call_number(self, place: int) -> int:
        """Calls arrive in their order; one without arguments may arrive without a delta."""
        if place not in self._number_of:
            known = self._ready.union(self._number_of.values())
            self._number_of[place] = max(known, default=-1) + 1
        return self._number_of[place]


class PartialUsage:
    def __init__(self, tokens_max: int | None) -> None:
        self._tokens_max = tokens_max
        self._texts: list[str] = []
        self._reply: Reply | None = None

    def add_delta(self, delta: Delta) -> None:
        match delta:
            case TextDelta(text=words) | ReasoningDelta(reasoning=words) | ToolCallDelta(arguments=words):
                self._texts.append(words)

    def set_reply(self, reply: Reply) -> Reply:
        """It has come to its end: nothing has to be guessed any more."""
        self._reply = reply
        return reply

    def estimate_usage(self, counted: Usage) -> Usage:
        """`counted` is what the provider has said so far."""
        if self._reply is not None:
            return self._reply.usage
        if not self._texts:
            return counted
        heard = estimate_text_tokens("".join(self._texts))
        if counted.output * OVERESTIMATE_FACTOR >= heard:
            return counted  # it counts as it goes
        return replace(counted, output=heard if self._tokens_max is None else min(heard, self._tokens_max))


# Times one model call by a clock that never goes back.


SECONDS_DIGITS = 6
"""Microseconds: finer is noise."""


class Stopwatch:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._started: float | None = None
        self._byte: float | None = None
        self.token_at: float | None = None
        self._stopped: float | None = None

    def start(self) -> None:
        self._started = self._now()

    def note_byte(self) -> None:
        self._byte = self._now() if self._byte is None else self._byte

    def note_token(self) -> None:
        """Note the first token; for the later ones this is not called."""
        self.token_at = self._now()

    def stop(self) -> None:
        self._stopped = self._now()

    @property
    def latency(self) -> Latency | None:
        """None when it was never started; the total counts up to now while it runs."""
        if self._started is None:
            return None
        end = self._now() if self._stopped is None else self._stopped
        return Latency(
            first_byte_seconds=self._since_start(self._byte),
            first_token_seconds=self._since_start(self.token_at),
            total_seconds=self._since_start(end) or 0.0,
        )

    def _since_start(self, at: float | None) -> float | None:
        assert self._started is not None
        if at is None:
            return None
        return round(at - self._started, SECONDS_DIGITS) if at > self._started else 0.0


# Removal of our key from a reply that repeats it, before the reply is kept or shown.


Streamed = TextDelta | ReasoningDelta | ToolCallDelta
"""Deltas that are pieces of something longer."""


def redact_reply(reply: Reply, redactor: Redactor) -> Reply:
    """The reply without the key; the same object when it holds none."""
    parts = [_redact_part(part, redactor) for part in reply.parts]
    words = {
        "id": redactor.redact_text(reply.id),
        "stop_detail": redactor.redact_text(reply.stop_detail),
        "cache_miss_reason": redactor.redact_text(reply.cache_miss_reason),
    }
    redacted = replace(reply, parts=tuple(parts), **words)
    return reply if redacted == reply else redacted


class StreamRedactor:
    """Shows the deltas of one reply without the key, also where the key is split over several of them.

    The end of a delta that may be the beginning of the key waits for the next one.  Nothing else waits, and
    without a key nothing does.
    """

    def __init__(self, redactor: Redactor, show: Callable[[Delta], None]) -> None:
        self._redactor, self._show = redactor, show
        self._last: Streamed | None = None
        self._before = ""
        """The letter shown last: a short key counts only as a word of its own."""
        self._waiting = ""

    def take(self, delta: Delta) -> None:
        if not self._redactor:
            self._show(delta)
        elif isinstance(delta, Streamed):
            self._take_words(delta)
        else:
            self.flush()
            self._show(self._redact_call(delta) if isinstance(delta, CallReady) else delta)

    def flush(self) -> None:
        """Show what waits: nothing that belongs to it follows."""
        if self._waiting and self._last is not None:
            text, start = self._before + self._waiting, len(self._before)
            self._show(_with_words(self._last, self._redactor.redact_span(text, start, len(text))))
        self._last, self._before, self._waiting = None, "", ""

    def _take_words(self, delta: Streamed) -> None:
        if isinstance(delta, ToolCallDelta):
            delta = replace(delta, name=self._redactor.redact_text(delta.name))
        if self._last is None or _place(self._last) != _place(delta):
            self.flush()
        start, new = len(self._before), _words(delta)
        text = self._before + self._waiting + new
        end = max(start, self._redactor.find_open_end(text))
        self._last, self._waiting = delta, text[end:]
        self._before = text[end - 1 : end]
        if end > start or not new or isinstance(delta, ToolCallDelta):
            self._show(_with_words(delta, self._redactor.redact_span(text, start, end)))

    def _redact_call(self, delta: CallReady) -> CallReady:
        """A call that may start early is the one that the reply will have."""
        call = _redact_part(delta.call, self._redactor)
        return replace(delta, call=call) if call is not delta.call else delta


def _place(delta: Streamed) -> tuple[type, int]:
    """Which part of the reply the words belong to."""
    return type(delta), delta.index if isinstance(delta, ToolCallDelta) else 0


def _words(delta: Streamed) -> str:
    match delta:
        case TextDelta(text=words) | ReasoningDelta(reasoning=words) | ToolCallDelta(arguments=words):
            return words


def _with_words(delta: Streamed, words: str) -> Streamed:
    if words == _words(delta):
        return delta
    field = {TextDelta: "text", ReasoningDelta: "reasoning", ToolCallDelta: "arguments"}[type(delta)]
    return replace(delta, **{field: words})


def _redact_part(part: Part, redactor: Redactor) -> Part:
    changed = {}
    for name, value in asdict(part).items():
        if value and isinstance(value, str) and name != "data":
            redacted = redactor.redact_text(value)
            if redacted != value:
                changed[name] = redacted
    return replace(part, **changed) if changed else part


# Names what a person has to change when a provider refuses a key or does not know a model.


def suggest_fix(kind: FailureKind, model: Model) -> str:
    """The variable or the model string to change, in words; empty where neither is to blame."""
    endpoint = model.endpoint
    if kind == "unauthorized":
        names = (*endpoint.key_env, *endpoint.signing_env[:2])
        listed = " or ".join(f"${name}" for name in names)
        return f"check the key for {model.name}" + (f" in {listed}" if listed else "")
    if kind == "not_found":
        address = f" and the address {endpoint.base_url}" if endpoint.custom_address else ""
        return f"check the model string {model.name!r}{address}"
    return ""


# One request, out and back: encode, send, decode.
#
# Only this place knows both the key and the answer, so it removes our key where a provider
# repeats it, in an error or in a reply, before anything is kept.
# What is sent raises Python's audit event `bridle.asked` first.


ERROR_BODY_BYTES_MAX = 1024 * 1024
"""Of an error page nothing is read after this: what it says is in its first lines."""
HTTP_ERROR = 400
KEY_PLACEHOLDER = "[key]"


def _reply_too_long(limit: int) -> Failure:
    message = f"the reply is longer than {limit:,} bytes (reply_bytes_max) and was given up"
    return Failure(kind="garbled", message=message, should_retry=False)


class ModelCall:
    """What is sent is known (`digest`) before anything is; what came back so far is known at any time."""

    def __init__(
        self,
        line: ModelConnection,
        request: Request,
        kept: EncodedHistory,
        *,
        stream: bool,
        now: Callable[[], float],
        bytes_max: int | None = REPLY_BYTES_DEFAULT,
    ) -> None:
        """`now` is the clock that the call is timed by; a reply of more than `bytes_max` is given up."""
        request = replace(request, stream=stream)
        encoded = line.codec.encode(request, kept)
        self.digest, self.model = encoded.digest, line.model
        self._connection, self._request, self._bytes_max = line, request, bytes_max
        self._outgoing = OutgoingRequest(
            method=encoded.method,
            url=line.model.endpoint.base_url.rstrip("/") + encoded.path,
            headers=(*encoded.headers, *line.headers),
            body=encoded.body,
        )
        self._decoder: Decoder | None = None
        self._sent = self._refused = False
        self._partial_usage = PartialUsage(request.max_tokens)
        self._stopwatch = Stopwatch(now)
        self._signature: tuple[tuple[str, str], ...] = ()

    @property
    def partial_text(self) -> str:
        return self._redact_key(self._decoder.partial_text) if self._decoder else ""

    @property
    def usage(self) -> Usage | None:
        """What there is to pay for a reply that never became one; None when there was nothing."""
        if not self._sent or self._refused:
            return None
        return self._partial_usage.estimate_usage(
            self._decoder.partial_usage if self._decoder else Usage(incomplete=True)
        )

    @property
    def latency(self) -> Latency | None:
        """How long it has taken; None when nothing was sent."""
        return self._stopwatch.latency

    def locate_rejected_parts(self, failure: Failure) -> tuple[PartRef, ...]:
        """What of the request the provider stumbled over, where its words tell."""
        return locate_rejected_parts(self._connection.codec, self._request, failure)

    async def send(
        self, show: Callable[[Delta], None], now: float, begun: Callable[[], None] = lambda: None
    ) -> Reply:
        """`now` dates a signature, where one is wanted; `begun` is called when an answer begins."""
        self._sent = True
        self._stopwatch.start()
        outgoing = self._outgoing
        if self._connection.sign_request is not None:
            self._signature = self._connection.sign_request(outgoing, now)
            outgoing = replace(outgoing, headers=(*outgoing.headers, *self._signature))
        sys.audit("bridle.asked", self.digest, outgoing.url, outgoing.body)
        secrets = [each for each in self._list_secrets() if not is_plain_word(each)]
        redactor = Redactor(secrets, KEY_PLACEHOLDER) if secrets else None
        shown = StreamRedactor(redactor, show) if redactor is not None else None
        take = show if shown is None else shown.take
        try:
            async with self._connection.transport.open(outgoing) as answer:
                self._stopwatch.note_byte()
                self._refused = answer.status >= 300
                decoder = self._connection.codec.new_decoder(self._request, answer.status, answer.headers)
                self._decoder = decoder
                if not self._refused:
                    begun()
                heard = 0
                async for chunk in answer.chunks():
                    heard += len(chunk)
                    if self._refused and heard > ERROR_BODY_BYTES_MAX:
                        break  # an error has been said by now; leaving closes the connection
                    if self._bytes_max is not None and heard > self._bytes_max:
                        raise ProviderError(_reply_too_long(self._bytes_max))
                    for delta in decoder.feed(chunk):
                        if self._stopwatch.token_at is None:
                            self._stopwatch.note_token()
                        self._partial_usage.add_delta(delta)
                        take(delta)
            reply = self._partial_usage.set_reply(decoder.close())
            if shown is not None:
                shown.flush()
            if self._stopwatch.token_at is None:
                self._stopwatch.note_token()
            return reply if redactor is None else redact_reply(reply, redactor)
        except ProviderError as error:
            if self._decoder is None and error.failure.kind == "unreachable":
                self._refused = True
            raise ProviderError(self._redact_failure(error.failure)) from None
        finally:
            self._stopwatch.stop()

    def _redact_failure(self, failure: Failure) -> Failure:
        message, code = self._redact_key(failure.message), self._redact_key(failure.code)
        window = find_window_tokens(message) if failure.kind == "context" else None
        if hint := suggest_fix(failure.kind, self._connection.model):
            message = f"{message.rstrip('. ')}; {hint}"
        refused = failure.refused_parameter
        if failure.kind == "invalid" and (failure.status or 0) < HTTP_ERROR:
            refused = find_rejected_parameter(failure.message)  # it came inside a stream
        if refused and not has_parameter(self._request, refused):
            refused = None
        return replace(failure, message=message, code=code, window_tokens=window, refused_parameter=refused)

    def _redact_key(self, words: str) -> str:
        return Redactor(self._list_secrets(), KEY_PLACEHOLDER).redact_text(words)

    def _list_secrets(self) -> frozenset[str]:
        if not self._signature:
            return self._connection.secrets
        signed = (find_header_secrets(name, value) for name, value in self._signature)
        return self._connection.secrets.union(*signed)
