"""Names of tools on the wire: legal everywhere, no two alike, and mapped back to the letter.

A name that a wire takes goes out as it is.  Any other is made legal and carries a trace of the whole, so
that two names which differ only in what is illegal or beyond the limit stay two.  The trace is the same
whenever and wherever the name is written: a call in the history meets the tool it was made of.

What a model calls is found again among the tools it was offered.  That is rarely needed, so nothing is
looked up unless one of them had to be renamed.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from msgspec.structs import replace

from ..ports.codec import Decoder
from ..values.delta import Delta, ToolCallDelta
from ..values.message import Reply
from ..values.parts import Part, ToolCall
from ..values.request import ToolSpec
from ..values.usage import Usage

TRACE_BYTES = 4


class Naming(NamedTuple):
    """What a wire demands of names."""

    length_max: int
    letters: str = "a-zA-Z0-9_-"
    first: str = ""
    """What a name may begin with, where not every letter will do."""

    def on_wire(self, name: str) -> str:
        if re.fullmatch(f"[{self.letters}]{{1,{self.length_max}}}", name) and self._begins(name):
            return name
        trace = blake2b(name.encode("utf-8", "replace"), digest_size=TRACE_BYTES).hexdigest()
        legal = re.sub(f"[^{self.letters}]", "_", name)
        legal = legal if self._begins(legal) else f"_{legal}"
        return f"{legal[: self.length_max - len(trace) - 1]}_{trace}"

    def cleaned(self, name: str) -> str:
        """For a name that stands alone and is never asked for again."""
        return re.sub(f"[^{self.letters}]", "_", name)[: self.length_max] or "_"

    def renamed(self, tools: Iterable[ToolSpec]) -> dict[str, str]:
        """The tools that go by another name on the wire, by that name."""
        offered = (tool.name for tool in tools if tool.native is None)
        return {sent: name for name in offered if (sent := self.on_wire(name)) != name}

    def decoder(self, decoder: Decoder, tools: Sequence[ToolSpec]) -> Decoder:
        """The decoder, telling of calls under the names the tools were given."""
        names = self.renamed(tools)
        return _Renaming(decoder, names) if names else decoder

    def _begins(self, name: str) -> bool:
        return not self.first or re.match(f"[{self.first}]", name) is not None


SHORT = Naming(length_max=64)


class _Renaming:
    def __init__(self, decoder: Decoder, names: Mapping[str, str]) -> None:
        self._decoder, self._names = decoder, names

    @property
    def partial(self) -> str:
        return self._decoder.partial

    @property
    def counted(self) -> Usage:
        return self._decoder.counted

    def feed(self, data: bytes) -> list[Delta]:
        return [self._delta(delta) for delta in self._decoder.feed(data)]

    def close(self) -> Reply:
        reply = self._decoder.close()
        return replace(reply, parts=tuple(map(self._part, reply.parts)))

    def _delta(self, delta: Delta) -> Delta:
        if isinstance(delta, ToolCallDelta) and delta.name in self._names:
            return replace(delta, name=self._names[delta.name])
        return delta

    def _part(self, part: Part) -> Part:
        if isinstance(part, ToolCall) and part.name in self._names:
            return replace(part, name=self._names[part.name])
        return part
