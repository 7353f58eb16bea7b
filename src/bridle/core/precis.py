"""Old turns made short by the provider itself, where it can and nobody chose another to do it.

It is asked for exactly the turns that are to give way, under the same tools and instructions as ever, and
hands out something that only it takes back.  Two things are better than with a summary of ours: a model that
binds its thoughts to what stood before them takes those of the newest turns behind it, and a provider that
reads its own items loses less.  What people said is safe all the same, in one of three ways:

    kept       the provider hands it out again, word for word, beside what it made
    restated   we say it again behind what the provider made; to models that bind no thoughts
    quoted     the summary repeats it, as it was asked to; else its words serve as a summary of ours would

When the provider cannot do it, or its answer is no use, the run goes on with a summary of the usual kind.
"""

from collections.abc import Iterable, Sequence

from ..values.message import Message, Reply
from ..values.model import Model
from ..values.parts import Media, Opaque, Text
from ..values.view import Compacted
from .state import State

KIND = "compaction"
"""What every provider calls it that makes such a thing."""
ASK = """\
Write down what is needed to go on with this work. What you write will stand in place of the conversation \
above. Do not call a tool; answer with the summary and nothing else.

Begin with everything the user said, word for word and complete. Then say"""
_SPEAKERS = {"user": "user", "tool": "user", "assistant": "assistant"}


def able(state: State) -> bool:
    """Whether the provider is to be asked."""
    wish, squeeze, model = state.settings.compaction, state.run.squeeze, state.settings.model
    if wish is None or not wish.native or wish.model is not None or not model.abilities.compaction:
        return False
    return not squeeze.plain and not squeeze.overflow and not squeeze.pieces


def cuts(state: State, end: int) -> tuple[int, ...]:
    """Where old turns may end, the better place first: the prompt that is worked on stays, if it can."""
    messages = state.transcript.messages
    latest = next((at for at, each in enumerate(messages) if each.id in state.prompts[-1:]), end)
    return tuple(cut(messages, place, state.covered) for place in (min(latest, end), end))


def cut(messages: Sequence[Message], end: int, least: int) -> int:
    """Where old turns may end, at this place or before it; `least` when nowhere.

    Whoever speaks next is another: the provider would take two in a row for one, and its model's thoughts
    for thoughts after something else.
    """
    while end > least:
        before, after = (_SPEAKERS.get(each.role, "") for each in messages[end - 1 : end + 1])
        if before and after and before != after and messages[end].role != "tool":
            return end
        end -= 1
    return least


def made_in(reply: Reply) -> tuple[Opaque, ...]:
    """What the provider made, if it did."""
    parts = tuple(part for part in reply.parts if isinstance(part, Opaque))
    return parts if any(part.kind == KIND for part in parts) else ()


def words_in(made: Iterable[Opaque]) -> str:
    return "\n".join(part.text for part in made if part.kind == KIND and part.text).strip()


def is_safe(made: Sequence[Opaque], said: Iterable[Message], model: Model) -> bool:
    """Whether what people said stays word for word when this stands in its place."""
    if _keeps(made) or not model.abilities.bound_thinking:
        return True
    words = _flat(words_in(made))
    return all(_flat(each.text) in words and not _pictures(each) for each in said)


def is_taken(event: Compacted, model: Model) -> bool:
    """Whether this model is sent what a provider made of old turns."""
    origin, endpoint = event.origin, model.endpoint
    home = origin is not None and (origin.family, origin.endpoint) == (endpoint.family, endpoint.home)
    return bool(event.native) and home and model.abilities.compaction


def instead(event: Compacted, said: Sequence[Message], model: Model) -> tuple[Opaque | Text | Media, ...]:
    """What stands in the view for the turns: what was made of them, and what people said where we say it.

    What was made for another model may not quote people, because there they were restated.
    """
    own = event.origin is not None and event.origin.model == model.id
    quoted = model.abilities.bound_thinking and (own or is_safe(event.native, said, model))
    if _keeps(event.native) or quoted:
        return event.native
    words = [part for each in said for part in each.parts if isinstance(part, Text | Media)]
    return (*event.native, *(Text(text=event.label) for _ in words[:1] if event.label), *words)


def _pictures(message: Message) -> bool:
    """Whether there is something in it that no summary can quote."""
    return any(isinstance(part, Media) for part in message.parts)


def _keeps(made: Iterable[Opaque]) -> bool:
    return any(part.kind != KIND for part in made)


def _flat(text: str) -> str:
    return " ".join(text.split())
