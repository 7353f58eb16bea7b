"""Conversations made short on the Responses wire: one sealed item, which nobody else can read.

Asked for at the path for it, the answer also repeats what people said, as it was.  Asked for by an item at
the end of the input, or by a setting and a long prompt, the sealed item comes alone or before the answer.
"""

from collections.abc import Iterable

import msgspec

from ..values.parts import Opaque
from ._rules_openai_responses_compaction import TRIGGER
from ._rules_openai_responses_shape import items
from ._rules_reading import (
    Block,
    field,
    listed,
    mapping,
)
from .rules import Asked
from .seals import trace
from .seals_openai_responses import summary_of, words_in
from .summary import Due


def shortened(asked: Asked, words: str) -> tuple[Opaque, ...]:
    mark, given = trace(asked.body), field(asked, "input")
    told: Iterable[Block] = [{"role": "user", "content": given}] if isinstance(given, str) else items(asked)
    said = [{**item, "content": _content(item)} for item in told if item.get("role") == "user"]
    kept = [
        {"id": f"msg_{mark}{at:02x}", "type": "message", "status": "completed", **item}
        for at, item in enumerate(said)
    ]
    return (*map(_opaque, kept), *instead(asked, words))


def instead(asked: Asked, words: str) -> tuple[Opaque, ...]:
    sealed = summary_of(str(field(asked, "model")), f"cmp_{trace(asked.body)}", words)
    return (_opaque(sealed),)


def told(part: Opaque) -> str:
    item = msgspec.json.decode(part.native, type=dict[str, object])
    return words_in(item)


def due(asked: Asked) -> Due | None:
    last = mapping(next(reversed(items(asked)), None))
    if last.get("type") == TRIGGER:
        return Due(pauses=True)
    for entry in map(mapping, listed(field(asked, "context_management"))):
        threshold = entry.get("compact_threshold")
        if isinstance(threshold, int) and asked.prompt_tokens >= threshold:
            return Due()
    return None


def _content(item: Block) -> object:
    content = item.get("content")
    return [{"type": "input_text", "text": content}] if isinstance(content, str) else content


def _opaque(item: Block) -> Opaque:
    return Opaque(kind=str(item["type"]), native=msgspec.json.encode(item).decode())
