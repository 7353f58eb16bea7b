"""Any transport, with everything that passes written down, and without the secrets.

One line of JSON for each exchange, in the format that recorded traffic has everywhere in
this project: whatever reads recordings reads these.  An answer is written when it has ended,
also when it ended in the middle.

Only headers that are known to be harmless are kept with their values.  A credential that another header
held is also removed from addresses, bodies and answers, should it be repeated there.  A credential is the
value of a header or of a JSON member whose name says so, or a word that no person writes.  All other words
of a header stay in the body: removing them would change what was asked, and break the checksums of binary
streams.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, unquote, urlsplit

import msgspec

from ..ports.transport import Answer, Outgoing, Transport
from ..values.errors import Failure, MisuseError, ProviderError
from ..values.value import Value
from .recorded import Recording

GONE = "[secret]"
HARMLESS = re.compile(r"content-type|accept|user-agent|.*-version|.*-beta|retry-after(-ms)?|x-should-retry")
SECRET = re.compile(r"[^\s,;=\"']{8,}=*")
"""What of a header could be a key, a token or a signature."""
CREDENTIAL = re.compile(
    r"(?i).*(?:auth(?!or$)|api.?key|\bkey|[-_]key|token|secret|cookie|credential|password|signature|jwt).*"
)
"""Names of headers and of JSON members whose values are credentials."""
SCHEME = re.compile(r"\s*[A-Za-z][\w-]*\s+(?=\S)")
"""The word before the credential in an Authorization header."""
SIGNED = re.compile(r"AWS4-\S+ Credential=(?P<key>[^/,\s]+)[^,]*,.*Signature=(?P<signature>\w+)")
"""A SigV4 proof; the rest of it is the date, the region and names of headers, which are no secret."""
RANDOM = re.compile(r"(?=[A-Za-z0-9]*\d)(?=[A-Za-z0-9]*[A-Za-z])[A-Za-z0-9]{16,}")
"""Part of a word that only a machine makes: long, with letters and digits."""
KEY_IN_QUERY = re.compile(
    r"([?&](?:(?:api[_-]?)?key|(?:access[_-]|auth[_-]|x-amz-security-)?token|(?:x-amz-)?signature|sig)=)([^&#]+)",
    re.IGNORECASE,
)
SECRET_LENGTH_MIN = 8
"""What is shorter is a word that stands everywhere."""


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
    secrets = _secrets(outgoing)

    def clean(data: bytes) -> bytes:
        for secret in secrets:
            data = data.replace(secret.encode(), GONE.encode())
        return data

    address = urlsplit(clean(KEY_IN_QUERY.sub(rf"\g<1>{GONE}", outgoing.url).encode()).decode())
    failure = answer.failure
    if failure is not None:
        failure = msgspec.structs.replace(failure, message=clean(failure.message.encode()).decode())
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


def _secrets(outgoing: Outgoing) -> list[str]:
    """Everything to be removed, as it is and as addresses and JSON may spell it; the longest first."""
    found = {
        secret
        for name, value in outgoing.headers
        if not HARMLESS.fullmatch(name.lower())
        for secret in _secrets_in(name.lower(), value)
    }
    asked = (unquote(value) for _, value in KEY_IN_QUERY.findall(outgoing.url))
    found |= {value for value in asked if len(value) >= SECRET_LENGTH_MIN}
    spelled = {form for each in found for form in (each, quote(each, safe=""), each.replace("/", r"\/"))}
    return sorted(spelled, key=len, reverse=True)


def _secrets_in(name: str, value: str) -> Iterator[str]:
    """The credentials in one header, or in one member of a header that is JSON."""
    given = _parse_object(value)
    if given is not None:
        for inner, held in given.items():
            yield from _secrets_in(inner, held if isinstance(held, str) else json.dumps(held))
        return
    if not CREDENTIAL.fullmatch(name):
        yield from (word for word in SECRET.findall(value) if RANDOM.search(word))
        return
    if proof := SIGNED.match(value):
        yield from proof.groups()
        return
    if name.endswith("authorization"):
        value = SCHEME.sub("", value, count=1)
    yield from SECRET.findall(value)


def _parse_object(value: str) -> dict[str, object] | None:
    if not value.lstrip().startswith("{"):
        return None
    try:
        given = json.loads(value)
    except ValueError:
        return None
    return given if isinstance(given, dict) else None


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
