"""Any transport, with everything that passes written down, and without the secrets.

One line of JSON for each exchange, in the format that recorded traffic has everywhere in
this project: whatever reads recordings reads these.  An answer is written when it has ended,
also when it ended in the middle.

Only headers that are known to be harmless are kept with their values.  A credential that another header
or the address held is also removed from addresses, bodies and answers, should it be repeated there
(values/redaction.py).  All other words of a header stay in the body: removing them would change what was
asked, and break the checksums of binary streams.  Bodies that are packed with gzip are kept unpacked.
"""

import json
import re
import zlib
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import msgspec

from ..ports.transport import Answer, Outgoing, Transport
from ..values.errors import Failure, MisuseError, ProviderError
from ..values.redaction import (
    Redactor,
    find_header_secrets,
    find_query_secrets,
    is_plain_word,
    redact_query,
)
from ..values.value import Value
from .recorded import Recording

GONE = "[secret]"
HARMLESS = re.compile(r"content-type|accept|user-agent|.*-version|.*-beta|retry-after(-ms)?|x-should-retry")
GZIP = b"\x1f\x8b"
UNPACKED_BYTES_MAX = 64 * 1024 * 1024
"""A packed body that becomes longer is not kept."""


class Exchanged(Value):
    """A request without its secrets, and what came of it."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    answer: Recording
    family: str = ""
    model: str = ""


class RecordingTransport:
    """`write` is given each exchange when it has ended."""

    def __init__(self, inner: Transport, write: Callable[[Exchanged], None], family: str = "") -> None:
        self._inner, self._write, self._family = inner, write, family

    def open(self, outgoing: Outgoing) -> "OverheardExchange":
        return OverheardExchange(self._inner.open(outgoing), outgoing, self._write, self._family)


class OverheardExchange:
    def __init__(
        self,
        inner: AbstractAsyncContextManager[Answer],
        outgoing: Outgoing,
        write: Callable[[Exchanged], None],
        family: str,
    ) -> None:
        self._inner, self._outgoing, self._write, self._family = inner, outgoing, write, family
        self._answer: Answer | None = None
        self._heard: list[bytes] = []
        self._failure: Failure | None = None

    async def __aenter__(self) -> Self:
        try:
            self._answer = await self._inner.__aenter__()
        except ProviderError as error:
            self._failure = error.failure
            self._note()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._inner.__aexit__(kind, error, trace)
        self._note()

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
                self._heard.append(chunk)
                yield chunk
        except ProviderError as error:
            self._failure = error.failure
            raise

    def _note(self) -> None:
        answer = self._answer
        recording = Recording(
            status=answer.status if answer else 0,
            headers=tuple(answer.headers.items()) if answer else (),
            body=b"".join(self._heard),
            failure=self._failure,
        )
        self._write(scrubbed(self._outgoing, recording, self._family))


def scrubbed(outgoing: Outgoing, answer: Recording, family: str = "") -> Exchanged:
    """An exchange without anything that only its owner may know."""
    redactor = Redactor(_find_secrets(outgoing), GONE)

    def clean(data: bytes) -> bytes:
        return redactor.redact_bytes(_unpack(data))

    address = urlsplit(redactor.redact_text(redact_query(outgoing.url, GONE)))
    failure = answer.failure
    if failure is not None:
        failure = msgspec.structs.replace(failure, message=redactor.redact_text(failure.message))
    body = clean(outgoing.body)
    return Exchanged(
        method=outgoing.method,
        path=address.path + (f"?{address.query}" if address.query else ""),
        headers=_known(outgoing.headers),
        body=body,
        answer=Recording(
            status=answer.status, headers=_known(answer.headers), body=clean(answer.body), failure=failure
        ),
        family=family,
        model=_model(body),
    )


def _find_secrets(outgoing: Outgoing) -> set[str]:
    found = {
        secret
        for name, value in outgoing.headers
        if not HARMLESS.fullmatch(name.lower())
        for secret in find_header_secrets(name.lower(), value)
    }
    found.update(find_query_secrets(outgoing.url))
    return {secret for secret in found if not is_plain_word(secret)}


def _unpack(data: bytes) -> bytes:
    """A gzip body as what it holds: neither the key inside nor the encoding of the header would show."""
    if not data.startswith(GZIP):
        return data
    unpacking = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacking.decompress(data, UNPACKED_BYTES_MAX)
    except zlib.error:
        return b"[unreadable gzip]"
    return b"[gzip of more than the limit]" if unpacking.unconsumed_tail else unpacked


def written(exchanged: Exchanged, number: int) -> bytes:
    """The exchange as a line of a file of recordings."""
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


def read_exchanges(path: Path) -> tuple[Exchanged, ...]:
    """Everything that was written to a file; raises `MisuseError` when it is something else."""
    try:
        lines = path.read_bytes().splitlines()
        return tuple(_read(json.loads(line)) for line in lines if line.strip())
    except OSError as error:
        raise MisuseError(f"cannot read the recording {path}: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise MisuseError(f"{path} is not a recording: {type(error).__name__}: {error}") from None


def _read(line: dict[str, dict[str, object]]) -> Exchanged:
    request, response = line["request"], line["response"]
    failure, headers = response.get("failure"), response.get("headers")
    body = request.get("body_b64")
    return Exchanged(
        method=str(request["method"]),
        path=str(request["path"]),
        headers=_pairs(request.get("headers")),
        body=b64decode(str(body)) if body is not None else json.dumps(request["json"]).encode(),
        answer=Recording(
            status=int(str(response["status"])),
            headers=_pairs(headers),
            body=b64decode(str(response["body_b64"]))
            if "body_b64" in response
            else str(response["text"]).encode(),
            failure=msgspec.convert(failure, Failure) if failure is not None else None,
        ),
        family=str(line.get("provider", "")),
        model=str(line.get("model", "")),
    )


def _pairs(headers: object) -> tuple[tuple[str, str], ...]:
    return (
        tuple((str(name), str(value)) for name, value in headers.items()) if isinstance(headers, dict) else ()
    )


def _known(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in headers if HARMLESS.fullmatch(name.lower()))


def _model(body: bytes) -> str:
    try:
        given = json.loads(body)
    except ValueError:
        return ""
    return str(given.get("model", "")) if isinstance(given, dict) else ""
