"""Thinking, redacted thinking and compaction on the Messages wire.

A prefix that does not fit is no offence when the request asks for such blocks to be dropped;
that takes a beta header, and without it the very setting is refused.
"""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from ..values.message import Reply, Stop
from ..values.model import Abilities, Origin
from ..values.parts import Opaque, Reasoning
from ._rules_anthropic_compaction import COMPACTION, ON_DEMAND, is_summary, under_preview
from ._rules_anthropic_shape import (
    NEWEST,
    asked,
    assistant,
    blocks,
    messages,
    placed_blocks,
    rule,
    text,
    thinking_type,
    tools,
    user,
)
from ._rules_reading import (
    Block,
    field,
    mapping,
    to,
)
from ._seals_thoughts import (
    FORGED,
    HIDDEN,
    MODIFIED,
    MOVED,
    SHOWN,
    Line,
    Said,
    Thought,
    chains_of,
    forged,
    modified,
    moved,
    plain,
    sealed_in,
)
from .rules import Asked, Found, Rule
from .seals import Seal, opened, seal, trace

FAMILY = "anthropic"
CONTROLS = "thinking-binding-controls-2026-08-01"
_HEADER = f" That setting requires the `{CONTROLS}` value in the `anthropic-beta` header."


def sealed(request: Asked, reply: Reply) -> Reply:
    line, first = line_of(request), next(iter(reply.parts), None)
    if isinstance(first, Opaque) and first.kind == COMPACTION:
        # What is thought behind a summary has nothing else before it.
        block = msgspec.json.decode(first.native, type=dict[str, object])
        line = replace(line, said=(Said(place="", message=0, role="assistant", value=block),), stood_for=())
    return sealed_in(line, reply)


def summary_of(request: Asked, words: str) -> Block:
    """A block that stands for everything in the request, bound to its words.

    Thoughts that came after that are taken behind it as well: under the same head, in the next turn, and
    if the model that made it checks such things.
    """
    line, said = line_of(request), messages(request)
    ends = [chain[-1] for chain in chains_of(line)] if line.checks_prefix else []
    signature = seal(
        COMPACTION,
        FAMILY,
        line.model,
        words=trace(words),
        head=trace(plain(line.head)),
        ends=" ".join(ends),
        role=str(said[-1].get("role")) if said else "",
    )
    return {"type": COMPACTION, "content": words, "signature": signature}


def line_of(request: Asked) -> Line:
    kept = [tool for tool in tools(request) if tool.get("defer_loading") is not True]
    head = [blocks(request.body, "system"), kept]
    return Line(
        family=FAMILY,
        model=str(field(request, "model")),
        head=head,
        said=_since_summary(tuple(_said(request))),
        checks_prefix=request.abilities is not None and request.abilities.bound_thinking,
        stood_for=_stood_for(request, head),
    )


def _since_summary(said: tuple[Said, ...]) -> tuple[Said, ...]:
    """Nothing is read before a summary that the provider made of its own accord."""
    for at in range(len(said) - 1, -1, -1):
        block = mapping(said[at].value)
        if is_summary(block) and block.get("signature") is None:
            return said[at:]
    return said


def _stood_for(request: Asked, head: object) -> tuple[str, ...]:
    """What a summary in front stands for, when what follows may have followed that."""
    said = messages(request)
    first = next(iter(blocks(said[0])), {}) if said else {}
    note = opened(first.get("signature")) if first.get("type") == COMPACTION else None
    if note is None or note.kind != COMPACTION or not note.holds(head=trace(plain(head))):
        return ()
    # The block may share its message with what was said next.
    follows = said[0] if len(blocks(said[0])) > 1 else said[1] if len(said) > 1 else {}
    if follows.get("role") in (note.bound["role"], "system"):
        return ()
    return tuple(str(note.bound["ends"]).split())


def _said(request: Asked) -> Iterator[Said]:
    for index, message in enumerate(messages(request)):
        role = str(message.get("role"))
        for inner, block in enumerate(blocks(message)):
            place = f"messages.{index}.content.{inner}"
            thought: Thought | None = None
            if block.get("type") == SHOWN:
                thought = Thought(
                    kind=SHOWN, words=str(block.get("thinking") or ""), proof=block.get("signature")
                )
            elif block.get("type") == HIDDEN:
                thought = Thought(kind=HIDDEN, words="", proof=block.get("data"))
            value = None if thought else _flat(block)
            yield Said(place=place, message=index, role=role, value=value, thought=thought)


def _flat(block: Block) -> object:
    """A result in words is the same as a result of one block of words."""
    return {**block, "content": blocks(block)} if block.get("type") == "tool_result" else block


def _binding(request: Asked) -> Block:
    return mapping(mapping(field(request, "thinking")).get("block_binding"))


def _controls(request: Asked) -> bool:
    return CONTROLS in request.headers.get("anthropic-beta", "")


def _unheaded(request: Asked) -> Found | None:
    return {"mode": thinking_type(request)} if _binding(request) and not _controls(request) else None


def _moved(request: Asked) -> Found | None:
    if _binding(request).get("prefix_mismatch_behavior") == "drop_block":
        return None
    found = moved(line_of(request))
    return found and {**found, "header": "" if _controls(request) else _HEADER}


def _signed_summaries(request: Asked) -> Iterator[tuple[str, Block, Seal | None]]:
    for place, block in placed_blocks(request):
        if block.get("type") == COMPACTION and block.get("signature") is not None:
            note = opened(block.get("signature"))
            own = note is not None and (note.kind, note.family) == (COMPACTION, FAMILY)
            yield place, block, note if own else None


def _foreign_summary(request: Asked) -> Found | None:
    return next(({"at": place} for place, _, note in _signed_summaries(request) if note is None), None)


def _other_summary(request: Asked) -> Found | None:
    for place, block, note in _signed_summaries(request):
        if note is not None and not note.holds(words=trace(block.get("content"))):
            return {"at": place}
    return None


def _thinks(request: Asked, *thoughts: Reasoning, model: str = "") -> list[Block]:
    """What the model thinks at the end of this request, as blocks."""
    origin = Origin(family=FAMILY, endpoint=FAMILY, model=model)
    body = {**request.body, "model": model or request.body["model"]}
    reply = sealed(replace(request, body=body), Reply(parts=thoughts, stop=Stop.DONE, origin=origin))
    return [
        {"type": HIDDEN, "data": part.signature}
        if part.redacted
        else {"type": SHOWN, "thinking": part.text, "signature": part.signature}
        for part in reply.parts
        if isinstance(part, Reasoning)
    ]


_HELLO = asked(messages=[user("Hello")])
_THOUGHT = Reasoning(text="Greet back.")
(_SIGNED,) = _thinks(_HELLO, _THOUGHT)
_TWO = _thinks(_HELLO, _THOUGHT, Reasoning(redacted=True))
(_ELSEWHERE,) = _thinks(_HELLO, _THOUGHT, model="another-model")
_BOUND = replace(NEWEST, bound_thinking=True)


def _talk(*content: object, words: str = "Hello") -> Asked:
    return asked(messages=[user(words), assistant(*content), user("Bye")])


_SUMMARY = summary_of(to(_BOUND, _HELLO), "They greeted.")


def _behind(block: Block, *said: Block, by: Abilities = NEWEST, **changes: object) -> Asked:
    """What is said behind a summary."""
    return to(by, under_preview(asked(messages=[assistant(block), *said], **changes), ON_DEMAND))


def _longer(first: Block, *, again: bool = True) -> Asked:
    """A second thought that came after the first one, and a third after the second."""
    opening = [user("Hello"), assistant(_SIGNED, text("Hello")), user("More")]
    (second,) = _thinks(asked(messages=opening), Reasoning(text="Go on."))
    middle = [*opening, assistant(second, text("More")), user("More")]
    (third,) = _thinks(asked(messages=middle), Reasoning(text="And on."))
    kept = [second] if again else []
    return asked(
        messages=[
            user("Hello"),
            assistant(first, text("Hello")),
            user("More"),
            assistant(*kept, text("More")),
            user("More"),
            assistant(third, text("Enough")),
            user("Bye"),
        ]
    )


def _moved_at(message: int) -> str:
    return MOVED.format(at=f"messages.{message}.content.0") + _HEADER


_REST = (assistant(_SIGNED, text("Hello")), user("Bye"))
"""What came after what the summary stands for."""
_AGAIN = summary_of(_behind(_SUMMARY, *_REST, by=_BOUND), "They greeted, and parted.")
(_LAST,) = _thinks(_behind(_SUMMARY, *_REST, by=_BOUND), Reasoning(text="Part."))
_KEPT = (
    _behind(_SUMMARY, *_REST, by=_BOUND),
    to(
        _BOUND,
        under_preview(asked(messages=[assistant(_SUMMARY, _SIGNED, text("Hello")), _REST[1]]), ON_DEMAND),
    ),
    _behind(_AGAIN, assistant(_LAST, text("Bye")), user("Now?"), by=_BOUND),
)
_HUMMED = to(_BOUND, asked(messages=[user("Hello"), assistant("Hm.")]))
(_GONE_ON,) = _thinks(_HUMMED, _THOUGHT)
_CUT_OFF = (
    _behind(summary_of(_HELLO, "They greeted."), *_REST, by=_BOUND),
    _behind(_SUMMARY, *_REST, by=_BOUND, system="Be brief."),
    _behind(summary_of(_HUMMED, "Hm."), assistant(_GONE_ON, text("Hello")), user("Bye"), by=_BOUND),
)
"""Made by a model that checks nothing; behind another head; of a turn that the next one goes on with."""

RULES: tuple[Rule, ...] = (
    rule(
        "sealed-controls",
        _unheaded,
        "thinking.{mode}.block_binding: Extra inputs are not permitted",
        evidence="D",
        passes=replace(
            asked(thinking={"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}),
            headers={**_HELLO.headers, "anthropic-beta": CONTROLS},
        ),
        offends=asked(
            thinking={"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
        ),
        says="thinking.adaptive.block_binding: Extra inputs are not permitted",
    ),
    rule(
        "sealed-thought",
        lambda request: forged(line_of(request)),
        FORGED,
        evidence="S",
        passes=_talk(_ELSEWHERE, text("Hello")),
        offends=_talk({**_SIGNED, "signature": "c2ln"}, text("Hello")),
        says="messages.1.content.0: Invalid `signature` in `thinking` block",
        also=(
            (
                _talk({"type": HIDDEN, "data": str(_SIGNED["signature"])}, text("Hello")),
                "messages.1.content.0: Invalid `data` in `redacted_thinking` block",
            ),
        ),
    ),
    rule(
        "sealed-latest",
        lambda request: modified(line_of(request)),
        MODIFIED,
        evidence="S",
        passes=_talk(*_TWO, text("Hello")),
        offends=_talk({**_SIGNED, "thinking": "Greet them."}, text("Hello")),
        says=MODIFIED.format(at="messages.1.content.0"),
        also=((_talk(_TWO[0], text("Hello")), MODIFIED.format(at="messages.1.content.0")),),
    ),
    rule(
        "sealed-prefix",
        _moved,
        MOVED + "{header}",
        evidence="D",
        models="that check what came before a thought",
        passes=to(_BOUND, _longer(_SIGNED)),
        offends=to(_BOUND, _talk(_SIGNED, text("Hello"), words="Good day")),
        says=MOVED.format(at="messages.1.content.0") + _HEADER,
        also=(
            (_talk(_SIGNED, text("Hello"), words="Good day"), ""),
            *((request, _moved_at(1)) for request in _CUT_OFF),
            *((request, "") for request in _KEPT),
            (to(_BOUND, _longer(_SIGNED, again=False)), MOVED.format(at="messages.5.content.0") + _HEADER),
        ),
    ),
    replace(
        rule(
            "sealed-compaction",
            _foreign_summary,
            "{at}: Invalid `signature` in `compaction` block",
            evidence="K",
            passes=_behind(_SUMMARY, user("Bye")),
            offends=_behind({**_SUMMARY, "signature": "c2ln"}, user("Bye")),
            says="messages.0.content.0: Invalid `signature` in `compaction` block",
            also=(
                (
                    _behind({**_SUMMARY, "signature": str(_SIGNED["signature"])}, user("Bye")),
                    "messages.0.content.0: Invalid `signature` in `compaction` block",
                ),
            ),
        ),
        type="compaction_signature_invalid",
    ),
    replace(
        rule(
            "sealed-summary",
            _other_summary,
            "{at}: `content` of the `compaction` block differs from the text its `signature` recorded",
            evidence="K",
            passes=_behind({**_SUMMARY, "cache_control": {"type": "ephemeral"}}, user("Bye")),
            offends=_behind({**_SUMMARY, "content": "They fought."}, user("Bye")),
            says="messages.0.content.0: `content` of the `compaction` block differs from the text its"
            " `signature` recorded",
        ),
        type="compaction_content_mismatch",
    ),
)
