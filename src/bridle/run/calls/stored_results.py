"""What a tool brought, as it is kept: whole, or as an excerpt with the whole put by.

The bytes are durable before the record that refers to them.  A crash in between leaves bytes
that nobody refers to, which costs room and nothing else; the other way round it would leave a
handle to nothing.

`ReadResult` is the tool for the rest.  It reads what this session's log refers to: a hash that
a model knows from elsewhere opens nothing here.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from bridle.core.calls.pending import find_call
from bridle.core.context.excerpt import (
    LEAD_CHARACTERS_MAX,
    PAGE_CHARACTERS_DEFAULT,
    READ_RESULT,
    is_long_result,
    join_result_text,
    make_excerpt,
    read_page,
    search_text,
)
from bridle.core.state import State
from bridle.ports.store import Store
from bridle.ports.tool import CallContext, Json, Tool
from bridle.values.calls import HANDLE_LENGTH, StoredResult
from bridle.values.errors import Corrupt, MisuseError
from bridle.values.message import Text, ToolResult
from bridle.values.request import ToolSpec
from bridle.values.settings import RESULT_CHARACTERS_DEFAULT

HANDLES_NAMED_MAX = 10
ENCODE_PIECE_CHARACTERS = 1 << 18


class ResultStore:
    """`state` is asked anew every time: what may be read grows with the log."""

    def __init__(self, store: Store, state: Callable[[], State]) -> None:
        self._store, self._state = store, state
        self.tools: Mapping[str, Tool] = {READ_RESULT.name: ReadResult(store, state)}

    async def fit_result(self, result: ToolResult) -> tuple[ToolResult, StoredResult | None]:
        """The result to record, and where the whole is if that is not all of it."""
        state = self._state()
        limit, readable = state.settings.result_characters, READ_RESULT in state.settings.hidden_tools
        if limit is None or not is_long_result(result, limit):
            return result, None
        place = find_call(state.pending_calls, result.call_id)
        if readable and place is not None and state.pending_calls[place].call.name == READ_RESULT.name:
            return result, None  # a page of a page would never end
        text = join_result_text(result)
        # In a thread, piece by piece: megabytes at one go are longer than others should wait.
        data = (
            await asyncio.to_thread(_encode_in_pieces, text)
            if len(text) > ENCODE_PIECE_CHARACTERS
            else text.encode()
        )
        whole = StoredResult(hash=await self._store.put_blob(data), character_count=len(text))
        return make_excerpt(result, text, whole, limit, readable=readable), whole

    async def read_text(self, whole: StoredResult) -> str:
        return (await _read_stored(self._store, whole)).decode()


class ReadResult:
    def __init__(self, store: Store, state: Callable[[], State]) -> None:
        self._store, self._state = store, state

    @property
    def spec(self) -> ToolSpec:
        return READ_RESULT

    async def run(self, arguments: Mapping[str, Json], context: CallContext) -> Sequence[Text]:
        handle, words = str(arguments["handle"]).strip(), str(arguments.get("search", ""))
        offset, limit = (
            _integer_argument(arguments, "offset", 0),
            _integer_argument(arguments, "limit", PAGE_CHARACTERS_DEFAULT),
        )
        state = self._state()
        whole = self._find_stored(handle, state.stored_results)
        data = await _read_stored(self._store, whole)
        longest = (state.settings.result_characters or RESULT_CHARACTERS_DEFAULT) - LEAD_CHARACTERS_MAX
        most = min(limit, longest)
        return (Text(text=await asyncio.to_thread(_read_or_search, data, words, offset, most)),)

    def _find_stored(self, handle: str, wholes: Sequence[StoredResult]) -> StoredResult:
        for whole in wholes:
            if len(handle) >= HANDLE_LENGTH and whole.hash.startswith(handle):
                return whole
        known = ", ".join(whole.handle for whole in wholes[-HANDLES_NAMED_MAX:]) or "none so far"
        raise MisuseError(f"no result of this conversation has the handle {handle!r}; there are: {known}")


def _integer_argument(arguments: Mapping[str, Json], name: str, otherwise: int) -> int:
    """JSON knows one kind of number: 5.0 is a whole one too."""
    given = arguments.get(name, otherwise)
    return int(given) if isinstance(given, int | float) else otherwise


async def _read_stored(store: Store, whole: StoredResult) -> bytes:
    data = await store.get_blob(whole.hash)
    if data is None:
        raise Corrupt(
            f"the store no longer has {whole.hash}, to which its log refers; restore it from a backup"
        )
    return data


def _encode_in_pieces(text: str) -> bytes:
    starts = range(0, len(text), ENCODE_PIECE_CHARACTERS)
    return b"".join(text[at : at + ENCODE_PIECE_CHARACTERS].encode() for at in starts)


def _read_or_search(data: bytes, words: str, offset: int, limit: int) -> str:
    text = data.decode()
    return search_text(text, words, offset, limit) if words else read_page(text, offset, limit)
