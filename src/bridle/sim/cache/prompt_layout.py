"""A prompt as its provider lays it out: blocks in the order they are read, each with its tokens.

One reading serves everything that depends on what a prompt *is*: how long it is (usage,
limits, counting for free) and how much of it was there before (the cache).  So the three
can never disagree.  The reading is the family's, in its own file (`prompt_<family>.py`),
from the body as it arrived; here is only what all of them share.

A block's tokens are its `lead` (what has no text of its own: the words around a message,
a picture) followed by the pieces of its text.  Two blocks are the same when kind, key
and text are; where a mark stands never makes a block another one.

Nothing here may fail on a body of the wrong shape: what cannot be read is not there, and
the family's rules say why it should have been.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Literal

import msgspec

from bridle.values.base import Value
from bridle.values.model import Abilities

from .token_estimate import (
    TOKENS_PER_CALL,
    TOKENS_PER_FILE,
    TOKENS_PER_IMAGE,
    TOKENS_PER_MESSAGE,
    TOKENS_PER_REQUEST,
    TOKENS_PER_TOOL,
    count_tokens_cached,
)

Body = Mapping[str, object]
Section = Literal["tools", "system", "messages"]
SECTIONS: tuple[Section, ...] = ("tools", "system", "messages")
_JSON = msgspec.json.Encoder()


class PromptBlock(Value):
    section: Section
    kind: str
    key: str = ""
    """Whatever else makes it this block: who speaks, an id, a picture's digest."""
    text: str = ""
    overhead_tokens: int = 0
    tokens: int = 0
    """All of its tokens; counted when the block is given its place."""
    breakpoint_ttl: str = ""
    """How long the provider is asked to keep the prompt up to here (`5m`); empty when it is not."""
    position: int = 0
    """Where the provider counts it; several blocks may share one position."""
    is_implicit_breakpoint: bool = False
    """Whether the provider itself would keep the prompt up to here."""


class PromptText(Value):
    blocks: tuple[PromptBlock, ...] = ()
    cache_salts: Mapping[str, str] = {}
    """By section: settings that make this section, and those after it, another one."""
    settings: Mapping[str, str] = {}
    """The same settings one by one, for those who want to know which of them changed."""
    retention: str = ""
    """How long the provider keeps what it keeps of its own accord, when the request says so."""
    allows_implicit_cache: bool = True
    """Whether the provider may keep anything of its own accord."""

    @property
    def tokens(self) -> int:
        """All of it, with the few tokens in front of the answer that are nobody's block."""
        return TOKENS_PER_REQUEST + sum(block.tokens for block in self.blocks)


class PromptReader(Value):
    """What a family tells about its prompts."""

    lay_out: Callable[[Body, Abilities], PromptText]
    find_account: Callable[[Mapping[str, str]], str]
    """Whose cache it is, from the headers (names in lower case): nobody reads another's."""


# --- for the families ---------------------------------------------------------------------------


def as_mapping(value: object) -> Body:
    return value if isinstance(value, dict) else {}


def as_list(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def to_json(value: object) -> str:
    """JSON in the order it was written: a model reads names in the order they come."""
    return _JSON.encode(value).decode()


def hash_value(value: object) -> str:
    return blake2b(_JSON.encode(value), digest_size=12).hexdigest()


def tool_block(definition: object, *, key: str = "", mark: str = "") -> PromptBlock:
    return PromptBlock(
        section="tools",
        kind="tool",
        key=key,
        text=to_json(definition),
        overhead_tokens=TOKENS_PER_TOOL,
        breakpoint_ttl=mark,
    )


def call_block(who: str, name: object, arguments: object, *, mark: str = "", key: object = "") -> PromptBlock:
    words = arguments if isinstance(arguments, str) else to_json(arguments)
    text = f"{as_text(name)} {words}"
    return PromptBlock(
        section="messages",
        kind="call",
        key=f"{who} {key}",
        text=text,
        overhead_tokens=TOKENS_PER_CALL,
        breakpoint_ttl=mark,
    )


def media_block(section: Section, kind: str, who: str, content: object, *, mark: str = "") -> PromptBlock:
    lead = TOKENS_PER_IMAGE if kind == "image" else TOKENS_PER_FILE
    return PromptBlock(
        section=section,
        kind=kind,
        key=f"{who} {hash_value(content)}",
        overhead_tokens=lead,
        breakpoint_ttl=mark,
    )


def place_blocks(
    messages: Iterable[Sequence[PromptBlock]], *, runs: Sequence[str] = ()
) -> tuple[PromptBlock, ...]:
    """Messages in a row: each opened by its own few tokens, positions numbered.

    `runs` are kinds whose neighbours share a position.
    """
    blocks: list[PromptBlock] = []
    position = -1
    for message in messages:
        for number, block in enumerate(message):
            joins = bool(blocks) and block.kind in runs and blocks[-1].kind == block.kind
            position += not joins
            lead = block.overhead_tokens + (
                TOKENS_PER_MESSAGE if number == 0 and block.section == "messages" else 0
            )
            tokens = lead + count_tokens_cached(block.text)
            blocks.append(
                msgspec.structs.replace(block, position=position, overhead_tokens=lead, tokens=tokens)
            )
    return tuple(blocks)
