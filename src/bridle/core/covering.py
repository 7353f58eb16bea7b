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


def covered(
    view: Sequence[Message], recorded: Iterable[ViewChanged | Compacted], model: Model
) -> tuple[tuple[Message, ...], int]:
    """The view with a summary in place of what it covers, and how many messages that are.

    `view` is every message, with the changes of its parts made already.
    """
    latest = next(
        (each for each in reversed(tuple(recorded)) if isinstance(each, Compacted) and each.through), None
    )
    if latest is None:
        return tuple(view), 0
    count = next((at + 1 for at, message in enumerate(view) if message.id == latest.through), 0)
    if not count:
        return tuple(view), 0  # of a transcript that was cut before it
    return (_instead(latest, view[:count], model), *view[count:]), count


def _instead(event: Compacted, messages: Sequence[Message], model: Model) -> Message:
    name = f"{messages[0].id}-{event.through}"
    at = messages[-1].at
    if event.native and event.origin is not None and event.origin.endpoint == model.endpoint.home:
        return Message(role="assistant", parts=event.native, id=name, at=at, origin=event.origin)
    parts: list[Part] = [Text(text=event.lead)] if event.lead else []
    for message in messages:
        if message.id in event.prompts:
            parts += [Text(text=event.label), *message.parts] if event.label else message.parts
    if event.summary:
        parts.append(Text(text=event.summary))
    return Message(role="user", parts=tuple(parts), id=name, at=at)
