"""What an agent puts in front of every prompt, as lines that can be kept, compared and shown.

Tools and instructions are what all sessions of an agent share, so whoever changes a word of them makes
every cached prompt worthless at once.  Here they are written down one thing a line, in the order they are
sent: a schema is spread out but never sorted, because the order of its fields is part of the prompt.
What is about the model, the budget or one session is not in it.
"""

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from ..values.request import ToolSpec
from ..values.settings import Settings
from .context import shown_tools

DIGEST_BYTES = 16


def front(settings: Settings) -> tuple[str, ...]:
    """Tools, then instructions, line by line; tools that are only found later come last of the tools."""
    tools = (*shown_tools(settings, ()), *settings.hidden)
    lines = [line for spec in tools for line in _tool(spec)]
    return (*lines, *_told("system", settings.instructions))


def digest(lines: Sequence[str]) -> str:
    return blake2b("\n".join(lines).encode(), digest_size=DIGEST_BYTES).hexdigest()


def _tool(spec: ToolSpec) -> Iterator[str]:
    yield from _told(f"tool {spec.name}", spec.description)
    yield from _told(f"tool {spec.name} takes", _spread(spec.native or spec.parameters))


def _told(title: str, words: str) -> Iterator[str]:
    if words:
        yield f"{title}:"
        yield from (f"  {line}" for line in words.split("\n"))


def _spread(schema: str) -> str:
    try:
        return json.dumps(json.loads(schema), indent=2, ensure_ascii=False)
    except ValueError:
        return schema
