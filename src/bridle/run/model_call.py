"""One model call: encode the request, send it, decode the reply, measure and redact it.

Most providers report output tokens only at the end of a reply.  A reply that is cut off or cancelled is
charged all the same, so its usage is estimated from the received text, rounded up, and never more than
`max_tokens`.

Only this module knows both the key and the response, so it removes the key wherever a provider repeats it,
in an error or a reply, before anything is stored or shown.  Sending raises the audit event `bridle.asked`.
"""

import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING

from msgspec.structs import replace

from bridle.core.compaction.strategies import OVERESTIMATE_FACTOR
from bridle.core.context.token_estimate import estimate_text_tokens
from bridle.core.effects import AskModel
from bridle.core.recovery.failure_policy import has_parameter
from bridle.core.state import State
from bridle.ports.codec import Decoder, EncodedHistory
from bridle.ports.transport import OutgoingRequest
from bridle.providers.wire.failures import HEADER_LISTS_MAX, read_provider_limits
from bridle.providers.wire.rejections import find_rejected_parameter, find_window_tokens
from bridle.run.context.shown_deltas import Streamed, StreamRedactor, read_delta_text, redact_reply
from bridle.run.recovery.rejected_parts import locate_rejected_parts
from bridle.values.errors import Failure, ProviderError
from bridle.values.events import Latency, PartRef
from bridle.values.message import Reply
from bridle.values.redaction import Redactor, find_header_secrets, is_plain_word
from bridle.values.request import Request
from bridle.values.result import AttemptRestarted, Delta
from bridle.values.settings import REPLY_BYTES_DEFAULT, KeepRaw
from bridle.values.usage import Usage

from .model_connection import KEY_PLACEHOLDER, ModelConnection, suggest_fix
from .private_extras import NO_PRIVATE_EXTRAS

if TYPE_CHECKING:
    from bridle.run.replay.raw_recorder import RawRecorder

RAW_MODULE = "bridle.run.replay.raw_recorder"
MICROSECONDS = 1e6
"""Latencies are rounded to microseconds."""
ERROR_BODY_BYTES_MAX = 1024 * 1024
"""Longer error pages are not read further."""
HTTP_ERROR = 400


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
        texts = [read_delta_text(delta) for delta in self.deltas if isinstance(delta, Streamed)]
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
        self.now = now
        self.started_at: float | None = None
        self.byte_at: float | None = None
        self.token_at: float | None = None
        """Time of the first byte, and of the first token."""
        self.stopped_at: float | None = None

    @property
    def latency(self) -> Latency | None:
        """Latency so far; None if the call was never started. The total ends now while the call runs."""
        started, byte, token = self.started_at, self.byte_at, self.token_at
        if started is None:
            return None
        end = self.now() if self.stopped_at is None else self.stopped_at
        return Latency(
            first_byte_seconds=None if byte is None else _round_seconds(byte - started),
            first_token_seconds=None if token is None else _round_seconds(token - started),
            total_seconds=_round_seconds(end - started),
        )


def _round_seconds(seconds: float) -> float:
    """Rounded to microseconds; `round` gives the same and costs more."""
    return int(seconds * MICROSECONDS + 0.5) / MICROSECONDS if seconds > 0 else 0.0


@lru_cache(maxsize=HEADER_LISTS_MAX)
def _reports_limits(names: tuple[str, ...]) -> bool:
    """True if one of these headers is about a rate limit of the provider."""
    return "ratelimit" in " ".join(names)


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
        self._outgoing: OutgoingRequest | None = OutgoingRequest(
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
        redactor, text = self._find_redactor(), self._decoder.partial_text
        return text if redactor is None else redactor.redact_text(text)

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
        self, show: Callable[[list[Delta]], None], now: float, begun: Callable[[], None] = lambda: None
    ) -> Reply:
        """Send the request and decode the reply.  `now` dates a signature; `begun` is called on the first byte.

        `show` gets the deltas of each piece of the response together.
        """
        self._sent = True
        watch = self._stopwatch
        watch.started_at = watch.now()
        outgoing, self._outgoing = self._outgoing, None
        assert outgoing is not None, "a call is sent once"
        if self._connection.sign_request is not None:
            self._signature = self._connection.sign_request(outgoing, now)
            outgoing = replace(outgoing, headers=(*outgoing.headers, *self._signature))
        if not self.model.endpoint.is_program:
            sys.audit("bridle.asked", self.digest, outgoing.url, outgoing.body)
        redactor = self._find_redactor()
        shown: StreamRedactor | None = None
        try:
            async with self._connection.transport.open(outgoing) as answer:
                del outgoing  # its body may be large, and a reply may stream for minutes
                watch.byte_at = watch.now()
                self._refused = answer.status >= 300
                headers = answer.headers
                decoder = self._connection.codec.new_decoder(self._request, answer.status, headers)
                self._decoder = decoder
                if _reports_limits(tuple(headers)):
                    limits = read_provider_limits(headers)
                    self._connection.breakers.set_limits(self.model, limits, watch.now())
                if not self._refused:
                    begun()
                # guard: error-body-limit
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
                    if found := list(feed(chunk)):
                        if not deltas:
                            watch.token_at = watch.now()
                            shown = StreamRedactor(redactor) if redactor is not None else None
                        deltas += found
                        # guard: stream-redacted
                        if ready := found if shown is None else shown.take(found):
                            show(ready)
                    del chunk, found  # not kept while the stream is silent
            reply = self._partial_usage.set_reply(decoder.close())
            if shown is not None and (rest := shown.flush()):
                show(rest)
            if watch.token_at is None:
                watch.token_at = watch.now()
            # guard: reply-redacted
            return reply if redactor is None else redact_reply(reply, redactor)
        except ProviderError as error:
            if self._decoder is None and error.failure.kind == "unreachable":
                self._refused = True
            raise ProviderError(self._redact_failure(error.failure)) from None
        finally:
            watch.stopped_at = watch.now()

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
        # guard: provider-error-redacted
        return self._connection.redact_error(text, self._list_secrets())

    def _find_redactor(self) -> Redactor | None:
        """Removes the secrets of this call from its reply; None if there is none."""
        if not self._signature:
            return self._connection.reply_redactor
        found = [each for each in self._list_secrets() if not is_plain_word(each)]
        return Redactor(found, KEY_PLACEHOLDER) if found else None

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
