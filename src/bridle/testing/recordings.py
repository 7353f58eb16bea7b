"""Records a real run once and replays it offline, byte for byte, streams included.

    with recording("run.jsonl") as recorded:
        await Agent(recorded("VENDOR:MODEL"), tools=[…]).run("…")

    await Agent(replaying("run.jsonl", "VENDOR:MODEL"), tools=[…]).run("…")

Keys and other secrets are never written to the file. A request is matched by its path and its JSON; repeated
requests get their answers in the recorded order. A request that was not recorded raises `MisuseError`, with
the differences from the nearest one.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from bridle.core.json_differences import list_differences
from bridle.ports.transport import OutgoingRequest
from bridle.providers import load_codec
from bridle.run.model_connection import ModelConnection, connect_model, find_model_by_name
from bridle.transports.recorded import (
    FILE_BYTES_MAX,
    ExchangeFile,
    PlaybackExchange,
    RecordedExchange,
    RecordingTransport,
    read_exchanges,
    scrub_exchange,
)
from bridle.values.errors import MisuseError
from bridle.values.model import Model

DIFFERENCES_SHOWN = 6
FilePath = str | os.PathLike[str]


@contextmanager
def recording(
    path: FilePath, *, bytes_max: int = FILE_BYTES_MAX
) -> Iterator[Callable[[str | Model | ModelConnection], ModelConnection]]:
    """Yield a function that connects to models and records every exchange in the file."""
    with closing(ExchangeFile(Path(path), bytes_max=bytes_max)) as file:

        def recorded(model: str | Model | ModelConnection) -> ModelConnection:
            found = find_model_by_name(model) if isinstance(model, str) else model
            connection = found if isinstance(found, ModelConnection) else connect_model(found)
            transport = RecordingTransport(connection.transport, file.write, connection.model.endpoint.family)
            return ModelConnection(
                model=connection.model,
                codec=connection.codec,
                transport=transport,
                headers=connection.headers,
                sign_request=connection.sign_request,
            )

        yield recorded
    if file.warning:
        raise MisuseError(f"{file.warning}; record less at once, or give bytes_max")


def replaying(path: FilePath, model: str | Model, *, slice_bytes: int | None = None) -> ModelConnection:
    """Connect to the recorded model; no key is needed, and nothing is sent."""
    found = find_model_by_name(model) if isinstance(model, str) else model
    transport = ReplayTransport(read_exchanges(Path(path)), slice_bytes=slice_bytes)
    return ModelConnection(model=found, codec=load_codec(found.endpoint.family), transport=transport)


class ReplayTransport:
    def __init__(self, exchanges: tuple[RecordedExchange, ...], *, slice_bytes: int | None = None) -> None:
        self._known = [(each.path.partition("?")[0], _parse_json(each.body)) for each in exchanges]
        self._used: set[int] = set()
        self._slice_bytes = slice_bytes
        self._exchanges = exchanges

    @property
    def remaining(self) -> int:
        """Number of recorded answers not used yet."""
        return len(self._exchanges) - len(self._used)

    def open(self, outgoing: OutgoingRequest) -> PlaybackExchange:
        scrubbed = scrub_exchange(outgoing, self._exchanges[0].answer) if self._exchanges else None
        wanted = (scrubbed.path.partition("?")[0], _parse_json(scrubbed.body)) if scrubbed else ("", None)
        for index, known in enumerate(self._known):
            if (
                index not in self._used
                and known[1] == wanted[1]
                and known[0].endswith(_last_segment(wanted[0]))
            ):
                self._used.add(index)
                answer = self._exchanges[index].answer
                if answer.failure is not None and not answer.status:
                    return PlaybackExchange(answer.failure, self._slice_bytes)
                return PlaybackExchange(answer, self._slice_bytes)
        raise MisuseError(self._explain_miss(wanted[1]))

    def _explain_miss(self, wanted: object) -> str:
        left = [index for index in range(len(self._known)) if index not in self._used]
        if not left:
            return f"all {len(self._known)} recorded answers are used up; record the run again"
        found = {index: list(list_differences(self._known[index][1], wanted)) for index in left}
        nearest = min(left, key=lambda index: len(found[index]))
        shown = "; ".join(found[nearest][:DIFFERENCES_SHOWN])
        return f"this request was never recorded; nearest is line {nearest + 1}, where {shown}"


def _last_segment(path: str) -> str:
    return "/" + path.rstrip("/").rpartition("/")[2]


def _parse_json(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body.decode("utf-8", "replace")
