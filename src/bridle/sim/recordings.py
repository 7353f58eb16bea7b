"""A mind made of a recording: what was really asked and answered, read off a file by the codecs."""

from pathlib import Path

from ..ports.codec import HttpRequest
from ..providers import load
from ..transports.recording import Exchanged, read_exchanges
from ..values.errors import Failure, MisuseError, ProviderError
from ..values.message import Reply
from ..values.request import Request
from .brains import Recorded


def recorded_brain(path: Path) -> Recorded:
    return Recorded([_pair(exchanged, path) for exchanged in read_exchanges(path)])


def _pair(exchanged: Exchanged, path: Path) -> tuple[Request, Reply | Failure]:
    if not exchanged.family:
        raise MisuseError(f"a recording in {path} does not say which wire family it is of")
    codec = load(exchanged.family)
    asked = HttpRequest(
        path=exchanged.path, body=exchanged.body, headers=exchanged.headers, method=exchanged.method
    )
    try:
        request = codec.read(asked)
    except ProviderError as error:
        raise MisuseError(f"a request in {path} cannot be read: {error}") from None
    answer = exchanged.answer
    decoder = codec.decoder(request, answer.status, {name.lower(): value for name, value in answer.headers})
    try:
        decoder.feed(answer.body)
        return request, decoder.close()
    except ProviderError as error:
        return request, error.failure
