"""Places system messages within a conversation where a wire restricts them.

Some models accept a `system` message inside a conversation, but only at certain positions: after a user
message, a tool result or a result of the provider's own tool, and before the model's next message or at the
end; never first, and text only. At any other position the text is sent as a user message that is marked as
the operator's, so the model reads it and the request is not refused.

The result depends only on the messages and on the model's support for such messages, so encoding again gives
the same bytes. The check needs the whole list, because the following message matters.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from bridle.values.message import Media, Message, Opaque, Part, Text

OPERATOR_PREFIX = "[Instruction from the operator, not from the user]"


def place_system_messages(messages: Sequence[Message], *, taken: bool) -> tuple[Message, ...]:
    """Return the same messages, one for one. `taken`: the model accepts system messages between others."""
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
        return True  # it changes a setting, which has its own rules
    after = next((each for each in line[at + 1 :] if _has_content(each)), None)
    follows_input = before.role in ("user", "tool") or isinstance(before.parts[-1], Opaque)
    return follows_input and (after is None or after.role == "assistant")


def _has_content(message: Message) -> bool:
    """Return True if a message is not a system message and has content."""
    blank = all(isinstance(part, Text) and not part.text.strip() for part in message.parts)
    return message.role != "system" and not blank


def _to_user_message(message: Message) -> Message:
    sendable = [part for part in message.parts if isinstance(part, Text | Media)]
    parts: list[Part] = [Text(text=part.text) if isinstance(part, Text) else part for part in sendable]
    if any(isinstance(part, Media) or part.text.strip() for part in sendable):
        parts.insert(0, Text(text=OPERATOR_PREFIX))
    return replace(message, role="user", parts=tuple(parts), origin=None)
