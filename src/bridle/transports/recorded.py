"""Transports that play back recordings, and one that records another transport's traffic.

`RecordedTransport` returns recorded responses in order, in slices of any size. A recording that ends in a
failure raises it after its last byte, like a cut connection; a bare failure raises before any response.
Requests are collected in `sent` for tests to inspect.

`RecordingTransport` wraps any transport and passes each finished exchange on without secrets; `ExchangeFile`
writes exchanges as lines of JSON, in the format of all recorded traffic in this project. A response is
recorded when it ends, also if it ends early.

Only headers known to be harmless keep their values. A credential from another header or from the URL is also
removed from URLs, bodies and responses that repeat it (values/redaction.py). Other header values stay in the
body: removing them would change the request and break checksums of binary streams. Bodies compressed with
gzip are stored decompressed.
"""

import json
import os
import re
import stat
import zlib
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self
from urllib.parse import urlsplit

import msgspec

from bridle.ports.transport import OutgoingRequest, Transport, TransportResponse
from bridle.values.base import Value
from bridle.values.errors import Failure, MisuseError, ProviderError
from bridle.values.redaction import (
    Redactor,
    find_header_secrets,
    find_query_secrets,
    is_plain_word,
    redact_json_strings,
    redact_query,
)


class RecordedReply(Value, kw_only=True):
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    failure: Failure | None = None
    """The failure after the last byte, if the response was incomplete."""


class RecordedTransport:
    def __init__(self, answers: Iterable[RecordedReply | Failure], *, slice_bytes: int | None = None) -> None:
        if slice_bytes is not None and slice_bytes < 1:
            raise MisuseError(
                f"slice_bytes must be at least 1, not {slice_bytes}; leave it out for whole bodies"
            )
        self.sent: list[OutgoingRequest] = []
        self._answers = list(answers)
        self._slice_bytes = slice_bytes

    @property
    def remaining(self) -> int:
        """Number of recorded responses not requested yet."""
        return len(self._answers) - len(self.sent)

    def open(self, outgoing: OutgoingRequest) -> "PlaybackExchange":
        if not self.remaining:
            raise MisuseError(
                f"request {len(self.sent) + 1} was made, but only {len(self.sent)} answers are recorded"
            )
        self.sent.append(outgoing)
        return PlaybackExchange(self._answers[len(self.sent) - 1], self._slice_bytes)


class PlaybackExchange:
    def __init__(self, answer: RecordedReply | Failure, slice_bytes: int | None) -> None:
        self._answer = answer if isinstance(answer, RecordedReply) else RecordedReply()
        self._refusal = answer if isinstance(answer, Failure) else None
        self._slice_bytes = slice_bytes or max(1, len(self._answer.body))

    async def __aenter__(self) -> Self:
        if self._refusal is not None:
            raise ProviderError(self._refusal)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    @property
    def status(self) -> int:
        return self._answer.status

    @property
    def headers(self) -> Mapping[str, str]:
        return {name.lower(): value for name, value in self._answer.headers}

    async def chunks(self) -> AsyncIterator[bytes]:
        body, step = self._answer.body, self._slice_bytes
        for start in range(0, len(body), step):
            yield body[start : start + step]
        if self._answer.failure is not None:
            raise ProviderError(self._answer.failure)


SECRET_PLACEHOLDER = "[secret]"  # noqa: S105 - replaces a secret
HARMLESS_HEADERS = re.compile(
    r"content-type|accept|user-agent|.*-version|.*-beta|retry-after(-ms)?|x-should-retry"
)
HTTP_ERROR = 400
GZIP_MAGIC = b"\x1f\x8b"
UNPACKED_BYTES_MAX = 64 * 1024 * 1024
"""Longer decompressed bodies are not recorded."""


class RecordedExchange(Value, kw_only=True):
    """A request without its secrets, and its response."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    answer: RecordedReply
    family: str = ""
    model: str = ""


class RecordingTransport:
    """Records every exchange of another transport; calls `write` when an exchange has ended."""

    def __init__(self, inner: Transport, write: Callable[[RecordedExchange], None], family: str = "") -> None:
        self._inner, self._write, self._family = inner, write, family

    def open(self, outgoing: OutgoingRequest) -> "RecordingExchange":
        return RecordingExchange(self._inner.open(outgoing), outgoing, self._write, self._family)


class RecordingExchange:
    def __init__(
        self,
        inner: AbstractAsyncContextManager[TransportResponse],
        outgoing: OutgoingRequest,
        write: Callable[[RecordedExchange], None],
        family: str,
    ) -> None:
        self._inner, self._outgoing, self._write, self._family = inner, outgoing, write, family
        self._answer: TransportResponse | None = None
        self._chunks: list[bytes] = []
        self._failure: Failure | None = None

    async def __aenter__(self) -> Self:
        try:
            self._answer = await self._inner.__aenter__()
        except ProviderError as error:
            self._failure = error.failure
            self._write_record()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)
        self._write_record()

    @property
    def status(self) -> int:
        assert self._answer is not None
        return self._answer.status

    @property
    def headers(self) -> Mapping[str, str]:
        assert self._answer is not None
        return self._answer.headers

    async def chunks(self) -> AsyncIterator[bytes]:
        assert self._answer is not None
        try:
            async for chunk in self._answer.chunks():
                self._chunks.append(chunk)
                yield chunk
        except ProviderError as error:
            self._failure = error.failure
            raise

    def _write_record(self) -> None:
        answer = self._answer
        recording = RecordedReply(
            status=answer.status if answer else 0,
            headers=tuple(answer.headers.items()) if answer else (),
            body=b"".join(self._chunks),
            failure=self._failure,
        )
        self._write(scrub_exchange(self._outgoing, recording, self._family))


def scrub_exchange(outgoing: OutgoingRequest, answer: RecordedReply, family: str = "") -> RecordedExchange:
    """Remove all secrets from an exchange."""
    secrets = _find_secrets(outgoing)
    redactor = Redactor(secrets, SECRET_PLACEHOLDER)
    # An error may repeat any field of the request within its text; a reply repeats fields as they are.
    error_redactor = Redactor(secrets | outgoing.private_texts, SECRET_PLACEHOLDER)

    def clean(data: bytes, redactor: Redactor = redactor) -> bytes:
        redacted = redactor.redact_bytes(_decompress(data))
        return redact_json_strings(redacted, outgoing.private_texts, SECRET_PLACEHOLDER)

    address = urlsplit(redactor.redact_text(redact_query(outgoing.url, SECRET_PLACEHOLDER)))
    failure = answer.failure
    if failure is not None:
        failure = msgspec.structs.replace(failure, message=error_redactor.redact_text(failure.message))
    body = clean(outgoing.body)
    return RecordedExchange(
        method=outgoing.method,
        path=address.path + (f"?{address.query}" if address.query else ""),
        headers=_harmless_headers(outgoing.headers),
        body=body,
        answer=RecordedReply(
            status=answer.status,
            headers=_harmless_headers(answer.headers),
            body=clean(answer.body, error_redactor if answer.status >= HTTP_ERROR else redactor),
            failure=failure,
        ),
        family=family,
        model=_find_model(body),
    )


def _find_secrets(outgoing: OutgoingRequest) -> set[str]:
    found = {
        secret
        for name, value in outgoing.headers
        if not HARMLESS_HEADERS.fullmatch(name.lower())
        for secret in find_header_secrets(name.lower(), value)
    }
    found.update(find_query_secrets(outgoing.url), outgoing.secrets)
    # guard: recorded-secrets
    return {secret for secret in found if not is_plain_word(secret)}


def _decompress(data: bytes) -> bytes:
    """Return the content of a gzip body: redaction cannot see a key inside compressed data."""
    if not data.startswith(GZIP_MAGIC):
        return data
    unpacking = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacking.decompress(data, UNPACKED_BYTES_MAX)
    except zlib.error:
        return b"[unreadable gzip]"
    return b"[gzip of more than the limit]" if unpacking.unconsumed_tail else unpacked


def encode_exchange(exchanged: RecordedExchange, number: int) -> bytes:
    """Encode an exchange as one line of a recording."""
    answer = exchanged.answer
    response: dict[str, object] = {"status": answer.status, "headers": dict(answer.headers)}
    try:
        response["text"] = answer.body.decode()
    except UnicodeDecodeError:
        response["body_b64"] = b64encode(answer.body).decode()
    if answer.failure is not None:
        response["failure"] = msgspec.to_builtins(answer.failure)
    try:
        body: dict[str, object] = {"json": json.loads(exchanged.body or b"null")}
    except ValueError:
        body = {"json": None, "body_b64": b64encode(exchanged.body).decode()}
    line = {
        "id": f"{number:04}",
        "provider": exchanged.family,
        "model": exchanged.model,
        "fidelity": "raw",
        "provenance": "recorded",
        "features": ["truncated_stream"] if answer.failure is not None else [],
        "request": {
            "method": exchanged.method,
            "path": exchanged.path,
            "headers": dict(exchanged.headers),
            **body,
        },
        "response": response,
    }
    return json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"


def read_exchanges(path: Path) -> tuple[RecordedExchange, ...]:
    """Read a recording; raise `MisuseError` if the file is not one."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        if len(data) > FILE_BYTES_MAX:
            raise MisuseError(f"{path} has more than {FILE_BYTES_MAX:,} bytes; no recording is so large")
        lines = data.splitlines()
        return tuple(_decode_exchange(json.loads(line)) for line in lines if line.strip())
    except OSError as error:
        raise MisuseError(f"cannot read the recording {path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise MisuseError(f"{path} is not a recording: {type(error).__name__}: {error}") from None


def _decode_exchange(line: dict[str, dict[str, object]]) -> RecordedExchange:
    request, response = line["request"], line["response"]
    failure, headers = response.get("failure"), response.get("headers")
    body = request.get("body_b64")
    return RecordedExchange(
        method=str(request["method"]),
        path=str(request["path"]),
        headers=_header_pairs(request.get("headers")),
        body=b64decode(str(body)) if body is not None else json.dumps(request["json"]).encode(),
        answer=RecordedReply(
            status=int(str(response["status"])),
            headers=_header_pairs(headers),
            body=b64decode(str(response["body_b64"]))
            if "body_b64" in response
            else str(response["text"]).encode(),
            failure=msgspec.convert(failure, Failure) if failure is not None else None,
        ),
        family=str(line.get("provider", "")),
        model=str(line.get("model", "")),
    )


def _header_pairs(headers: object) -> tuple[tuple[str, str], ...]:
    return (
        tuple((str(name), str(value)) for name, value in headers.items()) if isinstance(headers, dict) else ()
    )


def _harmless_headers(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in headers if HARMLESS_HEADERS.fullmatch(name.lower()))


def _find_model(body: bytes) -> str:
    try:
        given = json.loads(body)
    except ValueError:
        return ""
    return str(given.get("model", "")) if isinstance(given, dict) else ""


FILE_BYTES_MAX = 512 * 1024 * 1024


class ExchangeFile:
    """A file of recorded exchanges, readable by its owner only; counts those omitted once it is full."""

    def __init__(self, path: Path, *, append: bool = False, bytes_max: int = FILE_BYTES_MAX) -> None:
        """Open the file; raise `OSError` if it cannot be written."""
        self.path = path
        self.omitted = 0
        self._bytes_max = bytes_max
        self._count = 0
        self._file = _open_private(path, append=append)
        self._size = os.fstat(self._file.fileno()).st_size

    def write(self, exchanged: RecordedExchange) -> None:
        line = encode_exchange(exchanged, self._count + 1)
        if self.omitted or self._size + len(line) > self._bytes_max:
            self.omitted += 1
            return
        self._file.write(line)
        self._count += 1
        self._size += len(line)

    def close(self) -> None:
        self._file.close()

    @property
    def warning(self) -> str:
        """Text that reports omitted exchanges; empty if there are none."""
        if not self.omitted:
            return ""
        return f"{self.path} is full ({self._bytes_max:,} bytes): {self.omitted} exchanges were not written"


def _open_private(path: Path, *, append: bool) -> BinaryIO:
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | (os.O_APPEND if append else os.O_TRUNC)
    descriptor = os.open(path, flags, 0o600)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode) and hasattr(os, "fchmod"):
            # guard: recording-file-mode
            os.fchmod(descriptor, 0o600)  # an existing file may be readable by others
        return os.fdopen(descriptor, "ab" if append else "wb", buffering=0)
    except BaseException:
        os.close(descriptor)
        raise
