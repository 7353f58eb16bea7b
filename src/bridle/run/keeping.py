"""What a tool brought, as it is kept: whole, or as an excerpt with the whole put by.

The bytes are durable before the record that refers to them.  A crash in between leaves bytes
that nobody refers to, which costs room and nothing else; the other way round it would leave a
handle to nothing.

`ReadResult` is the tool for the rest.  It reads what this session's log refers to: a hash that
a model knows from elsewhere opens nothing here.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from ..core.excerpt import PAGE_CHARACTERS_DEFAULT, READ_RESULT, excerpt, is_long, whole_text
from ..core.opencall import find_call
from ..core.paging import LEAD_CHARACTERS_MAX, page, places
from ..core.state import State
from ..ports.store import Store
from ..ports.tool import CallContext, Json, Tool
from ..values.errors import Corrupt, MisuseError
from ..values.parts import Text, ToolResult
from ..values.request import ToolSpec
from ..values.settings import RESULT_CHARACTERS_DEFAULT
from ..values.whole import HANDLE_LENGTH, Whole

HANDLES_TOLD_MAX = 10
PIECE_CHARACTERS = 1 << 18


class Keeping:
    """`state` is asked anew every time: what may be read grows with the log."""

    def __init__(self, store: Store, state: Callable[[], State]) -> None:
        self._store, self._state = store, state
        self.tools: Mapping[str, Tool] = {READ_RESULT.name: ReadResult(store, state)}

    async def fit(self, result: ToolResult) -> tuple[ToolResult, Whole | None]:
        """The result to record, and where the whole is if that is not all of it."""
        state = self._state()
        limit, readable = state.settings.result_characters, READ_RESULT in state.settings.hidden
        if limit is None or not is_long(result, limit):
            return result, None
        place = find_call(state.calls, result.call_id)
        if readable and place is not None and state.calls[place].call.name == READ_RESULT.name:
            return result, None  # a page of a page would never end
        text = whole_text(result)
        # In a thread, piece by piece: megabytes at one go are longer than others should wait.
        data = await asyncio.to_thread(_encoded, text) if len(text) > PIECE_CHARACTERS else text.encode()
        whole = Whole(hash=await self._store.put_blob(data), characters=len(text))
        return excerpt(result, text, whole, limit, readable=readable), whole

    async def text_of(self, whole: Whole) -> str:
        return (await _kept(self._store, whole)).decode()


class ReadResult:
    def __init__(self, store: Store, state: Callable[[], State]) -> None:
        self._store, self._state = store, state

    @property
    def spec(self) -> ToolSpec:
        return READ_RESULT

    async def run(self, arguments: Mapping[str, Json], context: CallContext) -> Sequence[Text]:
        handle, words = str(arguments["handle"]).strip(), str(arguments.get("search", ""))
        offset, limit = _number(arguments, "offset", 0), _number(arguments, "limit", PAGE_CHARACTERS_DEFAULT)
        state = self._state()
        whole = self._found(handle, state.wholes)
        data = await _kept(self._store, whole)
        longest = (state.settings.result_characters or RESULT_CHARACTERS_DEFAULT) - LEAD_CHARACTERS_MAX
        most = min(limit, longest)
        return (Text(text=await asyncio.to_thread(_page, data, words, offset, most)),)

    def _found(self, handle: str, wholes: Sequence[Whole]) -> Whole:
        for whole in wholes:
            if len(handle) >= HANDLE_LENGTH and whole.hash.startswith(handle):
                return whole
        known = ", ".join(whole.handle for whole in wholes[-HANDLES_TOLD_MAX:]) or "none so far"
        raise MisuseError(f"no result of this conversation has the handle {handle!r}; there are: {known}")


def _number(arguments: Mapping[str, Json], name: str, otherwise: int) -> int:
    """JSON knows one kind of number: 5.0 is a whole one too."""
    given = arguments.get(name, otherwise)
    return int(given) if isinstance(given, int | float) else otherwise


async def _kept(store: Store, whole: Whole) -> bytes:
    data = await store.get_blob(whole.hash)
    if data is None:
        raise Corrupt(
            f"the store no longer has {whole.hash}, to which its log refers; restore it from a backup"
        )
    return data


def _encoded(text: str) -> bytes:
    starts = range(0, len(text), PIECE_CHARACTERS)
    return b"".join(text[at : at + PIECE_CHARACTERS].encode() for at in starts)


def _page(data: bytes, words: str, offset: int, limit: int) -> str:
    text = data.decode()
    return places(text, words, offset, limit) if words else page(text, offset, limit)
