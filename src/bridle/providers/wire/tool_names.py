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

from bridle.ports.codec import Decoder
from bridle.values.message import Part, Reply, ToolCall
from bridle.values.request import ToolSpec
from bridle.values.result import Delta, ToolCallDelta
from bridle.values.usage import Usage

HASH_BYTES = 4


class ToolNameRules(NamedTuple):
    """What a wire demands of names."""

    length_max: int
    letters: str = "a-zA-Z0-9_-"
    first: str = ""
    """What a name may begin with, where not every letter will do."""

    def encode_name(self, name: str) -> str:
        if re.fullmatch(f"[{self.letters}]{{1,{self.length_max}}}", name) and self._has_legal_start(name):
            return name
        trace = blake2b(name.encode("utf-8", "replace"), digest_size=HASH_BYTES).hexdigest()
        legal = re.sub(f"[^{self.letters}]", "_", name)
        legal = legal if self._has_legal_start(legal) else f"_{legal}"
        return f"{legal[: self.length_max - len(trace) - 1]}_{trace}"

    def clean_name(self, name: str) -> str:
        """For a name that stands alone and is never asked for again."""
        return re.sub(f"[^{self.letters}]", "_", name)[: self.length_max] or "_"

    def renamed_tools(self, tools: Iterable[ToolSpec]) -> dict[str, str]:
        """The tools that go by another name on the wire, by that name."""
        offered = (tool.name for tool in tools if tool.native is None)
        return {sent: name for name in offered if (sent := self.encode_name(name)) != name}

    def wrap_decoder(self, decoder: Decoder, tools: Sequence[ToolSpec]) -> Decoder:
        """The decoder, telling of calls under the names the tools were given."""
        names = self.renamed_tools(tools)
        return _RenamingDecoder(decoder, names) if names else decoder

    def _has_legal_start(self, name: str) -> bool:
        return not self.first or re.match(f"[{self.first}]", name) is not None


NAMES_64 = ToolNameRules(length_max=64)


class _RenamingDecoder:
    def __init__(self, decoder: Decoder, names: Mapping[str, str]) -> None:
        self._decoder, self._names = decoder, names

    @property
    def partial_text(self) -> str:
        return self._decoder.partial_text

    @property
    def partial_usage(self) -> Usage:
        return self._decoder.partial_usage

    def feed(self, data: bytes) -> list[Delta]:
        return [self._restore_delta(delta) for delta in self._decoder.feed(data)]

    def close(self) -> Reply:
        reply = self._decoder.close()
        return replace(reply, parts=tuple(map(self._restore_part, reply.parts)))

    def _restore_delta(self, delta: Delta) -> Delta:
        if isinstance(delta, ToolCallDelta) and delta.name in self._names:
            return replace(delta, name=self._names[delta.name])
        return delta

    def _restore_part(self, part: Part) -> Part:
        if isinstance(part, ToolCall) and part.name in self._names:
            return replace(part, name=self._names[part.name])
        return part
