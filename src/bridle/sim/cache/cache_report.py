"""What a provider says about its cache beside the counts: hits and misses, and why something was missed.

A codec speaks replies in words every provider has.  These words only some have, and
nobody needs them to understand a reply, so they are put into an answer after it was
spoken.  A family says where they go (`telling_<family>.py`); here is what is true.

To say why a prompt was missed, the prompt of an earlier answer has to be remembered: the
names of its blocks are, for the newest answers, under the answer's id.
"""

from collections.abc import Callable, Mapping

import msgspec

from bridle.values.base import Value
from bridle.values.usage import Usage

from .prompt_cache import PromptLayout

REMEMBERED_MAX = 1_000
"""Answers whose prompt can be compared with; older ones are as if they had never been."""
DATA = b"data: "
Message = dict[str, object]


class PromptDifference(Value):
    """The first thing that is different from an earlier prompt, and what that costs."""

    what: str
    """`model`, a setting, a section; `unknown` when the earlier answer is; empty when nothing is."""
    tokens: int = 0


class CacheReport(Value):
    usage: Usage
    cache_mode: str
    difference: PromptDifference | None = None
    """None when nobody asked."""
    summary_usage: Usage | None = None
    """What it took to shorten the conversation first; None when that was not done."""


class CacheReporter(Value):
    """How a family tells it."""

    add_report: Callable[[Message, CacheReport], Message | None]
    """A message of the answer with what there is to say in it; None when it is not said there."""
    find_compared_reply: Callable[[Mapping[str, object]], str] = lambda body: ""
    """From the body: the id of the answer whose prompt this one is to be compared with."""


class PromptFingerprint(Value):
    model: str
    settings: Mapping[str, str]
    prefix_hashes: tuple[bytes, ...]
    sections: tuple[str, ...]
    prefix_tokens: tuple[int, ...]


class PromptHistory:
    """The prompts of earlier answers."""

    def __init__(self) -> None:
        self._prompts: dict[tuple[str, str], PromptFingerprint] = {}

    def record_prompt(self, answer: str, layout: PromptLayout) -> None:
        self._prompts[layout.account, answer] = _fingerprint_prompt(layout)
        if len(self._prompts) > REMEMBERED_MAX:
            del self._prompts[next(iter(self._prompts))]

    def compare_prompt(self, answer: str, layout: PromptLayout) -> PromptDifference:
        earlier = self._prompts.get((layout.account, answer))
        if earlier is None:
            return PromptDifference(what="unknown")
        if earlier.model != layout.model:
            return PromptDifference(
                what="model", tokens=earlier.prefix_tokens[-1] if earlier.prefix_tokens else 0
            )
        return _find_difference(earlier, _fingerprint_prompt(layout))


def _fingerprint_prompt(layout: PromptLayout) -> PromptFingerprint:
    return PromptFingerprint(
        model=layout.model,
        settings=layout.prompt.settings,
        prefix_hashes=tuple(place.hash for place in layout.prefix_points),
        sections=tuple(block.section for block in layout.blocks),
        prefix_tokens=tuple(place.tokens for place in layout.prefix_points),
    )


def _find_difference(earlier: PromptFingerprint, now: PromptFingerprint) -> PromptDifference:
    whole = earlier.prefix_tokens[-1] if earlier.prefix_tokens else 0
    for name in (*earlier.settings, *now.settings):
        if earlier.settings.get(name) != now.settings.get(name):
            return PromptDifference(what=name, tokens=whole)
    same = 0
    for one, other in zip(earlier.prefix_hashes, now.prefix_hashes, strict=False):
        if one != other:
            break
        same += 1
    if same == len(earlier.prefix_hashes):
        return PromptDifference(what="")
    section = now.sections[same] if same < len(now.sections) else earlier.sections[same]
    first = min(earlier.sections[same], section, key=("tools", "system", "messages").index)
    return PromptDifference(what=first, tokens=whole - (earlier.prefix_tokens[same - 1] if same else 0))


def add_cache_report(
    frames: tuple[bytes, ...], teller: CacheReporter, told: CacheReport
) -> tuple[bytes, ...]:
    """The frames of an answer with what there is to tell in them.  Mostly there is nothing."""
    if told.difference is None and told.summary_usage is None and told.cache_mode != "hits":
        return frames
    return tuple(_add_report_to_frame(frame, teller, told) for frame in frames)


def _add_report_to_frame(frame: bytes, teller: CacheReporter, told: CacheReport) -> bytes:
    before, data, rest = frame.partition(DATA)
    text = rest if data else frame
    if not text.lstrip().startswith(b"{"):
        return frame
    message = teller.add_report(msgspec.json.decode(text, type=Message), told)
    if message is None:
        return frame
    wire = msgspec.json.encode(message)
    return before + data + wire + b"\n\n" if data else wire
