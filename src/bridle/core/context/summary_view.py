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

from bridle.core.state import State
from bridle.values.message import Media, Message, Opaque, Part, Reply, Text
from bridle.values.model import Model
from bridle.values.view import Compacted, ViewChanged

NATIVE_KIND = "compaction"
"""What every provider calls it that makes such a thing."""
NATIVE_SUMMARY_ASK = """\
Write down what is needed to go on with this work. What you write will stand in place of the conversation \
above. Do not call a tool; answer with the summary and nothing else.

Begin with everything the user said, word for word and complete. Then say"""
_SPEAKER_OF_ROLE = {"user": "user", "tool": "user", "assistant": "assistant"}


def can_summarize_natively(state: State) -> bool:
    """Whether the provider is to be asked."""
    wish, squeeze, model = state.settings.compaction, state.run.compaction, state.settings.model
    if wish is None or not wish.native or wish.model is not None or not model.abilities.compaction:
        return False
    return not squeeze.native_disabled and not squeeze.overflow and not squeeze.split_count


def native_cut_points(state: State, end: int) -> tuple[int, ...]:
    """Where old turns may end, the better place first: the prompt that is worked on stays, if it can."""
    messages = state.transcript.messages
    latest = next((at for at, each in enumerate(messages) if each.id in state.prompt_ids[-1:]), end)
    return tuple(find_cut_point(messages, place, state.summarized_count) for place in (min(latest, end), end))


def find_cut_point(messages: Sequence[Message], end: int, least: int) -> int:
    """Where old turns may end, at this place or before it; `least` when nowhere.

    Whoever speaks next is another: the provider would take two in a row for one, and its model's thoughts
    for thoughts after something else.
    """
    while end > least:
        before, after = (_SPEAKER_OF_ROLE.get(each.role, "") for each in messages[end - 1 : end + 1])
        if before and after and before != after and messages[end].role != "tool":
            return end
        end -= 1
    return least


def extract_native_parts(reply: Reply) -> tuple[Opaque, ...]:
    """What the provider made, if it did."""
    parts = tuple(part for part in reply.parts if isinstance(part, Opaque))
    return parts if any(part.kind == NATIVE_KIND for part in parts) else ()


def native_summary_text(made: Iterable[Opaque]) -> str:
    return "\n".join(part.text for part in made if part.kind == NATIVE_KIND and part.text).strip()


def has_prompts_intact(made: Sequence[Opaque], said: Iterable[Message], model: Model) -> bool:
    """Whether what people said stays word for word when this stands in its place."""
    if _has_other_items(made) or not model.abilities.bound_thinking:
        return True
    words = _collapse_spaces(native_summary_text(made))
    return all(_collapse_spaces(each.text) in words and not _has_media(each) for each in said)


def is_native_summary_accepted(event: Compacted, model: Model) -> bool:
    """Whether this model is sent what a provider made of old turns."""
    origin, endpoint = event.native_origin, model.endpoint
    home = origin is not None and (origin.family, origin.endpoint) == (endpoint.family, endpoint.endpoint_id)
    return bool(event.native_parts) and home and model.abilities.compaction


def native_replacement(
    event: Compacted, said: Sequence[Message], model: Model
) -> tuple[Opaque | Text | Media, ...]:
    """What stands in the view for the turns: what was made of them, and what people said where we say it.

    What was made for another model may not quote people, because there they were restated.
    """
    own = event.native_origin is not None and event.native_origin.model == model.id
    quoted = model.abilities.bound_thinking and (own or has_prompts_intact(event.native_parts, said, model))
    if _has_other_items(event.native_parts) or quoted:
        return event.native_parts
    words = [part for each in said for part in each.parts if isinstance(part, Text | Media)]
    return (*event.native_parts, *(Text(text=event.label) for _ in words[:1] if event.label), *words)


def _has_media(message: Message) -> bool:
    """Whether there is something in it that no summary can quote."""
    return any(isinstance(part, Media) for part in message.parts)


def _has_other_items(made: Iterable[Opaque]) -> bool:
    return any(part.kind != NATIVE_KIND for part in made)


def _collapse_spaces(text: str) -> str:
    return " ".join(text.split())


# What stands in the view for turns that gave way to a summary.
#
# One message of the user: a word of introduction, what people said in those turns, word for word, and the
# summary.  To the provider that made something of its own out of the same turns goes that, and nothing else.
#
# Only the latest summary counts: each stands for everything up to its end, earlier summaries included.


def replace_summarized_turns(
    view: Sequence[Message], recorded: Iterable[ViewChanged | Compacted], model: Model
) -> tuple[tuple[Message, ...], int]:
    """The view with a summary in place of what it covers, and how many messages that are.

    `view` is every message, with the changes of its parts made already.
    """
    latest = next((each for each in reversed(tuple(recorded)) if _is_summary_in_force(each, model)), None)
    if not isinstance(latest, Compacted):
        return tuple(view), 0
    count = next((at + 1 for at, message in enumerate(view) if message.id == latest.summarized_until), 0)
    if not count:
        return tuple(view), 0  # of a transcript that was cut before it
    return (_make_summary_message(latest, view[:count], model), *view[count:]), count


def _is_summary_in_force(event: ViewChanged | Compacted, model: Model) -> bool:
    """Whether it stands for turns in what this model is sent: what only another can read does not."""
    return isinstance(event, Compacted) and bool(
        event.summarized_until and (event.summary or is_native_summary_accepted(event, model))
    )


def _make_summary_message(event: Compacted, messages: Sequence[Message], model: Model) -> Message:
    name = f"{messages[0].id}-{event.summarized_until}"
    at = messages[-1].at
    if is_native_summary_accepted(event, model):
        said = [message for message in messages if message.id in event.prompt_ids]
        return Message(
            role="user",
            parts=native_replacement(event, said, model),
            id=name,
            at=at,
            origin=event.native_origin,
            provenance="summary",
        )
    parts: list[Part] = [Text(text=event.lead)] if event.lead else []
    for message in messages:
        if message.id in event.prompt_ids:
            parts += [Text(text=event.label), *message.parts] if event.label else message.parts
    if event.summary:
        parts.append(Text(text=event.summary))
    return Message(role="user", parts=tuple(parts), id=name, at=at, provenance="summary")
