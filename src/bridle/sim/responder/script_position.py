"""Finds the position in a script after compaction has removed earlier replies.

A script is played by counting the replies since its prompt. Compaction removes replies, so the simulator's
own summaries state the position: the script, the number of replies given, and the last of them. Some of the
newest replies may still follow the summary, and the prompt may stand among older ones; both are recognized by
their hashes.
"""

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256

from bridle.values.base import Value
from bridle.values.message import Message, Opaque, Text

from .script import directive_lines

HASH_LENGTH = 16
POSITION = re.compile(r"\(script (\w+) of (\d+) lines: (\d+) given, the last (\w+)\)")


class ScriptPosition(Value, kw_only=True):
    script_hash: str
    lines: int
    replies_given: int
    last_reply_hash: str = "none"

    def __str__(self) -> str:
        given = f"{self.replies_given} given, the last {self.last_reply_hash}"
        return f"(script {self.script_hash} of {self.lines} lines: {given})"


def find_position(prompt: str, given: int, messages: Sequence[Message]) -> ScriptPosition | None:
    """Return the position in the prompt's script after `given` replies; None without a script."""
    lines = directive_lines(prompt)
    last_reply = next((_hash_message(message) for message in reversed(messages) if is_reply(message)), "none")
    return (
        ScriptPosition(
            script_hash=_hash_lines(lines), lines=len(lines), replies_given=given, last_reply_hash=last_reply
        )
        if lines
        else None
    )


CLIENT_CALLS = ("computer_call", "mcp_approval_request")
"""Kinds of items by which a reply asks something of the client."""


def read_position(messages: Iterable[Message]) -> ScriptPosition | None:
    """Return the newest position that a summary in these messages states."""
    texts = (part.text for message in messages for part in message.parts if isinstance(part, Text | Opaque))
    found = [match for text in texts for match in POSITION.findall(text or "")]
    if not found:
        return None
    script, lines, given, last = found[-1]
    return ScriptPosition(
        script_hash=script, lines=int(lines), replies_given=int(given), last_reply_hash=last
    )


def remaining_script(position: ScriptPosition, prompt: str) -> tuple[str, bool]:
    """Return the part of a prompt that is still to be played, and if it is the begun script itself.

    A wire may join several messages into one, with older scripts before this one and newer ones after it.
    Then the newer ones are played, and this one is over. Returns "" if the prompt does not contain the
    script.
    """
    lines = directive_lines(prompt)
    for end in range(len(lines), position.lines - 1, -1):
        script = lines[end - position.lines : end]
        if _hash_lines(script) == position.script_hash:
            newer = lines[end:]
            return "\n".join(newer or script), not newer
    return "", False


def messages_since(position: ScriptPosition, messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages after the script's last reply; all messages if that reply is not among them."""
    hashes = [_hash_message(message) if is_reply(message) else "" for message in messages]
    return (
        messages[hashes.index(position.last_reply_hash) + 1 :]
        if position.last_reply_hash in hashes
        else messages
    )


def is_reply(message: Message) -> bool:
    """True for a reply of the model, but not for items the provider put in place of a conversation."""
    return message.role == "assistant" and any(
        not isinstance(part, Opaque) or part.kind in CLIENT_CALLS for part in message.parts
    )


def _hash_message(message: Message) -> str:
    lines = [part.text for part in message.parts if isinstance(part, Text)]
    lines += [f"{call.wire_id or call.id} {call.name}" for call in message.calls]
    return _hash_lines(lines)


def _hash_lines(lines: Iterable[str]) -> str:
    return sha256("\n".join(lines).encode()).hexdigest()[:HASH_LENGTH]
