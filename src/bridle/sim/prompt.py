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
from functools import lru_cache
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from typing import Literal

import msgspec

from ..values.model import Abilities
from ..values.value import Value
from .tokens import PER_CALL, PER_FILE, PER_IMAGE, PER_MESSAGE, PER_REQUEST, PER_TOOL, counted

PREFIX = "prompt_"
Body = Mapping[str, object]
Section = Literal["tools", "system", "messages"]
SECTIONS: tuple[Section, ...] = ("tools", "system", "messages")
_JSON = msgspec.json.Encoder()


class Block(Value):
    section: Section
    kind: str
    key: str = ""
    """Whatever else makes it this block: who speaks, an id, a picture's digest."""
    text: str = ""
    lead: int = 0
    tokens: int = 0
    """All of its tokens; counted when the block is given its place."""
    mark: str = ""
    """How long the provider is asked to keep the prompt up to here (`5m`); empty when it is not."""
    position: int = 0
    """Where the provider counts it; several blocks may share one position."""
    ends: bool = False
    """Whether the provider itself would keep the prompt up to here."""


class Prompt(Value):
    blocks: tuple[Block, ...] = ()
    salts: Mapping[str, str] = {}
    """By section: settings that make this section, and those after it, another one."""
    settings: Mapping[str, str] = {}
    """The same settings one by one, for those who want to know which of them changed."""
    kept: str = ""
    """How long the provider keeps what it keeps of its own accord, when the request says so."""
    own: bool = True
    """Whether the provider may keep anything of its own accord."""

    @property
    def tokens(self) -> int:
        """All of it, with the few tokens in front of the answer that are nobody's block."""
        return PER_REQUEST + sum(block.tokens for block in self.blocks)


class Reader(Value):
    """What a family tells about its prompts."""

    read: Callable[[Body, Abilities], Prompt]
    account: Callable[[Mapping[str, str]], str]
    """Whose cache it is, from the headers (names in lower case): nobody reads another's."""


def reader_of(family: str) -> Reader | None:
    return _reader(f"{__package__}.{PREFIX}{family}")


def prompt_of(family: str, body: Body, abilities: Abilities | None) -> Prompt | None:
    """None for a family that does not say how its prompts are laid out."""
    reader = reader_of(family)
    return reader.read(body, abilities or Abilities()) if reader else None


@lru_cache(maxsize=32)
def _reader(name: str) -> Reader | None:
    if find_spec(name) is None:
        return None
    reader: Reader = import_module(name).READER
    return reader


# --- for the families ---------------------------------------------------------------------------


def mapping(value: object) -> Body:
    return value if isinstance(value, dict) else {}


def listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def word(value: object) -> str:
    return value if isinstance(value, str) else ""


def shown(value: object) -> str:
    """JSON in the order it was written: a model reads names in the order they come."""
    return _JSON.encode(value).decode()


def digest(value: object) -> str:
    return blake2b(_JSON.encode(value), digest_size=12).hexdigest()


def tool_block(definition: object, *, key: str = "", mark: str = "") -> Block:
    return Block(section="tools", kind="tool", key=key, text=shown(definition), lead=PER_TOOL, mark=mark)


def call_block(who: str, name: object, arguments: object, *, mark: str = "", key: object = "") -> Block:
    words = arguments if isinstance(arguments, str) else shown(arguments)
    text = f"{word(name)} {words}"
    return Block(section="messages", kind="call", key=f"{who} {key}", text=text, lead=PER_CALL, mark=mark)


def media_block(section: Section, kind: str, who: str, content: object, *, mark: str = "") -> Block:
    lead = PER_IMAGE if kind == "image" else PER_FILE
    return Block(section=section, kind=kind, key=f"{who} {digest(content)}", lead=lead, mark=mark)


def placed(messages: Iterable[Sequence[Block]], *, runs: Sequence[str] = ()) -> tuple[Block, ...]:
    """Messages in a row: each opened by its own few tokens, positions numbered.

    `runs` are kinds whose neighbours share a position.
    """
    blocks: list[Block] = []
    position = -1
    for message in messages:
        for number, block in enumerate(message):
            joins = bool(blocks) and block.kind in runs and blocks[-1].kind == block.kind
            position += not joins
            lead = block.lead + (PER_MESSAGE if number == 0 and block.section == "messages" else 0)
            tokens = lead + counted(block.text)
            blocks.append(msgspec.structs.replace(block, position=position, lead=lead, tokens=tokens))
    return tuple(blocks)
