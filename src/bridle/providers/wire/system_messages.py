"""What an operator says in the midst of a conversation, where a wire is particular about it.

Some models take a message of role `system` after the conversation has begun, and then only at certain
places: behind what a user said, a tool brought or the provider's own tool found, and in front of what
the model says next or at the very end; never first, and in words only.  Everywhere else the same words go
out as a user's, marked as the operator's: the model hears them, and nobody refuses the request.

What is done depends on nothing but the messages and on whether the model takes such messages at all, so
asking again gives the same bytes.  Places are looked at in the whole line, because what follows counts.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from bridle.values.message import Media, Message, Opaque, Part, Text

OPERATOR_PREFIX = "[Instruction from the operator, not from the user]"


def place_system_messages(messages: Sequence[Message], *, taken: bool) -> tuple[Message, ...]:
    """The same messages, one for one.  `taken`: whether the model takes system messages in their midst."""
    line = tuple(messages)
    if "system" not in [message.role for message in line]:
        return line
    return tuple(
        _to_user_message(message)
        if message.role == "system" and not (taken and _can_stay_system(line, at))
        else message
        for at, message in enumerate(line)
    )


def _can_stay_system(line: Sequence[Message], at: int) -> bool:
    message = line[at]
    before = next((each for each in reversed(line[:at]) if _has_content(each)), None)
    if before is None or any(isinstance(part, Media) for part in message.parts):
        return False
    if not any(isinstance(part, Text) and part.text.strip() for part in message.parts):
        return True  # it changes a setting, which has rules of its own
    after = next((each for each in line[at + 1 :] if _has_content(each)), None)
    heard = before.role in ("user", "tool") or isinstance(before.parts[-1], Opaque)
    return heard and (after is None or after.role == "assistant")


def _has_content(message: Message) -> bool:
    """Whether it comes to anything; system messages do not stand between one another."""
    blank = all(isinstance(part, Text) and not part.text.strip() for part in message.parts)
    return message.role != "system" and not blank


def _to_user_message(message: Message) -> Message:
    said = [part for part in message.parts if isinstance(part, Text | Media)]
    parts: list[Part] = [Text(text=part.text) if isinstance(part, Text) else part for part in said]
    if any(isinstance(part, Media) or part.text.strip() for part in said):
        parts.insert(0, Text(text=OPERATOR_PREFIX))
    return replace(message, role="user", parts=tuple(parts), origin=None)
