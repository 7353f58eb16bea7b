"""Where in a script a conversation is, when the replies that told it are gone.

A script is played by counting the replies since its prompt.  Whoever makes the conversation shorter takes
them away, so the simulator's own summaries say where it was: in which script, after how many replies, and
which was the last.  Some of the newest replies may stand behind the summary all the same, and the prompt may
stand among older ones by then; both are known again by their names.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256

from bridle.values.base import Value
from bridle.values.message import Message, Opaque, Text

from .script import directive_lines

HASH_LENGTH = 16
POSITION = re.compile(r"\(script (\w+) of (\d+) lines: (\d+) given, the last (\w+)\)")


class ScriptPosition(Value):
    script_hash: str
    lines: int
    replies_given: int
    last_reply_hash: str = "none"

    def __str__(self) -> str:
        given = f"{self.replies_given} given, the last {self.last_reply_hash}"
        return f"(script {self.script_hash} of {self.lines} lines: {given})"


def find_position(prompt: str, given: int, messages: Sequence[Message]) -> ScriptPosition | None:
    """Where the script of a prompt is after so many replies; None when there is no script in it."""
    lines = directive_lines(prompt)
    last = next((_hash_message(message) for message in reversed(messages) if is_reply(message)), "none")
    return (
        ScriptPosition(
            script_hash=_hash_lines(lines), lines=len(lines), replies_given=given, last_reply_hash=last
        )
        if lines
        else None
    )


def read_position(messages: Iterable[Message]) -> ScriptPosition | None:
    """The newest place that a summary in these messages tells."""
    texts = (part.text for message in messages for part in message.parts if isinstance(part, Text | Opaque))
    found = [match for text in texts for match in POSITION.findall(text or "")]
    if not found:
        return None
    script, lines, given, last = found[-1]
    return ScriptPosition(
        script_hash=script, lines=int(lines), replies_given=int(given), last_reply_hash=last
    )


def remaining_script(place: ScriptPosition, prompt: str) -> tuple[str, bool]:
    """What of a prompt is still to be played, and whether it is the script of that name, begun already.

    Older scripts may stand before it, and newer ones behind it, where a wire makes one message of many: then
    these are played, and it is over.  Nothing when it is not there.
    """
    lines = directive_lines(prompt)
    for end in range(len(lines), place.lines - 1, -1):
        script = lines[end - place.lines : end]
        if _hash_lines(script) == place.script_hash:
            newer = lines[end:]
            return "\n".join(newer or script), not newer
    return "", False


def messages_since(place: ScriptPosition, messages: Sequence[Message]) -> Sequence[Message]:
    """What came after the reply that was the last one, if it is still there."""
    names = [_hash_message(message) if is_reply(message) else "" for message in messages]
    return messages[names.index(place.last_reply_hash) + 1 :] if place.last_reply_hash in names else messages


def is_reply(message: Message) -> bool:
    """Whether the model spoke; what its provider put in place of a conversation is no reply."""
    return message.role == "assistant" and not all(isinstance(part, Opaque) for part in message.parts)


def _hash_message(message: Message) -> str:
    told = [part.text for part in message.parts if isinstance(part, Text)]
    told += [f"{call.wire_id or call.id} {call.name}" for call in message.calls]
    return _hash_lines(told)


def _hash_lines(lines: Iterable[str]) -> str:
    return sha256("\n".join(lines).encode()).hexdigest()[:HASH_LENGTH]
