"""Record a real run once, replay it for ever: offline, byte for byte, streams included.

    with recording("run.jsonl") as recorded:
        await Agent(recorded("VENDOR:MODEL"), tools=[…]).run("…")

    await Agent(replaying("run.jsonl", "VENDOR:MODEL"), tools=[…]).run("…")

Keys and whatever else only its owner may know never reach the file.  A request is known again
by its path and its JSON; the same one asked twice gets its answers in the order they came.
One that was never recorded is misuse, told with what differs from the nearest that was.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec

from ..core.differing import differences
from ..ports.transport import Outgoing
from ..providers import load
from ..run.line import Line, connect, locate
from ..transports.exchange_file import FILE_BYTES_MAX, ExchangeFile
from ..transports.recorded import Playback
from ..transports.recording import Exchanged, RecordingTransport, read_exchanges, scrubbed
from ..values.errors import MisuseError
from ..values.model import Model

DIFFERENCES_SHOWN = 6
Where = str | os.PathLike[str]


@contextmanager
def recording(
    path: Where, *, bytes_max: int = FILE_BYTES_MAX
) -> Iterator[Callable[[str | Model | Line], Line]]:
    """A function that makes lines to models; everything that passes on them is written to the file."""
    with closing(ExchangeFile(Path(path), bytes_max=bytes_max)) as file:

        def recorded(model: str | Model | Line) -> Line:
            found = locate(model) if isinstance(model, str) else model
            line = found if isinstance(found, Line) else connect(found)
            transport = RecordingTransport(line.transport, file.write, line.model.endpoint.family)
            return Line(
                model=line.model,
                codec=line.codec,
                transport=transport,
                headers=line.headers,
                sign=line.sign,
            )

        yield recorded
    if file.complaint:
        raise MisuseError(f"{file.complaint}; record less at once, or give bytes_max")


def replaying(path: Where, model: str | Model, *, slice_bytes: int | None = None) -> Line:
    """A line to the model as it was when it was recorded; no key is needed, and nothing is sent."""
    found = locate(model) if isinstance(model, str) else model
    transport = ReplayTransport(read_exchanges(Path(path)), slice_bytes=slice_bytes)
    return Line(model=found, codec=load(found.endpoint.family), transport=transport)


class ReplayTransport:
    def __init__(self, exchanges: tuple[Exchanged, ...], *, slice_bytes: int | None = None) -> None:
        self._known = [(each.path.partition("?")[0], _json(each.body)) for each in exchanges]
        self._used: set[int] = set()
        self._slice_bytes = slice_bytes
        self._exchanges = exchanges

    @property
    def remaining(self) -> int:
        """How many recorded answers nobody has asked for yet."""
        return len(self._exchanges) - len(self._used)

    def open(self, outgoing: Outgoing) -> Playback:
        asked = scrubbed(outgoing, self._exchanges[0].answer) if self._exchanges else None
        wanted = (asked.path.partition("?")[0], _json(asked.body)) if asked else ("", None)
        for index, known in enumerate(self._known):
            if index not in self._used and known[1] == wanted[1] and known[0].endswith(_last(wanted[0])):
                self._used.add(index)
                answer = self._exchanges[index].answer
                if answer.failure is not None and not answer.status:
                    return Playback(answer.failure, self._slice_bytes)
                return Playback(answer, self._slice_bytes)
        raise MisuseError(self._miss(wanted[1]))

    def _miss(self, wanted: object) -> str:
        left = [index for index in range(len(self._known)) if index not in self._used]
        if not left:
            return f"all {len(self._known)} recorded answers are used up; record the run anew"
        found = {index: list(differences(self._known[index][1], wanted)) for index in left}
        nearest = min(left, key=lambda index: len(found[index]))
        shown = "; ".join(found[nearest][:DIFFERENCES_SHOWN])
        return f"this request was never recorded; nearest is line {nearest + 1}, where {shown}"


def _last(path: str) -> str:
    return "/" + path.rstrip("/").rpartition("/")[2]


def _json(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:
        return body.decode("utf-8", "replace")
