"""From a recording: answers played in order, in slices of any size.

For tests and replays.  A recording that ends in a failure fails after its last byte, as a
connection that was cut does; a bare failure never answers at all.  Everything that was
sent is remembered, so that a test can look at it.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Self

from ..ports.transport import Outgoing
from ..values.errors import Failure, MisuseError, ProviderError
from ..values.value import Value


class Recording(Value):
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    failure: Failure | None = None
    """What happened after the last byte, if the answer was not complete."""


class RecordedTransport:
    def __init__(self, answers: Iterable[Recording | Failure], *, slice_bytes: int | None = None) -> None:
        if slice_bytes is not None and slice_bytes < 1:
            raise MisuseError(
                f"slice_bytes must be at least 1, not {slice_bytes}; leave it out for whole bodies"
            )
        self.sent: list[Outgoing] = []
        self._answers = list(answers)
        self._slice_bytes = slice_bytes

    @property
    def remaining(self) -> int:
        """How many answers nobody has asked for yet."""
        return len(self._answers) - len(self.sent)

    def open(self, outgoing: Outgoing) -> "Playback":
        if not self.remaining:
            raise MisuseError(
                f"request {len(self.sent) + 1} was made, but only {len(self.sent)} answers are recorded"
            )
        self.sent.append(outgoing)
        return Playback(self._answers[len(self.sent) - 1], self._slice_bytes)


class Playback:
    def __init__(self, answer: Recording | Failure, slice_bytes: int | None) -> None:
        self._answer = answer if isinstance(answer, Recording) else Recording()
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
