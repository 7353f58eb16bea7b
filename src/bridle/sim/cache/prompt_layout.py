"""A prompt as its provider lays it out: blocks in reading order, each with its tokens.

Usage, length limits, token counting and the cache all use the same layout, so they cannot disagree. Each
family lays out the body as it arrived (`prompt.py` in its folder); this module holds what they share.

The tokens of a block are its overhead (content without text: message framing, an image) followed by the
tokens of its text. Two blocks are equal if kind, key and text are; cache marks do not count.

Nothing here may fail on a malformed body: unreadable parts are skipped, and the family's rules report them.
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


class PromptBlock(Value, kw_only=True):
    section: Section
    kind: str
    key: str = ""
    """Everything else that identifies the block: the role, an id, the digest of an image."""
    text: str = ""
    overhead_tokens: int = 0
    tokens: int = 0
    """All of its tokens, set by `place_blocks`."""
    breakpoint_ttl: str = ""
    """Requested lifetime of the prefix up to here (`5m`); empty if not requested."""
    position: int = 0
    """Number by which the provider counts it; several blocks may share one."""
    is_implicit_breakpoint: bool = False
    """True if the provider would store the prefix up to here without being asked."""


class PromptText(Value, kw_only=True):
    blocks: tuple[PromptBlock, ...] = ()
    cache_salts: Mapping[str, str] = {}
    """By section: settings that change the hashes of this section and those after it."""
    settings: Mapping[str, str] = {}
    """These settings by name, to report which of them changed."""
    retention: str = ""
    """Lifetime of prefixes that the provider stores without being asked, if the request sets one."""
    allows_implicit_cache: bool = True
    """False if the provider may not store prefixes without being asked."""

    @property
    def tokens(self) -> int:
        """Tokens of all blocks, plus the few before the answer that belong to no block."""
        return TOKENS_PER_REQUEST + sum(block.tokens for block in self.blocks)


class PromptReader(Value, kw_only=True, gc=True):
    """The functions by which a family lays out its prompts."""

    lay_out: Callable[[Body, Abilities], PromptText]
    find_account: Callable[[Mapping[str, str]], str]
    """Returns the owner of the cache, from the headers (names in lower case). Caches are not shared."""


def as_text(value: object) -> str:
    return value if isinstance(value, str) else ""


def to_json(value: object) -> str:
    """Encode JSON in the given order, because a model reads names in that order."""
    return _JSON.encode(value).decode()


def hash_value(value: object) -> str:
    return blake2b(_JSON.encode(value), digest_size=12).hexdigest()


def tool_block(definition: object, *, mark: str = "") -> PromptBlock:
    return PromptBlock(
        section="tools",
        kind="tool",
        text=to_json(definition),
        overhead_tokens=TOKENS_PER_TOOL,
        breakpoint_ttl=mark,
    )


def call_block(
    role: str, name: object, arguments: object, *, mark: str = "", key: object = ""
) -> PromptBlock:
    arguments_text = arguments if isinstance(arguments, str) else to_json(arguments)
    text = f"{as_text(name)} {arguments_text}"
    return PromptBlock(
        section="messages",
        kind="call",
        key=f"{role} {key}",
        text=text,
        overhead_tokens=TOKENS_PER_CALL,
        breakpoint_ttl=mark,
    )


def media_block(section: Section, kind: str, role: str, content: object, *, mark: str = "") -> PromptBlock:
    overhead = TOKENS_PER_IMAGE if kind == "image" else TOKENS_PER_FILE
    return PromptBlock(
        section=section,
        kind=kind,
        key=f"{role} {hash_value(content)}",
        overhead_tokens=overhead,
        breakpoint_ttl=mark,
    )


def place_blocks(
    messages: Iterable[Sequence[PromptBlock]], *, runs: Sequence[str] = ()
) -> tuple[PromptBlock, ...]:
    """Lay out messages in order: add the tokens that open each message, and number the positions.

    Neighbouring blocks of the kinds in `runs` share a position.
    """
    blocks: list[PromptBlock] = []
    position = -1
    for message in messages:
        for number, block in enumerate(message):
            joins = bool(blocks) and block.kind in runs and blocks[-1].kind == block.kind
            position += not joins
            overhead = block.overhead_tokens + (
                TOKENS_PER_MESSAGE if number == 0 and block.section == "messages" else 0
            )
            tokens = overhead + count_tokens_cached(block.text)
            blocks.append(
                msgspec.structs.replace(block, position=position, overhead_tokens=overhead, tokens=tokens)
            )
    return tuple(blocks)
