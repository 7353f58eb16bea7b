"""Queues spans and sends them from a thread of its own.

`export` only appends to a bounded queue; `export_later` lets the thread derive the spans, too. A receiver that is
slow, absent or failing costs spans, which are counted and reported once; it never costs a run. At the end of a run the
thread sends at once; at the end of the process it has `EXIT_SECONDS` to finish.
"""

import atexit
import gzip
import logging
import os
import ssl
import threading
import time
import urllib.request
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import cache
from http.client import HTTPException, HTTPResponse, InvalidURL
from typing import IO, NoReturn
from urllib.error import HTTPError
from uuid import uuid4

from bridle.ports.forbidden_requests import RequestForbidden, check_request
from bridle.values.record import Span
from bridle.values.text import escape_text, locate_error

from .encode import count_rejected, encode_metrics, make_resource
from .endpoint import ExportSettings, SignalEndpoint
from .metrics import Metrics
from .sampling import Sampler
from .settings import Telemetry
from .span_bytes import encode_spans

LOG = logging.getLogger("bridle")
EXIT_SECONDS = 5.0
RETRIED_STATUSES = (408, 429, 502, 503, 504)
ATTEMPTS_MAX = 5
# not from outside: time that we wait for our own work
BACKOFF_SECONDS, BACKOFF_SECONDS_MAX = 0.5, 15.0
GATHER_SECONDS = 0.05
"""Wait after the end of a run, so that runs that end together are sent together."""
# not from outside: names and requests that we make
BATCH_BYTES_MAX = 3_000_000
RECENT_IDS_MAX = 20_000
DEFERRED_MAX = 256
"""Sessions whose records wait for the thread; further ones derive their spans at once."""
ANSWER_BYTES_MAX, READ_BYTES = 1024 * 1024, 64 * 1024
"""Bytes of an answer of the receiver, which has a number and a text; and of one piece of it."""
PROTOBUF = "application/x-protobuf"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, which would carry spans and headers to another host."""

    def redirect_request(
        self, req: object, fp: IO[bytes], code: int, msg: str, headers: object, newurl: str
    ) -> None:
        return None


class SendFailed(Exception):
    """A request to the receiver failed; `should_retry` if another attempt may succeed."""

    def __init__(self, message: str, *, should_retry: bool, wait_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.should_retry, self.wait_seconds = should_retry, wait_seconds


class OtlpExporter:
    """Sends spans and metrics to an OTLP receiver over HTTP."""

    def __init__(self, telemetry: Telemetry, settings: ExportSettings) -> None:
        self._settings, self._sampler = settings, Sampler(telemetry)
        self._metrics = Metrics(telemetry.metric_labels, telemetry.label_values_max)
        self._resource = make_resource({"service.instance.id": uuid4().hex, **settings.resource})
        self._queue: deque[Span] = deque()
        self._deferred: deque[Callable[[], None]] = deque()
        self._recent: OrderedDict[bytes, None] = OrderedDict()
        """Ids of the latest spans; an id is sent once."""
        self._lock, self._idle = threading.Lock(), threading.Condition()
        self._wake = threading.Event()
        self._is_closing = False
        self._requested = self._served = 0
        """Numbers of the latest flush that was requested, and of the latest that is done."""
        self._thread: threading.Thread | None = None
        self._process = 0
        self.dropped = self.sent = 0
        """Spans that were given up, and spans that the receiver accepted."""
        self._warned: set[str] = set()

    def export(self, spans: Sequence[Span]) -> None:
        if not spans:
            return
        if self._process != os.getpid():
            self._start_thread()
        room = self._settings.queue_size - len(self._queue)
        if room < len(spans):
            self._drop(len(spans) - max(room, 0), "the queue is full")
            spans = spans[: max(room, 0)]
        self._queue.extend(spans)
        if len(self._queue) >= self._settings.batch_size or any(span.ends_run for span in spans):
            self._wake.set()

    def export_later(self, export_pending: Callable[[], None], *, is_urgent: bool) -> None:
        if self._process != os.getpid():
            self._start_thread()
        if len(self._deferred) < DEFERRED_MAX:
            self._deferred.append(export_pending)
        else:
            export_pending()
        if is_urgent:
            self._wake.set()

    def flush(self, seconds: float = EXIT_SECONDS) -> bool:
        """Send everything that is queued; returns False if that takes longer."""
        if self._thread is None or self._process != os.getpid():
            return not self._queue and not self._deferred
        with self._idle:
            self._requested += 1
            wanted = self._requested
            self._wake.set()
            return self._idle.wait_for(lambda: self._served >= wanted, seconds)

    def close(self) -> None:
        """Send what is left within `EXIT_SECONDS`; for the end of the process."""
        if self._thread is None or self._process != os.getpid():
            return
        self._is_closing = True
        if not self.flush(EXIT_SECONDS):
            self._drop(len(self._queue), f"the receiver did not take them within {EXIT_SECONDS:g} seconds")
        if self.dropped:
            LOG.warning("telemetry: %s of %s spans were not exported", self.dropped, self.dropped + self.sent)

    def _start_thread(self) -> None:
        """Start the thread; also in a child process, where the parent's spans are not sent again."""
        with self._lock:
            if self._process == os.getpid():
                return
            self._queue.clear()
            self._deferred.clear()
            self._wake, self._idle = threading.Event(), threading.Condition()
            self._thread = threading.Thread(target=self._run, name="bridle-telemetry", daemon=True)
            self._process = os.getpid()
            self._thread.start()
            atexit.register(self.close)

    def _run(self) -> None:
        next_metrics = time.monotonic() + self._settings.metrics_seconds
        while True:
            woken = self._wake.wait(self._settings.delay_seconds)
            if woken and not self._is_closing:
                time.sleep(GATHER_SECONDS)
            self._wake.clear()
            serving = self._requested
            is_due = time.monotonic() >= next_metrics or self._is_closing
            try:
                self._send_queue()
                if is_due:
                    self._send_metrics()
                    next_metrics = time.monotonic() + self._settings.metrics_seconds
            except Exception as error:  # noqa: BLE001 - telemetry can never end a process
                self._warn("failed", f"the exporter failed: {locate_error(error)}")
            with self._idle:
                self._served = serving
                self._idle.notify_all()

    def _send_queue(self) -> None:
        while self._deferred or self._queue:
            while self._deferred and len(self._queue) < self._settings.batch_size:
                self._deferred.popleft()()
            size = min(len(self._queue), self._settings.batch_size)
            batch = self._skip_repeated([self._queue.popleft() for _ in range(size)])
            for span in batch:
                self._metrics.count_span(span)
            given_up = self._sampler.given_up
            chosen = self._sampler.choose(batch)
            if self._sampler.given_up > given_up:
                self._drop(self._sampler.given_up - given_up, "too many traces were held back for sampling")
            if chosen and self._settings.traces is not None:
                self._send_spans(chosen, self._settings.traces)

    def _skip_repeated(self, spans: list[Span]) -> list[Span]:
        fresh = []
        for span in spans:
            if span.span_id not in self._recent:
                self._recent[span.span_id] = None
                fresh.append(span)
        while len(self._recent) > RECENT_IDS_MAX:
            self._recent.popitem(last=False)
        return fresh

    def _send_spans(self, spans: list[Span], target: SignalEndpoint) -> None:
        body = encode_spans(spans, self._resource)
        if len(body) > BATCH_BYTES_MAX and len(spans) > 1:
            half = len(spans) // 2
            self._send_spans(spans[:half], target)
            self._send_spans(spans[half:], target)
            return
        try:
            rejected = count_rejected(self._send(body, target))
        except SendFailed as failed:
            self._drop(len(spans), str(failed))
            return
        if rejected:
            self._drop(rejected, "the receiver rejected them; its log has the reason")
        self.sent += len(spans) - rejected

    def _send_metrics(self) -> None:
        target, snapshot = self._settings.metrics, self._metrics.snapshot()
        if target is None or snapshot is None:
            return
        try:
            self._send(encode_metrics(snapshot, self._resource), target)
        except SendFailed as failed:
            if not failed.should_retry:
                self._settings = self._settings._replace(metrics=None)
            self._warn("metrics", f"metrics were not exported: {failed}")

    def _send(self, body: bytes, target: SignalEndpoint) -> bytes:
        """Send one request, again if the receiver is busy; raises `SendFailed`."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return post(body, target)
            except SendFailed as failed:
                if not failed.should_retry or attempt == ATTEMPTS_MAX or self._is_closing:
                    raise
                wait = max(failed.wait_seconds, BACKOFF_SECONDS * 2 ** (attempt - 1))
                time.sleep(min(wait, BACKOFF_SECONDS_MAX))
        raise AssertionError

    def _drop(self, count: int, why: str) -> None:
        if count:
            self.dropped += count
            self._metrics.dropped.add((), count)
            self._warn("dropped", f"{count} spans were not exported: {why}; further losses are only counted")

    def _warn(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self._warned.add(kind)
            # guard: exporter-warning-escaped
            LOG.warning("telemetry: %s", escape_text(message))


@cache
def open_client(encrypted: bool, certificate: str) -> urllib.request.OpenerDirector:  # noqa: FBT001
    """The HTTP client; made once, because loading certificates takes longer than sending a batch."""
    if not encrypted:
        return urllib.request.build_opener(_NoRedirect)
    context = ssl.create_default_context(cafile=certificate or None)
    return urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=context))


def post(body: bytes, target: SignalEndpoint) -> bytes:
    """Send one OTLP request and return the response; raises `SendFailed`."""
    try:
        check_request(target.url)
    except RequestForbidden as error:
        _fail(target, str(error), False)
    headers = {"content-type": PROTOBUF, "user-agent": "bridle", **target.headers}
    if target.compressed:
        body, headers["content-encoding"] = gzip.compress(body, 1), "gzip"
    request = urllib.request.Request(target.url, body, headers)  # noqa: S310 - only http and https are accepted
    try:
        with open_client(target.url.startswith("https:"), target.certificate).open(
            request, timeout=target.timeout_seconds
        ) as response:
            return _read_answer(response, target)
    except HTTPError as error:
        error.close()
        _fail(
            target, f"status {error.code}", error.code in RETRIED_STATUSES, error.headers.get("retry-after")
        )
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        # Other messages may contain a header or an address with a key.
        _fail(
            target,
            getattr(reason, "strerror", None) or type(reason).__name__,
            not isinstance(error, InvalidURL),
        )


def _read_answer(response: HTTPResponse, target: SignalEndpoint) -> bytes:
    """The receiver's answer; raises `SendFailed` for one without end, and no more of it is read."""
    answer, ends = b"", time.monotonic() + target.timeout_seconds
    while piece := response.read1(READ_BYTES):
        answer += piece
        if len(answer) > ANSWER_BYTES_MAX or time.monotonic() > ends:
            limits = f"{ANSWER_BYTES_MAX:,} bytes or {target.timeout_seconds:g} seconds"
            _fail(target, f"its answer takes more than {limits}", should_retry=False)
    return answer


def _fail(target: SignalEndpoint, why: str, should_retry: bool, wait: str | None = None) -> NoReturn:  # noqa: FBT001
    seconds = float(wait) if wait and wait.isdecimal() else 0.0
    raise SendFailed(
        f"{target.url.partition('?')[0]}: {why}", should_retry=should_retry, wait_seconds=seconds
    ) from None
