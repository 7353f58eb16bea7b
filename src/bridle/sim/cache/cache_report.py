"""Cache reports: the hits, misses and reasons that a provider adds to its answers beside the counts.

A codec encodes the fields that every provider has. These fields exist only in some families and are not
needed to decode a reply, so they are added to an encoded answer. A family defines where they go
(`cache_report.py` in its folder); this module computes the values.

To explain a miss, the prompt of an earlier answer is needed: the hashes of its blocks are kept for the newest
answers, under the answer's id.
"""

from collections.abc import Callable, Mapping

import msgspec

from bridle.values.base import Value
from bridle.values.usage import Usage

from .prompt_cache import PromptLayout

REMEMBERED_MAX = 1_000
"""Number of answers whose prompts are kept for comparison; older ones count as unknown."""
DATA = b"data: "
Message = dict[str, object]


class PromptDifference(Value, kw_only=True):
    """The first difference from an earlier prompt, and the tokens it costs."""

    what: str
    """`model`, a setting or a section; `unknown` if the earlier answer is not known; empty if equal."""
    tokens: int = 0


class CacheReport(Value, kw_only=True):
    usage: Usage
    cache_mode: str
    difference: PromptDifference | None = None
    """None if the request does not ask for it."""
    summary_usage: Usage | None = None
    """Usage of an automatic compaction before the answer; None if there was none."""


class CacheReporter(Value, kw_only=True, gc=True):
    """The part of a family that adds cache reports to its answers."""

    add_report: Callable[[Message, CacheReport], Message | None]
    """Adds the report to a message of the answer; None if that message carries none."""
    find_compared_reply: Callable[[Mapping[str, object]], str] = lambda body: ""
    """Returns the id of the answer whose prompt the request wants to be compared with."""


class PromptFingerprint(Value, kw_only=True):
    model: str
    settings: Mapping[str, str]
    prefix_hashes: tuple[bytes, ...]
    sections: tuple[str, ...]
    prefix_tokens: tuple[int, ...]


class PromptHistory:
    """Fingerprints of the prompts of earlier answers."""

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
        prefix_hashes=tuple(point.hash for point in layout.prefix_points),
        sections=tuple(block.section for block in layout.blocks),
        prefix_tokens=tuple(point.tokens for point in layout.prefix_points),
    )


def _find_difference(earlier: PromptFingerprint, now: PromptFingerprint) -> PromptDifference:
    total_tokens = earlier.prefix_tokens[-1] if earlier.prefix_tokens else 0
    for name in (*earlier.settings, *now.settings):
        if earlier.settings.get(name) != now.settings.get(name):
            return PromptDifference(what=name, tokens=total_tokens)
    equal_blocks = 0
    for one, other in zip(earlier.prefix_hashes, now.prefix_hashes, strict=False):
        if one != other:
            break
        equal_blocks += 1
    if equal_blocks == len(earlier.prefix_hashes):
        return PromptDifference(what="")
    section = (
        now.sections[equal_blocks] if equal_blocks < len(now.sections) else earlier.sections[equal_blocks]
    )
    first = min(earlier.sections[equal_blocks], section, key=("tools", "system", "messages").index)
    return PromptDifference(
        what=first, tokens=total_tokens - (earlier.prefix_tokens[equal_blocks - 1] if equal_blocks else 0)
    )


def add_cache_report(
    frames: tuple[bytes, ...], reporter: CacheReporter, report: CacheReport
) -> tuple[bytes, ...]:
    """Add the cache report to the frames of an answer, if there is anything to report."""
    if report.difference is None and report.summary_usage is None and report.cache_mode != "hits":
        return frames
    return tuple(_add_report_to_frame(frame, reporter, report) for frame in frames)


def _add_report_to_frame(frame: bytes, reporter: CacheReporter, report: CacheReport) -> bytes:
    before, data, rest = frame.partition(DATA)
    text = rest if data else frame
    if not text.lstrip().startswith(b"{"):
        return frame
    message = reporter.add_report(msgspec.json.decode(text, type=Message), report)
    if message is None:
        return frame
    wire = msgspec.json.encode(message)
    return before + data + wire + b"\n\n" if data else wire
