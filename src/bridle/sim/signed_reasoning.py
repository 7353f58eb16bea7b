"""Signs reasoning, and finds reasoning in a request that differs from what was signed.

Two wires carry reasoning for the same models, so the check is here once, over a conversation that each wire
converts to `SentConversation`. A signature is bound to

    the text       of the block; hidden reasoning has none, and its text is not compared
    its siblings   the other reasoning blocks of its reply: the latest message of the model has all
                   of them, in order, or none
    the prefix     system, tools, and everything before it except reasoning and cache marks; only
                   checked for models whose abilities say so
    the summary    the provider's own summary of what came before it counts as that prefix
    the chain      the reasoning block before it. Blocks may be dropped from the start, from the
                   end, or all of them, but not from the middle, and none may return

Reasoning signed by another model of the same provider is ignored without an error. A signature that was not
made here, or was made for another wire, is a forgery.
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


class SentReasoning(Value, kw_only=True, gc=True):
    kind: str
    text: str
    signature: object


class SentBlock(Value, kw_only=True, gc=True):
    """One block of a message, with its position, role, and either its value or its reasoning."""

    place: str
    message: int
    role: str
    value: object = None
    reasoning: SentReasoning | None = None


class SentConversation(Value, kw_only=True, gc=True):
    """A conversation as a client sent it."""

    family: str
    model: str
    head: object
    """Everything before the first message: system and tools."""
    blocks: tuple[SentBlock, ...]
    checks_prefix: bool = False
    summarized_prefixes: tuple[str, ...] = ()
    """Digests of the conversations that the first block summarizes; reasoning signed after one of them is
    accepted."""

    def latest_message(self) -> int:
        """Index of the model's latest message."""
        return max((block.message for block in self.blocks if block.role == "assistant"), default=-1)


def sign_reasoning(conversation: SentConversation, reply: Reply) -> Reply:
    """Sign the reasoning blocks of a reply."""
    reasoning_parts = [part for part in reply.parts if isinstance(part, Reasoning)]
    prefix = prefix_digests(conversation)[-1]
    earlier = [note for _, note, _ in _own_reasoning(conversation)]
    previous = str(earlier[-1].bound["self"]) if earlier else ""
    parts: list[Part] = []
    place = 0
    for part in reply.parts:
        if isinstance(part, Reasoning):
            kind = HIDDEN_KIND if part.redacted else SHOWN_KIND
            text = "" if part.redacted else part.text
            own_digest = digest_value([kind, text, place], after=prefix + previous)
            signature = sign_note(
                kind,
                conversation.family,
                conversation.model,
                self=own_digest,
                words=digest_value(text) if text else "",
                prefix=prefix,
                before=previous,
                earlier=len(earlier) + place,
                place=place,
                siblings=len(reasoning_parts),
            )
            parts.append(replace(part, text=text, signature=signature))
            previous, place = own_digest, place + 1
        else:
            parts.append(part)
    return replace(reply, parts=tuple(parts))


def find_forged(conversation: SentConversation) -> RuleFinding | None:
    """Find a signature that was not made here, or an earlier message whose reasoning text differs."""
    for block, reasoning in _reasoning_blocks(conversation):
        note = open_signature(reasoning.signature)
        if note is None or note.kind != reasoning.kind or not _is_valid_on_wire(conversation, note):
            return _forgery_finding(block, reasoning)
        if (
            _is_own(conversation, note)
            and not _has_same_text(note, reasoning)
            and block.message != conversation.latest_message()
        ):
            return _forgery_finding(block, reasoning)
    return None


def find_modified(conversation: SentConversation) -> RuleFinding | None:
    """Find reasoning in the latest message that was changed, reordered or partly dropped."""
    latest = [
        (block, note, reasoning)
        for block, note, reasoning in _own_reasoning(conversation)
        if block.message == conversation.latest_message()
    ]
    for block, note, reasoning in latest:
        if not _has_same_text(note, reasoning):
            return {"at": block.place}
    by_reply: dict[object, list[tuple[SentBlock, SignedNote]]] = {}
    for block, note, _ in latest:
        by_reply.setdefault(note.bound["prefix"], []).append((block, note))
    for group in by_reply.values():
        places = [note.bound["place"] for _, note in group]
        if places != list(range(int(group[0][1].bound["siblings"]))):
            return {"at": group[0][0].place}
    return None


def find_moved(conversation: SentConversation) -> RuleFinding | None:
    """Find reasoning that follows another prefix or another reasoning block than it was signed for."""
    if not conversation.checks_prefix:
        return None
    chains = prefix_chains(conversation)
    previous: SignedNote | None = None
    numbers = {id(block): number for number, block in enumerate(conversation.blocks)}
    for count, (block, note, _) in enumerate(_own_reasoning(conversation)):
        number = numbers[id(block)]
        begins = next(
            place for place, other in enumerate(conversation.blocks) if other.message == block.message
        )
        # Replies continued after a pause share one message: each is checked from its own start.
        if not any(note.bound["prefix"] in chain[begins : number + 1] for chain in chains):
            return {"at": block.place}
        if previous is not None and note.bound["before"] != previous.bound["self"]:
            return {"at": block.place}
        if count > int(note.bound["earlier"]):
            return {"at": block.place}
        previous = note
    return None


def without_cache_marks(value: object) -> object:
    """Remove cache marks from a value, because they may move."""
    if isinstance(value, Mapping):
        return {name: without_cache_marks(inner) for name, inner in value.items() if name not in CACHE_MARKS}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [without_cache_marks(inner) for inner in value if not _is_mark(inner)]
    return value


def _is_mark(value: object) -> bool:
    """True if the block is only a cache mark, as one wire has them."""
    return isinstance(value, Mapping) and bool(value) and value.keys() <= CACHE_MARKS


def prefix_digests(conversation: SentConversation, summarized_prefix: str = "") -> list[str]:
    """Return the digest of everything before each block, and of the whole conversation.

    `summarized_prefix` replaces the digest of the first block.
    """
    digests = [digest_value(without_cache_marks(conversation.head))]
    for block in conversation.blocks:
        before = digests[-1]
        if summarized_prefix and len(digests) == 1:
            digests.append(summarized_prefix)
        else:
            digests.append(
                before
                if block.reasoning
                else digest_value([block.role, without_cache_marks(block.value)], after=before)
            )
    return digests


def prefix_chains(conversation: SentConversation) -> list[list[str]]:
    """Return the accepted prefixes of each block: as sent, and with the first block's summary expanded."""
    return [
        prefix_digests(conversation),
        *(prefix_digests(conversation, stood_for) for stood_for in conversation.summarized_prefixes),
    ]


def _reasoning_blocks(conversation: SentConversation) -> Iterator[tuple[SentBlock, SentReasoning]]:
    for block in conversation.blocks:
        if block.reasoning is not None and block.role == "assistant":
            yield block, block.reasoning


def _own_reasoning(conversation: SentConversation) -> Iterator[tuple[SentBlock, SignedNote, SentReasoning]]:
    """Yield the reasoning that this model signed."""
    for block, reasoning in _reasoning_blocks(conversation):
        note = open_signature(reasoning.signature)
        if note is not None and note.kind == reasoning.kind and _is_own(conversation, note):
            yield block, note, reasoning


def _is_own(conversation: SentConversation, note: SignedNote) -> bool:
    return (note.family, note.model) == (conversation.family, conversation.model)


def _is_valid_on_wire(conversation: SentConversation, note: SignedNote) -> bool:
    """Accept signatures of the other wire for the same models, unless the model checks the prefix."""
    return note.family == conversation.family or not conversation.checks_prefix


def _has_same_text(note: SignedNote, reasoning: SentReasoning) -> bool:
    return not note.bound["words"] or note.bound["words"] == digest_value(reasoning.text)


def _forgery_finding(block: SentBlock, reasoning: SentReasoning) -> RuleFinding:
    return {"at": block.place, "what": _SIGNATURE_FIELDS[reasoning.kind], "kind": reasoning.kind}
