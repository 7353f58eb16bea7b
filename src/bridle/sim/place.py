"""Where in a script a conversation is, when the replies that told it are gone.

A script is played by counting the replies since its prompt.  Whoever makes the conversation shorter takes
them away, so the simulator's own summaries say where it was: in which script, after how many replies, and
which was the last.  Some of the newest replies may stand behind the summary all the same, and the prompt may
stand among older ones by then; both are known again by their names.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256

from ..values.message import Message
from ..values.parts import Opaque, Text
from ..values.value import Value
from .directives import lines_of

NAME_LENGTH = 16
PLACE = re.compile(r"\(script (\w+) of (\d+) lines: (\d+) given, the last (\w+)\)")


class Place(Value):
    script: str
    lines: int
    given: int
    last: str = "none"

    def __str__(self) -> str:
        return f"(script {self.script} of {self.lines} lines: {self.given} given, the last {self.last})"


def place_of(prompt: str, given: int, messages: Sequence[Message]) -> Place | None:
    """Where the script of a prompt is after so many replies; None when there is no script in it."""
    lines = lines_of(prompt)
    last = next((_name(message) for message in reversed(messages) if is_reply(message)), "none")
    return Place(script=_hash(lines), lines=len(lines), given=given, last=last) if lines else None


def told_in(messages: Iterable[Message]) -> Place | None:
    """The newest place that a summary in these messages tells."""
    texts = (part.text for message in messages for part in message.parts if isinstance(part, Text | Opaque))
    found = [match for text in texts for match in PLACE.findall(text or "")]
    if not found:
        return None
    script, lines, given, last = found[-1]
    return Place(script=script, lines=int(lines), given=int(given), last=last)


def script_at(place: Place, prompt: str) -> tuple[str, bool]:
    """What of a prompt is still to be played, and whether it is the script of that name, begun already.

    Older scripts may stand before it, and newer ones behind it, where a wire makes one message of many: then
    these are played, and it is over.  Nothing when it is not there.
    """
    lines = lines_of(prompt)
    for end in range(len(lines), place.lines - 1, -1):
        script = lines[end - place.lines : end]
        if _hash(script) == place.script:
            newer = lines[end:]
            return "\n".join(newer or script), not newer
    return "", False


def since(place: Place, messages: Sequence[Message]) -> Sequence[Message]:
    """What came after the reply that was the last one, if it is still there."""
    names = [_name(message) if is_reply(message) else "" for message in messages]
    return messages[names.index(place.last) + 1 :] if place.last in names else messages


def is_reply(message: Message) -> bool:
    """Whether the model spoke; what its provider put in place of a conversation is no reply."""
    return message.role == "assistant" and not all(isinstance(part, Opaque) for part in message.parts)


def _name(message: Message) -> str:
    told = [part.text for part in message.parts if isinstance(part, Text)]
    told += [f"{call.wire_id or call.id} {call.name}" for call in message.calls]
    return _hash(told)


def _hash(lines: Iterable[str]) -> str:
    return sha256("\n".join(lines).encode()).hexdigest()[:NAME_LENGTH]
