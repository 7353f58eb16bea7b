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

from bridle.sim.rules.engine import RuleFinding
from bridle.values.base import Value
from bridle.values.message import Part, Reasoning, Reply

from .signatures import SignedNote, digest_value, open_signature, sign_note

SHOWN_KIND, HIDDEN_KIND = "thinking", "redacted_thinking"
CACHE_MARKS = frozenset({"cache_control", "cachePoint"})
MODIFIED_MESSAGE = (
    "{at}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These"
    " blocks must remain as they were in the original response."
)
FORGED_MESSAGE = "{at}: Invalid `{what}` in `{kind}` block"
MOVED_MESSAGE = (
    "{at}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove"
    ' the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
_SIGNATURE_FIELDS = {SHOWN_KIND: "signature", HIDDEN_KIND: "data"}


class SentReasoning(Value):
    kind: str
    text: str
    signature: object


class SentBlock(Value):
    """One block: who said it, where it stands, and either what it is or the thought it holds."""

    place: str
    message: int
    role: str
    value: object = None
    reasoning: SentReasoning | None = None


class SentConversation(Value):
    """A conversation as it arrived."""

    family: str
    model: str
    head: object
    """What stands before the first message: system and tools."""
    blocks: tuple[SentBlock, ...]
    checks_prefix: bool = False
    summarized_prefixes: tuple[str, ...] = ()
    """Traces of what the first block stands for, where thoughts that came after that are still taken."""

    def latest_message(self) -> int:
        """The place of the model's latest message."""
        return max((block.message for block in self.blocks if block.role == "assistant"), default=-1)


def sign_reasoning(line: SentConversation, reply: Reply) -> Reply:
    """The reply with its thoughts signed."""
    thoughts = [part for part in reply.parts if isinstance(part, Reasoning)]
    prefix = prefix_digests(line)[-1]
    before = [note for _, note, _ in _own_reasoning(line)]
    last = str(before[-1].bound["self"]) if before else ""
    parts: list[Part] = []
    place = 0
    for part in reply.parts:
        if isinstance(part, Reasoning):
            kind = HIDDEN_KIND if part.redacted else SHOWN_KIND
            words = "" if part.redacted else part.text
            itself = digest_value([kind, words, place], after=prefix + last)
            blob = sign_note(
                kind,
                line.family,
                line.model,
                self=itself,
                words=digest_value(words) if words else "",
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


def find_forged(line: SentConversation) -> RuleFinding | None:
    """A proof nobody gave, or gave for other words, in an earlier message."""
    for block, thought in _reasoning_blocks(line):
        note = open_signature(thought.signature)
        if note is None or note.kind != thought.kind or not _is_valid_on_wire(line, note):
            return _forgery_finding(block, thought)
        if (
            _is_own(line, note)
            and not _has_same_text(note, thought)
            and block.message != line.latest_message()
        ):
            return _forgery_finding(block, thought)
    return None


def find_modified(line: SentConversation) -> RuleFinding | None:
    """Thoughts of the latest message with other words, in another order, or not all of them."""
    latest = [
        (block, note, thought)
        for block, note, thought in _own_reasoning(line)
        if block.message == line.latest_message()
    ]
    for block, note, thought in latest:
        if not _has_same_text(note, thought):
            return {"at": block.place}
    by_reply: dict[object, list[tuple[SentBlock, SignedNote]]] = {}
    for block, note, _ in latest:
        by_reply.setdefault(note.bound["prefix"], []).append((block, note))
    for together in by_reply.values():
        places = [note.bound["place"] for _, note in together]
        if places != list(range(int(together[0][1].bound["siblings"]))):
            return {"at": together[0][0].place}
    return None


def find_moved(line: SentConversation) -> RuleFinding | None:
    """A thought behind other words than it was thought after, or behind another thought."""
    if not line.checks_prefix:
        return None
    chains = prefix_chains(line)
    previous: SignedNote | None = None
    numbers = {id(block): number for number, block in enumerate(line.blocks)}
    for count, (block, note, _) in enumerate(_own_reasoning(line)):
        number = numbers[id(block)]
        begins = next(place for place, other in enumerate(line.blocks) if other.message == block.message)
        # Replies that were gone on with stand in one message: each begins where its own words do.
        if not any(note.bound["prefix"] in chain[begins : number + 1] for chain in chains):
            return {"at": block.place}
        if previous is not None and note.bound["before"] != previous.bound["self"]:
            return {"at": block.place}
        if count > int(note.bound["earlier"]):
            return {"at": block.place}
        previous = note
    return None


def without_cache_marks(value: object) -> object:
    """A value without cache marks: they may move."""
    if isinstance(value, Mapping):
        return {name: without_cache_marks(inner) for name, inner in value.items() if name not in CACHE_MARKS}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [without_cache_marks(inner) for inner in value if not _is_mark(inner)]
    return value


def _is_mark(value: object) -> bool:
    """Whether the block is a cache mark and nothing else, as one wire has them."""
    return isinstance(value, Mapping) and bool(value) and value.keys() <= CACHE_MARKS


def prefix_digests(line: SentConversation, stood_for: str = "") -> list[str]:
    """The trace of everything before each block, and before the end.

    `stood_for` is taken for what the first block is, instead of that block.
    """
    traces = [digest_value(without_cache_marks(line.head))]
    for block in line.blocks:
        before = traces[-1]
        if stood_for and len(traces) == 1:
            traces.append(stood_for)
        else:
            traces.append(
                before
                if block.reasoning
                else digest_value([block.role, without_cache_marks(block.value)], after=before)
            )
    return traces


def prefix_chains(line: SentConversation) -> list[list[str]]:
    """What may have stood before each block: what stands there, and what that stands for."""
    return [
        prefix_digests(line),
        *(prefix_digests(line, stood_for) for stood_for in line.summarized_prefixes),
    ]


def _reasoning_blocks(line: SentConversation) -> Iterator[tuple[SentBlock, SentReasoning]]:
    for block in line.blocks:
        if block.reasoning is not None and block.role == "assistant":
            yield block, block.reasoning


def _own_reasoning(line: SentConversation) -> Iterator[tuple[SentBlock, SignedNote, SentReasoning]]:
    """The thoughts this very model reads."""
    for block, thought in _reasoning_blocks(line):
        note = open_signature(thought.signature)
        if note is not None and note.kind == thought.kind and _is_own(line, note):
            yield block, note, thought


def _is_own(line: SentConversation, note: SignedNote) -> bool:
    return (note.family, note.model) == (line.family, line.model)


def _is_valid_on_wire(line: SentConversation, note: SignedNote) -> bool:
    """Both wires reach the same models; newer ones take proofs only at the door that gave them."""
    return note.family == line.family or not line.checks_prefix


def _has_same_text(note: SignedNote, thought: SentReasoning) -> bool:
    return not note.bound["words"] or note.bound["words"] == digest_value(thought.text)


def _forgery_finding(block: SentBlock, thought: SentReasoning) -> RuleFinding:
    return {"at": block.place, "what": _SIGNATURE_FIELDS[thought.kind], "kind": thought.kind}
