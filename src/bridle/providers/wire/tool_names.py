"""Encodes tool names for a wire: legal, unique, and restored exactly in replies.

A legal name is sent unchanged. Any other name is made legal and gets a hash of the original, so that two
names that differ only in illegal characters or beyond the length limit stay different. The hash depends on
the name alone, so a call in the history matches the tool it was made for.

Names in replies are looked up among the offered tools only if one of them was renamed.
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
    """The rules of a wire for tool names."""

    length_max: int
    letters: str = "a-zA-Z0-9_-"
    first: str = ""
    """Characters a name may begin with, if not all are allowed."""

    def encode_name(self, name: str) -> str:
        if re.fullmatch(f"[{self.letters}]{{1,{self.length_max}}}", name) and self._has_legal_start(name):
            return name
        suffix = blake2b(name.encode("utf-8", "replace"), digest_size=HASH_BYTES).hexdigest()
        legal = re.sub(f"[^{self.letters}]", "_", name)
        legal = legal if self._has_legal_start(legal) else f"_{legal}"
        return f"{legal[: self.length_max - len(suffix) - 1]}_{suffix}"

    def clean_name(self, name: str) -> str:
        """Make a name legal that is never looked up again."""
        return re.sub(f"[^{self.letters}]", "_", name)[: self.length_max] or "_"

    def renamed_tools(self, tools: Iterable[ToolSpec]) -> dict[str, str]:
        """Map names as sent to the original names of the renamed tools."""
        offered = (tool.name for tool in tools if tool.native is None)
        return {sent: name for name in offered if (sent := self.encode_name(name)) != name}

    def wrap_decoder(self, decoder: Decoder, tools: Sequence[ToolSpec]) -> Decoder:
        """Wrap a decoder so that calls have the original tool names."""
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
