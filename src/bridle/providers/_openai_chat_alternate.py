"""Turns for servers that insist on them: a user, a model, a user, and so on.

Some servers render a conversation by a template that knows nothing else, and refuse whatever does not
fit it.  Neighbours of one speaker become one message, which grows while its turn lasts; what a system
says late is said by the user; and where two speakers cannot meet (a user right after results, a model
that begins), the missing one says a few words that mean nothing.
"""

from collections.abc import Sequence

from ._json import dumps
from ._kept import Turn
from ._openai_chat_content import Block
from ._openai_chat_dialect import Dialect

NOTED: Block = {"role": "assistant", "content": "(Noted.)"}
"""What stands between results and a user."""
_BETWEEN: dict[tuple[str, str], Block] = {
    ("", "assistant"): {"role": "user", "content": "(The conversation begins here.)"},
    ("assistant", "assistant"): {"role": "user", "content": "(Go on.)"},
    ("tool", "user"): NOTED,
}
_JOINT = dumps("\n\n")[1:-1]


class Alternation:
    """Who spoke last, and what may come next."""

    def __init__(self, dialect: Dialect) -> None:
        self._in_strings = dialect.content == "string"
        self._marked = dialect.cache_marks
        self._spoke = ""
        self._grows = False

    def answered(self) -> None:
        """Results were written."""
        self._spoke = "tool"

    def turns(self, message: Block, owed: bytes) -> Sequence[Turn]:
        """A message in its place.  What it is owed are answers to its calls: a tool speaks after it."""
        role = "assistant" if message["role"] == "assistant" else "user"
        turn = self._turn(role, message, owed)
        between = None if turn.merges and self._grows and self._spoke == role else (self._spoke, role)
        self._spoke, self._grows = "tool" if owed else role, turn.merges
        needed = _BETWEEN.get(between) if between else None
        return (Turn(b"", dumps(needed), b""), turn) if needed else (turn,)

    def _turn(self, role: str, message: Block, owed: bytes) -> Turn:
        content = message.get("content")
        rest = {name: value for name, value in message.items() if name not in ("role", "content")}
        beside = b"," + dumps(rest)[1:] if rest else b"}"
        if not content or owed:
            return Turn(b"", dumps({**message, "role": role}), b"", owed=owed)
        opening = b'{"role":"%b","content":' % role.encode()
        if self._in_strings:
            said = dumps(content)[1:-1]
            return Turn(opening + b'"', said, b'"' + beside, merges=True, joint=_JOINT)
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        items = b",".join(dumps(block) for block in blocks)
        mark_at = len(items) - 1 if self._marked else -1
        return Turn(opening + b"[", items, b"]" + beside, mark_at, merges=True)
