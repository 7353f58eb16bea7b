"""What a provider says about its cache beside the counts: hits and misses, and why something was missed.

A codec speaks replies in words every provider has.  These words only some have, and
nobody needs them to understand a reply, so they are put into an answer after it was
spoken.  A family says where they go (`telling_<family>.py`); here is what is true.

To say why a prompt was missed, the prompt of an earlier answer has to be remembered: the
names of its blocks are, for the newest answers, under the answer's id.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec

import msgspec

from ..values.usage import Usage
from ..values.value import Value
from .cache import Layout

REMEMBERED_MAX = 1_000
"""Answers whose prompt can be compared with; older ones are as if they had never been."""
PREFIX = "telling_"
DATA = b"data: "
Message = dict[str, object]


class Miss(Value):
    """The first thing that is different from an earlier prompt, and what that costs."""

    what: str
    """`model`, a setting, a section; `unknown` when the earlier answer is; empty when nothing is."""
    tokens: int = 0


class Told(Value):
    usage: Usage
    way: str
    miss: Miss | None = None
    """None when nobody asked."""
    summary: Usage | None = None
    """What it took to shorten the conversation first; None when that was not done."""


class Teller(Value):
    """How a family tells it."""

    tell: Callable[[Message, Told], Message | None]
    """A message of the answer with what there is to say in it; None when it is not said there."""
    compared: Callable[[Mapping[str, object]], str] = lambda body: ""
    """From the body: the id of the answer whose prompt this one is to be compared with."""


def teller_of(family: str) -> Teller | None:
    return _teller(f"{__package__}.{PREFIX}{family}")


@lru_cache(maxsize=32)
def _teller(name: str) -> Teller | None:
    if find_spec(name) is None:
        return None
    teller: Teller = import_module(name).TELLER
    return teller


class Remembered(Value):
    model: str
    settings: Mapping[str, str]
    names: tuple[bytes, ...]
    sections: tuple[str, ...]
    lengths: tuple[int, ...]


class Diary:
    """The prompts of earlier answers."""

    def __init__(self) -> None:
        self._pages: dict[tuple[str, str], Remembered] = {}

    def write(self, answer: str, layout: Layout) -> None:
        self._pages[layout.account, answer] = _remembered(layout)
        if len(self._pages) > REMEMBERED_MAX:
            del self._pages[next(iter(self._pages))]

    def compare(self, answer: str, layout: Layout) -> Miss:
        earlier = self._pages.get((layout.account, answer))
        if earlier is None:
            return Miss(what="unknown")
        if earlier.model != layout.model:
            return Miss(what="model", tokens=earlier.lengths[-1] if earlier.lengths else 0)
        return _miss(earlier, _remembered(layout))


def _remembered(layout: Layout) -> Remembered:
    return Remembered(
        model=layout.model,
        settings=layout.prompt.settings,
        names=tuple(place.name for place in layout.places),
        sections=tuple(block.section for block in layout.blocks),
        lengths=tuple(place.tokens for place in layout.places),
    )


def _miss(earlier: Remembered, now: Remembered) -> Miss:
    whole = earlier.lengths[-1] if earlier.lengths else 0
    for name in (*earlier.settings, *now.settings):
        if earlier.settings.get(name) != now.settings.get(name):
            return Miss(what=name, tokens=whole)
    same = 0
    for one, other in zip(earlier.names, now.names, strict=False):
        if one != other:
            break
        same += 1
    if same == len(earlier.names):
        return Miss(what="")
    section = now.sections[same] if same < len(now.sections) else earlier.sections[same]
    first = min(earlier.sections[same], section, key=("tools", "system", "messages").index)
    return Miss(what=first, tokens=whole - (earlier.lengths[same - 1] if same else 0))


def retold(frames: tuple[bytes, ...], teller: Teller, told: Told) -> tuple[bytes, ...]:
    """The frames of an answer with what there is to tell in them.  Mostly there is nothing."""
    if told.miss is None and told.summary is None and told.way != "hits":
        return frames
    return tuple(_retold(frame, teller, told) for frame in frames)


def _retold(frame: bytes, teller: Teller, told: Told) -> bytes:
    before, data, rest = frame.partition(DATA)
    text = rest if data else frame
    if not text.lstrip().startswith(b"{"):
        return frame
    message = teller.tell(msgspec.json.decode(text, type=Message), told)
    if message is None:
        return frame
    wire = msgspec.json.encode(message)
    return before + data + wire + b"\n\n" if data else wire
