"""Shared code of the families for decoding requests: numbered messages, paired results, extras, rejections.

Messages are numbered m1, m2, … and the calls of message n are cn_0, cn_1, …
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from itertools import count

from msgspec.structs import replace

from bridle.values.errors import Failure, FailureKind, ProviderError
from bridle.values.message import Message, Part, Role, Stop, ToolCall, ToolResult
from bridle.values.model import Origin
from bridle.values.request import Breakpoint, Extra


class MessageReader:
    """The messages read so far, and the calls that have no result yet."""

    def __init__(self, family: str, model_id: str) -> None:
        self.messages: list[Message] = []
        self.marks: list[Breakpoint] = []
        self._origin = Origin(family=family, endpoint=family, model=model_id)
        self._unanswered: dict[str, deque[str]] = defaultdict(deque)
        self._newest: dict[str, str] = {}

    def append_message(self, role: Role, parts: Iterable[Part], stop: Stop | None = None) -> None:
        place = len(self.messages)
        parent = f"m{place}" if place else ""
        self.messages.append(
            Message(
                role=role,
                parts=tuple(parts),
                id=f"m{place + 1}",
                parent=parent,
                origin=self._origin,
                stop=stop,
            )
        )

    def link_calls(self, parts: Iterable[Part]) -> list[Part]:
        """Parts of the next message: calls numbered, results linked by the provider's id, repeated ids in order."""
        linked: list[Part] = []
        ids = (f"c{len(self.messages) + 1}_{number}" for number in count())
        for part in parts:
            if isinstance(part, ToolCall):
                call = replace(part, id=next(ids))
                self._unanswered[call.wire_id].append(call.id)
                self._newest[call.wire_id] = call.id
                linked.append(call)
            elif isinstance(part, ToolResult):
                call_id = self.take_call(part.call_id) or self.find_newest_call(part.call_id)
                linked.append(replace(part, call_id=call_id))
            else:
                linked.append(part)
        return linked

    def take_call(self, wire_id: str) -> str:
        """Id of the oldest call under this provider's id that has no result; empty if there is none."""
        waiting = self._unanswered[wire_id]
        return waiting.popleft() if waiting else ""

    def find_newest_call(self, wire_id: str) -> str:
        """Id of the newest call under this provider's id; the provider's id itself if there is none."""
        return self._newest.get(wire_id, wire_id)


def make_extras(fields: Mapping[str, bytes]) -> tuple[Extra, ...]:
    return tuple(Extra(name=name, json=value.decode("utf-8", "replace")) for name, value in fields.items())


def rejection_maker(codes: Mapping[FailureKind, str]) -> Callable[[FailureKind, str], ProviderError]:
    """Function that makes the error for what is no request, with the provider's code for its kind."""

    def make_rejection(kind: FailureKind, message: str) -> ProviderError:
        status = 404 if kind == "not_found" else 400
        return ProviderError(Failure(kind=kind, message=message, status=status, code=codes[kind]))

    return make_rejection
