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
from bridle.values.message import Part, ToolCall
from bridle.values.request import ToolSpec
from bridle.values.result import Delta, ToolCallDelta

from .decoder import MappedDecoder

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
        if not names:
            return decoder

        def restore_part(part: Part) -> Part:
            return restore_name(part, names) if isinstance(part, ToolCall) else part

        def restore_delta(delta: Delta) -> Delta:
            if isinstance(delta, ToolCallDelta) and delta.name in names:
                return replace(delta, name=names[delta.name])
            return delta

        return MappedDecoder(decoder, restore_part, restore_delta)

    def _has_legal_start(self, name: str) -> bool:
        return not self.first or re.match(f"[{self.first}]", name) is not None


NAMES_64 = ToolNameRules(length_max=64)


def restore_name(call: ToolCall, names: Mapping[str, str]) -> ToolCall:
    """The call under its tool's own name."""
    return replace(call, name=names[call.name]) if call.name in names else call
