"""Encodes tool names for a wire: legal, unique, and restored exactly in replies.

A legal name is sent unchanged. Any other name is made legal and gets a hash of the original, so that two
names that differ only in illegal characters or beyond the length limit stay different. The hash depends on
the name alone, so a call in the history matches the tool it was made for.

Names in replies are looked up among the offered tools only if one of them was renamed.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

from msgspec.structs import replace

from bridle.ports.codec import Decoder
from bridle.values.message import Part, ToolCall
from bridle.values.request import ToolSpec
from bridle.values.result import Delta, ToolCallDelta

from .decoder import MappedDecoder

HASH_BYTES = 4
NAMES_MAX = 512
"""Encoded names that are kept."""


class ToolNameRules(NamedTuple):
    """The rules of a wire for tool names."""

    length_max: int
    letters: str = "a-zA-Z0-9_-"
    first: str = ""
    """Characters a name may begin with, if not all are allowed."""

    def encode_name(self, name: str) -> str:
        return _encode_name(self, name)

    def clean_name(self, name: str) -> str:
        """Make a name legal that is never looked up again."""
        return re.sub(f"[^{self.letters}]", "_", name)[: self.length_max] or "_"

    def renamed_tools(self, tools: Iterable[ToolSpec]) -> dict[str, str]:
        """Map names as sent to the original names of the renamed tools."""
        offered = (tool.name for tool in tools if tool.native is None)
        return {sent: name for name in offered if (sent := self.encode_name(name)) != name}

    def has_legal_start(self, name: str) -> bool:
        return not self.first or re.match(f"[{self.first}]", name) is not None


@lru_cache(maxsize=NAMES_MAX)
def _encode_name(rules: ToolNameRules, name: str) -> str:
    if re.fullmatch(f"[{rules.letters}]{{1,{rules.length_max}}}", name) and rules.has_legal_start(name):
        return name
    suffix = blake2b(name.encode("utf-8", "replace"), digest_size=HASH_BYTES).hexdigest()
    legal = re.sub(f"[^{rules.letters}]", "_", name)
    legal = legal if rules.has_legal_start(legal) else f"_{legal}"
    return f"{legal[: rules.length_max - len(suffix) - 1]}_{suffix}"


NAMES_64 = ToolNameRules(length_max=64)


def restore_tool_names(decoder: Decoder, names: Mapping[str, str]) -> Decoder:
    """Wrap a decoder so that calls have the original tool names."""

    def restore_part(part: Part) -> Part:
        return restore_name(part, names) if isinstance(part, ToolCall) else part

    def restore_delta(delta: Delta) -> Delta:
        if isinstance(delta, ToolCallDelta) and delta.name in names:
            return replace(delta, name=names[delta.name])
        return delta

    return MappedDecoder(decoder, restore_part, restore_delta)


def restore_name(call: ToolCall, names: Mapping[str, str]) -> ToolCall:
    """The call under its tool's own name."""
    return replace(call, name=names[call.name]) if call.name in names else call
