"""Stores long tool results whole and gives the model an excerpt.

The bytes are durable before the record that refers to them.  A crash in between leaves unreferenced bytes,
which only cost space; the other order would leave a reference to missing bytes.

`ReadResult` is the tool that reads the rest.  It reads only results that this session's log refers to: a
hash the model knows from elsewhere gives no access.
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
from bridle.ports.run_context import RunContext
from bridle.ports.store import Store
from bridle.ports.tool import ANY_ERROR, Json, Tool
from bridle.values.calls import HANDLE_LENGTH, StoredResult
from bridle.values.errors import Corrupt, MisuseError
from bridle.values.message import Text, ToolResult
from bridle.values.request import ToolSpec
from bridle.values.settings import RESULT_CHARACTERS_DEFAULT

HANDLES_NAMED_MAX = 10
ENCODE_PIECE_CHARACTERS = 1 << 18


class ResultStore:
    """Stores and reads the long results of one session; `state` returns its current state."""

    def __init__(self, store: Store, state: Callable[[], State]) -> None:
        self._store, self._state = store, state
        self.tools: Mapping[str, Tool] = {READ_RESULT.name: ReadResult(store, state)}
        self.unrecorded_blobs: dict[str, bytes] = {}
        """Blobs that no record refers to yet. A redaction elsewhere may remove one: then it is put again."""

    async def put_blob(self, data: bytes) -> str:
        hash_ = await self._store.put_blob(data)
        self.unrecorded_blobs[hash_] = data
        return hash_

    async def fit_result(self, result: ToolResult) -> tuple[ToolResult, StoredResult | None]:
        """The result to record, and the reference to the whole result if that is an excerpt."""
        state = self._state()
        # defect: long-result-shortened
        limit = state.settings.result_characters
        if limit is None or not is_long_result(result, limit):
            return result, None
        readable = READ_RESULT in state.settings.hidden_tools
        place = find_call(state.calls.batch.pending, result.call_id)
        if readable and place is not None and state.calls.batch.pending[place].call.name == READ_RESULT.name:
            return result, None  # a page of a stored result is not stored again
        text = join_result_text(result)
        # In a thread and in pieces: encoding megabytes at once would block the event loop.
        data = (
            await asyncio.to_thread(_encode_in_pieces, text)
            if len(text) > ENCODE_PIECE_CHARACTERS
            else text.encode()
        )
        whole = StoredResult(hash=await self.put_blob(data), character_count=len(text))
        return make_excerpt(result, text, whole, limit, readable=readable), whole

    async def read_text(self, whole: StoredResult) -> str:
        return (await _read_stored(self._store, whole)).decode()


class ReadResult:
    declared_errors = ANY_ERROR

    def __init__(self, store: Store, state: Callable[[], State]) -> None:
        self._store, self._state = store, state

    @property
    def spec(self) -> ToolSpec:
        return READ_RESULT

    async def run(self, arguments: Mapping[str, Json], context: RunContext) -> Sequence[Text]:
        handle, query = str(arguments["handle"]).strip(), str(arguments.get("search", ""))
        offset, limit = (
            _integer_argument(arguments, "offset", 0),
            _integer_argument(arguments, "limit", PAGE_CHARACTERS_DEFAULT),
        )
        state = self._state()
        whole = self._find_stored(handle, state.calls.stored_results)
        data = await _read_stored(self._store, whole)
        maximum = (state.settings.result_characters or RESULT_CHARACTERS_DEFAULT) - LEAD_CHARACTERS_MAX
        text = await asyncio.to_thread(_read_or_search, data, query, offset, min(limit, maximum))
        return (Text(text=text),)

    def _find_stored(self, handle: str, stored: Sequence[StoredResult]) -> StoredResult:
        for whole in stored:
            if len(handle) >= HANDLE_LENGTH and whole.hash.startswith(handle):
                return whole
        known = ", ".join(whole.handle for whole in stored[-HANDLES_NAMED_MAX:]) or "none so far"
        raise MisuseError(f"no result of this conversation has the handle {handle!r}; there are: {known}")


def _integer_argument(arguments: Mapping[str, Json], name: str, default: int) -> int:
    """An integer argument; JSON has one number type, so 5.0 is accepted."""
    given = arguments.get(name, default)
    return int(given) if isinstance(given, int | float) else default


async def _read_stored(store: Store, whole: StoredResult) -> bytes:
    data = await store.get_blob(whole.hash)
    if data is None:
        raise Corrupt(f"the store is missing {whole.hash}, which the log refers to; restore it from a backup")
    return data


def _encode_in_pieces(text: str) -> bytes:
    starts = range(0, len(text), ENCODE_PIECE_CHARACTERS)
    return b"".join(text[at : at + ENCODE_PIECE_CHARACTERS].encode() for at in starts)


def _read_or_search(data: bytes, query: str, offset: int, limit: int) -> str:
    text = data.decode()
    return search_text(text, query, offset, limit) if query else read_page(text, offset, limit)
