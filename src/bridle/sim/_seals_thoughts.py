"""Thoughts that are signed, and refused when they are not what was signed.

Two wires carry them for the same models, so the check is here once, over a conversation that
each wire spells out.  A signature is bound to

    the words        of the thought; a thought that was not shown has none, and takes any
    its siblings     the other thoughts of its reply: in the latest message of the model all of
                     them stand, in order, or none
    the prefix       system, tools, and everything said before it but thoughts and cache marks;
                     only by models that are said to check it
    the summary      of what came before it, made by the provider, does as well as the prefix does
    the line         which thought came before it.  Thoughts may be dropped from the beginning,
                     from the end, or all of them; not from the middle, and none comes back

What another model of the same maker thought is not read, and not refused either: it is passed
over in silence.  What was never sealed here, or by somebody else, is a forgery.
"""

from collections.abc import Iterator, Mapping, Sequence

from msgspec.structs import replace

from ..values.message import Reply
from ..values.parts import Part, Reasoning
from ..values.value import Value
from .rules import Found
from .seals import Seal, opened, seal, trace

SHOWN, HIDDEN = "thinking", "redacted_thinking"
MARKS = frozenset({"cache_control", "cachePoint"})
MODIFIED = (
    "{at}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These"
    " blocks must remain as they were in the original response."
)
FORGED = "{at}: Invalid `{what}` in `{kind}` block"
MOVED = (
    "{at}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove"
    ' the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
_PROOFS = {SHOWN: "signature", HIDDEN: "data"}


class Thought(Value):
    kind: str
    words: str
    proof: object


class Said(Value):
    """One block: who said it, where it stands, and either what it is or the thought it holds."""

    place: str
    message: int
    role: str
    value: object = None
    thought: Thought | None = None


class Line(Value):
    """A conversation as it arrived."""

    family: str
    model: str
    head: object
    """What stands before the first message: system and tools."""
    said: tuple[Said, ...]
    checks_prefix: bool = False
    stood_for: tuple[str, ...] = ()
    """Traces of what the first block stands for, where thoughts that came after that are still taken."""

    def latest(self) -> int:
        """The place of the model's latest message."""
        return max((block.message for block in self.said if block.role == "assistant"), default=-1)


def sealed_in(line: Line, reply: Reply) -> Reply:
    """The reply with its thoughts signed."""
    thoughts = [part for part in reply.parts if isinstance(part, Reasoning)]
    prefix = prefixes(line)[-1]
    before = [note for _, note, _ in _own(line)]
    last = str(before[-1].bound["self"]) if before else ""
    parts: list[Part] = []
    place = 0
    for part in reply.parts:
        if isinstance(part, Reasoning):
            kind = HIDDEN if part.redacted else SHOWN
            words = "" if part.redacted else part.text
            itself = trace([kind, words, place], after=prefix + last)
            blob = seal(
                kind,
                line.family,
                line.model,
                self=itself,
                words=trace(words) if words else "",
                prefix=prefix,
                before=last,
                earlier=len(before) + place,
                place=place,
                siblings=len(thoughts),
            )
            parts.append(replace(part, text=words, signature=blob))
            last, place = itself, place + 1
        else:
            parts.append(part)
    return replace(reply, parts=tuple(parts))


def forged(line: Line) -> Found | None:
    """A proof nobody gave, or gave for other words, in an earlier message."""
    for block, thought in _thoughts(line):
        note = opened(thought.proof)
        if note is None or note.kind != thought.kind or not _for_this_door(line, note):
            return _told(block, thought)
        if _is_own(line, note) and not _same_words(note, thought) and block.message != line.latest():
            return _told(block, thought)
    return None


def modified(line: Line) -> Found | None:
    """Thoughts of the latest message with other words, in another order, or not all of them."""
    latest = [(block, note, thought) for block, note, thought in _own(line) if block.message == line.latest()]
    for block, note, thought in latest:
        if not _same_words(note, thought):
            return {"at": block.place}
    by_reply: dict[object, list[tuple[Said, Seal]]] = {}
    for block, note, _ in latest:
        by_reply.setdefault(note.bound["prefix"], []).append((block, note))
    for together in by_reply.values():
        places = [note.bound["place"] for _, note in together]
        if places != list(range(int(together[0][1].bound["siblings"]))):
            return {"at": together[0][0].place}
    return None


def moved(line: Line) -> Found | None:
    """A thought behind other words than it was thought after, or behind another thought."""
    if not line.checks_prefix:
        return None
    chains = chains_of(line)
    previous: Seal | None = None
    numbers = {id(block): number for number, block in enumerate(line.said)}
    for count, (block, note, _) in enumerate(_own(line)):
        number = numbers[id(block)]
        begins = next(place for place, other in enumerate(line.said) if other.message == block.message)
        # Replies that were gone on with stand in one message: each begins where its own words do.
        if not any(note.bound["prefix"] in chain[begins : number + 1] for chain in chains):
            return {"at": block.place}
        if previous is not None and note.bound["before"] != previous.bound["self"]:
            return {"at": block.place}
        if count > int(note.bound["earlier"]):
            return {"at": block.place}
        previous = note
    return None


def plain(value: object) -> object:
    """A value without cache marks: they may move."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items() if name not in MARKS}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [plain(inner) for inner in value if not _is_mark(inner)]
    return value


def _is_mark(value: object) -> bool:
    """Whether the block is a cache mark and nothing else, as one wire has them."""
    return isinstance(value, Mapping) and bool(value) and value.keys() <= MARKS


def prefixes(line: Line, stood_for: str = "") -> list[str]:
    """The trace of everything before each block, and before the end.

    `stood_for` is taken for what the first block is, instead of that block.
    """
    traces = [trace(plain(line.head))]
    for block in line.said:
        before = traces[-1]
        if stood_for and len(traces) == 1:
            traces.append(stood_for)
        else:
            traces.append(before if block.thought else trace([block.role, plain(block.value)], after=before))
    return traces


def chains_of(line: Line) -> list[list[str]]:
    """What may have stood before each block: what stands there, and what that stands for."""
    return [prefixes(line), *(prefixes(line, stood_for) for stood_for in line.stood_for)]


def _thoughts(line: Line) -> Iterator[tuple[Said, Thought]]:
    for block in line.said:
        if block.thought is not None and block.role == "assistant":
            yield block, block.thought


def _own(line: Line) -> Iterator[tuple[Said, Seal, Thought]]:
    """The thoughts this very model reads."""
    for block, thought in _thoughts(line):
        note = opened(thought.proof)
        if note is not None and note.kind == thought.kind and _is_own(line, note):
            yield block, note, thought


def _is_own(line: Line, note: Seal) -> bool:
    return (note.family, note.model) == (line.family, line.model)


def _for_this_door(line: Line, note: Seal) -> bool:
    """Both wires reach the same models; newer ones take proofs only at the door that gave them."""
    return note.family == line.family or not line.checks_prefix


def _same_words(note: Seal, thought: Thought) -> bool:
    return not note.bound["words"] or note.bound["words"] == trace(thought.words)


def _told(block: Said, thought: Thought) -> Found:
    return {"at": block.place, "what": _PROOFS[thought.kind], "kind": thought.kind}
