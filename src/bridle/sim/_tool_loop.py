"""A tool loop in a raw conversation: from the last message of a person to the results that came last.

For the models behind two wires the whole loop is one assistant turn, however many messages it takes.
"""

from collections.abc import Callable, Sequence

from ._rules_reading import Block


def find_loop_head(
    messages: Sequence[Block], content: Callable[[Block], Sequence[str]], result: str
) -> int | None:
    """The place of the first assistant message of the loop whose results came last; None outside a loop.

    `content` names the kinds of a message's blocks, `result` is the kind of a tool result.  A user
    message that holds anything else is one of a person, and begins a new turn.
    """
    kinds = [content(message) for message in messages]
    if not messages or not kinds[-1] or not _is_answer(messages[-1], kinds[-1], result):
        return None
    head: int | None = None
    for index in range(len(messages) - 1, -1, -1):
        role = messages[index].get("role")
        if role == "assistant":
            head = index
        elif role == "user" and not _is_answer(messages[index], kinds[index], result):
            break
    return head


def _is_answer(message: Block, kinds: Sequence[str], result: str) -> bool:
    return message.get("role") == "user" and all(kind == result for kind in kinds)
