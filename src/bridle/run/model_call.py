"""One model call: encode the request, send it, decode the reply, measure and redact it.

Most providers report output tokens only at the end of a reply.  A reply that is cut off or cancelled is
charged all the same, so its usage is estimated from the received text, rounded up, and never more than
`max_tokens`.

Only this module knows both the key and the response, so it removes the key wherever a provider repeats it,
in an error or a reply, before anything is stored or shown.  Sending raises the audit event `bridle.asked`.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec.structs import asdict, replace

from bridle.core.calls.dispatch import make_call_id
from bridle.core.compaction.strategies import OVERESTIMATE_FACTOR
from bridle.core.context.token_estimate import estimate_text_tokens
from bridle.core.effects import AskModel
from bridle.core.recovery.failure_policy import has_parameter
from bridle.core.state import State
from bridle.ports.codec import Decoder, EncodedHistory
from bridle.ports.transport import OutgoingRequest
from bridle.providers.wire.failures import read_provider_limits
from bridle.providers.wire.rejections import find_rejected_parameter, find_window_tokens
from bridle.run.recovery.rejected_parts import locate_rejected_parts
from bridle.values.errors import Failure, FailureKind, ProviderError
from bridle.values.events import Latency, PartRef
from bridle.values.message import Part, Reply
from bridle.values.model import Model
from bridle.values.redaction import Redactor, find_header_secrets, is_plain_word
from bridle.values.request import Request
from bridle.values.result import AttemptRestarted, CallReady, Delta, ReasoningDelta, TextDelta, ToolCallDelta
from bridle.values.settings import REPLY_BYTES_DEFAULT, KeepRaw
from bridle.values.usage import Usage

from .model_connection import KEY_PLACEHOLDER, ModelConnection
from .private_extras import NO_PRIVATE_EXTRAS

if TYPE_CHECKING:
    from bridle.run.replay.raw_recorder import RawRecorder

RAW_MODULE = "bridle.run.replay.raw_recorder"
SECONDS_DIGITS = 6
"""Latencies are rounded to microseconds."""
Streamed = TextDelta | ReasoningDelta | ToolCallDelta
"""Deltas that continue each other."""
ERROR_BODY_BYTES_MAX = 1024 * 1024
"""Longer error pages are not read further."""
HTTP_ERROR = 400


class DeltaCallIds:
    """Gives deltas the ids their calls will have in the reply, so that a viewer can match them."""

    def __init__(self, turn: int) -> None:
        self._turn = turn
        self._number_of: dict[int, int] = {}
        """Call numbers by the index of the part in the reply."""
        self._ready: set[int] = set()

    def identify(self, delta: Delta) -> Delta:
        match delta:
            case ToolCallDelta(index=index):
                return replace(delta, call_id=make_call_id(self._turn, self._call_number(index)))
            case CallReady(index=number, call=call):
                self._ready.add(number)
                return replace(delta, call=replace(call, id=make_call_id(self._turn, number)))
        return delta

    def _call_number(self, index: int) -> int:
        """Calls arrive in order; a call without arguments may arrive without a delta."""
        if index not in self._number_of:
            known = self._ready.union(self._number_of.values())
            self._number_of[index] = max(known, default=-1) + 1
        return self._number_of[index]


class PartialUsage:
    """Estimates the usage of a reply that may break off."""

    def __init__(self, tokens_max: int | None) -> None:
        self._tokens_max = tokens_max
        self.deltas: list[Delta] = []
        """Deltas of the reply so far."""
        self._reply: Reply | None = None

    def set_reply(self, reply: Reply) -> Reply:
        """Note the complete reply, whose usage needs no estimate."""
        self._reply = reply
        return reply

    def estimate_usage(self, counted: Usage) -> Usage:
        """Estimate the usage so far; `counted` is what the provider has reported."""
        if self._reply is not None:
            return self._reply.usage
        texts = [_delta_text(delta) for delta in self.deltas if isinstance(delta, Streamed)]
        if not texts:
            return counted
        estimate = estimate_text_tokens("".join(texts))
        if counted.output * OVERESTIMATE_FACTOR >= estimate:
            return counted  # this provider counts during the reply
        output = estimate if self._tokens_max is None else min(estimate, self._tokens_max)
        return replace(counted, output=output)


class Stopwatch:
    """Times one model call on a monotonic clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = self._now = now
        self._started: float | None = None
        self._byte: float | None = None
        self.token_at: float | None = None
        self._stopped: float | None = None

    def start(self) -> None:
        self._started = self._now()

    def note_byte(self) -> None:
        self._byte = self._now() if self._byte is None else self._byte

    def note_token(self) -> None:
        """Note the first token; not called for later ones."""
        self.token_at = self._now()

    def stop(self) -> None:
        self._stopped = self._now()

    @property
    def latency(self) -> Latency | None:
        """Latency so far; None if the call was never started. The total ends now while the call runs."""
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


def redact_reply(reply: Reply, redactor: Redactor) -> Reply:
    """The reply without the key; the same object if it contains none."""
    parts = tuple(_redact_part(part, redactor) for part in reply.parts)
    id_, detail = redactor.redact_text(reply.id), redactor.redact_text(reply.stop_detail)
    reason = redactor.redact_text(reply.cache_miss_reason)
    kept = (reply.parts, reply.id, reply.stop_detail, reply.cache_miss_reason)
    if (parts, id_, detail, reason) == kept:
        return reply
    return replace(reply, parts=parts, id=id_, stop_detail=detail, cache_miss_reason=reason)


class StreamRedactor:
    """Shows the deltas of one reply without the key, even if the key is split over several deltas.

    The end of a delta that may be the start of the key is delayed until the next delta; nothing else is.
    """

    def __init__(self, redactor: Redactor, show: Callable[[Delta], None]) -> None:
        self._redactor, self._has_secrets, self._show = redactor, bool(redactor), show
        self._last: Streamed | None = None
        self._before = ""
        """The last character shown: a short key is redacted only as a whole word."""
        self._waiting = ""

    def take(self, delta: Delta) -> None:
        if not self._has_secrets:
            self._show(delta)
        elif isinstance(delta, Streamed):
            text = _delta_text(delta)
            names_tool = isinstance(delta, ToolCallDelta) and delta.name
            if self._waiting or not text or names_tool or self._redactor.is_suspect(text):
                self._take_text(delta)
            else:
                self._last, self._before = delta, text[-1]
                self._show(delta)
        else:
            self.flush()
            self._show(self._redact_call(delta) if isinstance(delta, CallReady) else delta)

    def flush(self) -> None:
        """Show the delayed text; no continuation follows."""
        if self._waiting and self._last is not None:
            text, start = self._before + self._waiting, len(self._before)
            self._show(_with_text(self._last, self._redactor.redact_span(text, start, len(text))))
        self._last, self._before, self._waiting = None, "", ""

    def _take_text(self, delta: Streamed) -> None:
        if isinstance(delta, ToolCallDelta):
            delta = replace(delta, name=self._redactor.redact_text(delta.name))
        if self._last is None or _part_key(self._last) != _part_key(delta):
            self.flush()
        start, new = len(self._before), _delta_text(delta)
        text = self._before + self._waiting + new
        end = max(start, self._redactor.find_open_end(text))
        self._last, self._waiting = delta, text[end:]
        self._before = text[end - 1 : end]
        if end > start or not new or isinstance(delta, ToolCallDelta):
            self._show(_with_text(delta, self._redactor.redact_span(text, start, end)))

    def _redact_call(self, delta: CallReady) -> CallReady:
        """Redact like the reply does: an early call must equal the call in the reply."""
        call = _redact_part(delta.call, self._redactor)
        return replace(delta, call=call) if call is not delta.call else delta


def _part_key(delta: Streamed) -> tuple[type, int]:
    """Identifies the part of the reply that the text belongs to."""
    return type(delta), delta.index if isinstance(delta, ToolCallDelta) else 0


def _delta_text(delta: Streamed) -> str:
    match delta:
        case TextDelta(text=text) | ReasoningDelta(reasoning=text) | ToolCallDelta(arguments=text):
            return text


def _with_text(delta: Streamed, text: str) -> Streamed:
    if text == _delta_text(delta):
        return delta
    field = {TextDelta: "text", ReasoningDelta: "reasoning", ToolCallDelta: "arguments"}[type(delta)]
    return replace(delta, **{field: text})


def _redact_part(part: Part, redactor: Redactor) -> Part:
    changed = {}
    for name, value in asdict(part).items():
        if value and isinstance(value, str) and name != "data":
            redacted = redactor.redact_text(value)
            if redacted != value:
                changed[name] = redacted
    return replace(part, **changed) if changed else part


def suggest_fix(kind: FailureKind, model: Model) -> str:
    """Name the key variable or the model string to check; empty if neither is the cause."""
    endpoint = model.endpoint
    if kind == "unauthorized":
        names = (*endpoint.key_env, *endpoint.signing_env[:2])
        listed = " or ".join(f"${name}" for name in names)
        return f"check the key for {model.name}" + (f" in {listed}" if listed else "")
    if kind == "not_found":
        address = f" and the address {endpoint.base_url}" if endpoint.custom_address else ""
        return f"check the model string {model.name!r}{address}"
    return ""


def _reply_too_long(limit: int) -> Failure:
    message = f"the reply exceeds {limit:,} bytes (reply_bytes_max) and was abandoned"
    return Failure(kind="garbled", message=message, should_retry=False)


class ModelCall:
    """One request and its reply.  `digest` is known before sending; usage and text at any time."""

    def __init__(
        self,
        connection: ModelConnection,
        request: Request,
        history: EncodedHistory,
        *,
        stream: bool,
        now: Callable[[], float],
        bytes_max: int | None = REPLY_BYTES_DEFAULT,
        keep_raw: KeepRaw | None = None,
    ) -> None:
        """Encode the request.  `now` times the call; a reply of more than `bytes_max` is abandoned."""
        self.raw: RawRecorder | None = None
        if keep_raw is not None:
            self.raw = import_module(RAW_MODULE).RawRecorder(connection, keep_raw, streamed=stream)
            connection = self.raw.connection
        if request.stream != stream:
            request = replace(request, stream=stream)
        if request.extras or connection.private_extras is not NO_PRIVATE_EXTRAS:
            request = connection.private_extras.restore(request)
        encoded = connection.codec.encode(request, history)
        self.digest, self.model = encoded.digest, connection.model
        self._connection, self._request, self._bytes_max = connection, request, bytes_max
        self._outgoing = OutgoingRequest(
            method=encoded.method,
            url=connection.model.endpoint.base_url.rstrip("/") + encoded.path,
            headers=(*encoded.headers, *connection.headers),
            body=encoded.body,
            secrets=connection.private_extras.credentials,
            private_texts=connection.private_extras.texts,
        )
        self._decoder: Decoder | None = None
        self._sent = self._refused = False
        self._partial_usage = PartialUsage(request.max_tokens)
        self._stopwatch = Stopwatch(now)
        self._signature: tuple[tuple[str, str], ...] = ()

    @property
    def partial_text(self) -> str:
        if self._decoder is None:
            return ""
        return Redactor(self._reply_secrets(), KEY_PLACEHOLDER).redact_text(self._decoder.partial_text)

    @property
    def usage(self) -> Usage | None:
        """Usage to charge for an incomplete reply; None if nothing was sent or the request was refused."""
        if not self._sent or self._refused:
            return None
        return self._partial_usage.estimate_usage(
            self._decoder.partial_usage if self._decoder else Usage(incomplete=True)
        )

    @property
    def latency(self) -> Latency | None:
        """Latency so far; None if nothing was sent."""
        return self._stopwatch.latency

    def locate_rejected_parts(self, failure: Failure) -> tuple[PartRef, ...]:
        """The parts of the request that the provider rejected, if its message identifies them."""
        return locate_rejected_parts(self._connection.codec, self._request, failure)

    async def send(
        self, show: Callable[[Delta], None], now: float, begun: Callable[[], None] = lambda: None
    ) -> Reply:
        """Send the request and decode the reply.  `now` dates a signature; `begun` is called on the first byte."""
        self._sent = True
        self._stopwatch.start()
        outgoing = self._outgoing
        if self._connection.sign_request is not None:
            self._signature = self._connection.sign_request(outgoing, now)
            outgoing = replace(outgoing, headers=(*outgoing.headers, *self._signature))
        if not self.model.endpoint.is_program:
            sys.audit("bridle.asked", self.digest, outgoing.url, outgoing.body)
        secrets = self._reply_secrets()
        redactor = Redactor(secrets, KEY_PLACEHOLDER) if secrets else None
        shown = StreamRedactor(redactor, show) if redactor else None
        take = show if shown is None else shown.take
        try:
            async with self._connection.transport.open(outgoing) as answer:
                self._stopwatch.note_byte()
                self._refused = answer.status >= 300
                decoder = self._connection.codec.new_decoder(self._request, answer.status, answer.headers)
                self._decoder = decoder
                if "ratelimit" in " ".join(answer.headers):
                    limits = read_provider_limits(answer.headers)
                    self._connection.breakers.set_limits(self.model, limits, self._stopwatch.now())
                if not self._refused:
                    begun()
                received, bytes_max = (
                    0,
                    ERROR_BODY_BYTES_MAX if self._refused else self._bytes_max or sys.maxsize,
                )
                feed, deltas = decoder.feed, self._partial_usage.deltas
                async for chunk in answer.chunks():
                    received += len(chunk)
                    if received > bytes_max:
                        if self._refused:
                            break  # leaving the loop closes the connection
                        raise ProviderError(_reply_too_long(bytes_max))
                    for delta in feed(chunk):
                        if not deltas:
                            self._stopwatch.note_token()
                        deltas.append(delta)
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
        message, code = self._redact_error(failure.message), self._redact_error(failure.code)
        window = find_window_tokens(message) if failure.kind == "context" else None
        if hint := suggest_fix(failure.kind, self._connection.model):
            message = f"{message.rstrip('. ')}; {hint}"
        refused = failure.refused_parameter
        if failure.kind == "invalid" and (failure.status or 0) < HTTP_ERROR:
            refused = find_rejected_parameter(failure.message)  # an error inside a stream
        if refused and not has_parameter(self._request, refused):
            refused = None
        return replace(failure, message=message, code=code, window_tokens=window, refused_parameter=refused)

    def _redact_error(self, text: str) -> str:
        return self._connection.redact_error(text, self._list_secrets())

    def _reply_secrets(self) -> list[str]:
        """Secrets to remove from replies. A secret that is a plain word stays: it may be part of an ordinary text."""
        return [each for each in self._list_secrets() if not is_plain_word(each)]

    def _list_secrets(self) -> frozenset[str]:
        if not self._signature:
            return self._connection.secrets
        signed = (find_header_secrets(name, value) for name, value in self._signature)
        return self._connection.secrets.union(*signed)


def describe_restart(effect: AskModel, state: State) -> AttemptRestarted:
    """Notice shown before another attempt: its reason, its wait, and whether shown text is void."""
    failure, abandoned = state.run.attempt.failure, state.run.route.abandoned_models
    return AttemptRestarted(
        attempt=effect.attempt,
        reason=failure.message if failure else abandoned[-1][1] if abandoned else "",
        after_failure=effect.after_failure,
        wait_seconds=effect.wait_seconds,
        wait_source=effect.wait_source,
        is_text_void=bool(state.run.attempt.partial_text),
    )
