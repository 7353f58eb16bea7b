"""What stands in the view for turns that gave way to a summary.

One message of the user: a word of introduction, what people said in those turns, word for word, and the
summary.  To the provider that made something of its own out of the same turns goes that, and nothing else.

Only the latest summary counts: each stands for everything up to its end, earlier summaries included.
"""

from collections.abc import Iterable, Sequence

from ..values.message import Message
from ..values.model import Model
from ..values.parts import Part, Text
from ..values.view import Compacted, ViewChanged
from .precis import instead, is_taken


def covered(
    view: Sequence[Message], recorded: Iterable[ViewChanged | Compacted], model: Model
) -> tuple[tuple[Message, ...], int]:
    """The view with a summary in place of what it covers, and how many messages that are.

    `view` is every message, with the changes of its parts made already.
    """
    latest = next((each for each in reversed(tuple(recorded)) if _stands(each, model)), None)
    if not isinstance(latest, Compacted):
        return tuple(view), 0
    count = next((at + 1 for at, message in enumerate(view) if message.id == latest.through), 0)
    if not count:
        return tuple(view), 0  # of a transcript that was cut before it
    return (_instead(latest, view[:count], model), *view[count:]), count


def _stands(event: ViewChanged | Compacted, model: Model) -> bool:
    """Whether it stands for turns in what this model is sent: what only another can read does not."""
    return isinstance(event, Compacted) and bool(event.through and (event.summary or is_taken(event, model)))


def _instead(event: Compacted, messages: Sequence[Message], model: Model) -> Message:
    name = f"{messages[0].id}-{event.through}"
    at = messages[-1].at
    if is_taken(event, model):
        said = [message for message in messages if message.id in event.prompts]
        return Message(
            role="user",
            parts=instead(event, said, model),
            id=name,
            at=at,
            origin=event.origin,
            provenance="summary",
        )
    parts: list[Part] = [Text(text=event.lead)] if event.lead else []
    for message in messages:
        if message.id in event.prompts:
            parts += [Text(text=event.label), *message.parts] if event.label else message.parts
    if event.summary:
        parts.append(Text(text=event.summary))
    return Message(role="user", parts=tuple(parts), id=name, at=at, provenance="summary")
