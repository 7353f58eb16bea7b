"""Excerpts that replace oversized tool results."""

import re

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bridle.core.calls.validation import check_arguments
from bridle.core.context.excerpt import (
    READ_RESULT,
    RESULT_CHARACTERS_MIN,
    is_long_result,
    join_result_text,
    make_excerpt,
    reveal_reader_tool,
)
from bridle.core.state import SessionCalls, State, ToolVisibility
from bridle.values.calls import StoredResult
from bridle.values.message import Media, Text, ToolResult
from bridle.values.settings import Settings

LIMIT = RESULT_CHARACTERS_MIN
IMAGE = Media(kind="image", media_type="image/png", data="AAAA")
NOTE = re.compile(
    r'\n?\[… ([\d,]+) of ([\d,]+) characters are left out here\. To read them: read_result\(handle="([0-9a-f]+)",'
    r' offset=(\d+)\); with search="words" it finds words in the whole result\. …\]\n'
)
PIECE = st.one_of(
    st.text(alphabet=st.sampled_from("ab\n é\u0301🪶"), min_size=1, max_size=40).map(lambda t: t * 60),
    st.text(alphabet="xyz\n", min_size=1, max_size=10),
).map(lambda text: Text(text=text))
PARTS = st.lists(st.one_of(PIECE, st.just(IMAGE)), min_size=1, max_size=8)


def result(*parts):
    return ToolResult(call_id="c1_0", parts=parts)


def make_text_and_excerpt(given_, limit=LIMIT, *, readable=True):
    text = join_result_text(given_)
    whole = StoredResult(hash="ab" * 32, character_count=len(text))
    return text, make_excerpt(given_, text, whole, limit, readable=readable)


@given(PARTS)
def test_beginning_and_end_and_what_is_left_out_are_the_whole(parts):
    given_ = result(*parts)
    if not is_long_result(given_, LIMIT):
        return
    text, short = make_text_and_excerpt(given_)
    assert sum(len(part.text) for part in short.parts if isinstance(part, Text)) <= LIMIT
    assert [part for part in short.parts if part == IMAGE] == [part for part in parts if part == IMAGE]
    assert all(part.text.strip() or part in parts for part in short.parts if isinstance(part, Text))
    shown = join_result_text(short)
    note = NOTE.search(shown)
    assert note, shown
    start, missing = int(note[4]), int(note[1].replace(",", ""))
    # Parts that are put side by side get a line's end between them; a blank part is not shown at all.
    head, tail = shown[: note.start()], shown[note.end() :]
    assert text[:start].rstrip("\n") == head.rstrip("\n")
    assert text[start + missing :].strip() == tail.strip()
    assert int(note[2].replace(",", "")) == len(text)


def test_one_text_is_cut_between_lines():
    lines = [f"line {number}" for number in range(2_000)]
    _, short = make_text_and_excerpt(result(Text(text="\n".join(lines))))
    shown = short.text.split("\n")
    note = next(place for place, line in enumerate(shown) if line.startswith("[…"))
    assert shown[:note] == lines[:note]
    assert shown[note + 1 :] == lines[-(len(shown) - note - 1) :]


def test_one_endless_line_is_cut_between_characters():
    text, short = make_text_and_excerpt(result(Text(text="e\u0301" * 5_000)))
    head, tail = NOTE.split(short.text)[0], NOTE.split(short.text)[-1]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert not head.endswith("e")
    assert tail.startswith("e")


def test_what_is_short_enough_is_left_alone():
    assert not is_long_result(result(Text(text="x" * LIMIT)), LIMIT)
    assert is_long_result(result(Text(text="x" * LIMIT), Text(text="y")), LIMIT)
    assert not is_long_result(result(Text(text="x" * 1_000_000)), None)
    assert not is_long_result(result(replace(IMAGE, data="A" * 1_000_000)), LIMIT)


def test_pictures_stay_in_their_place():
    first, last = Text(text="a" * 200), Text(text="z" * 200)
    _, short = make_text_and_excerpt(result(first, IMAGE, Text(text="m" * 5_000), IMAGE, last))
    assert [type(part) for part in short.parts] == [Text, Media, Text, Media, Text]
    assert (short.parts[0], short.parts[-1]) == (first, last)


def test_without_a_tool_to_read_it_the_note_names_the_blob_and_no_tool():
    _, short = make_text_and_excerpt(result(Text(text="x" * 5_000)), readable=False)
    assert "ab" * 32 in short.text
    assert READ_RESULT.name not in short.text


def test_the_reader_is_wanted_from_the_first_excerpt_on_and_once():
    settings = Settings(hidden_tools=(READ_RESULT,))
    some = (StoredResult(hash="ab" * 32, character_count=5),)
    assert reveal_reader_tool(State(settings=settings)) is None
    wanted = reveal_reader_tool(State(settings=settings, calls=SessionCalls(stored_results=some)))
    assert wanted is not None
    assert wanted.names == (READ_RESULT.name,)
    assert (
        reveal_reader_tool(
            State(
                settings=settings,
                calls=SessionCalls(stored_results=some),
                tools=ToolVisibility(revealed=wanted.names),
            )
        )
        is None
    )
    own = replace(READ_RESULT, description="somebody else's")
    for taken in (Settings(tools=(own,)), Settings(hidden_tools=(own,))):
        assert reveal_reader_tool(State(settings=taken, calls=SessionCalls(stored_results=some))) is None


def test_what_the_note_says_can_be_called():
    assert not hasattr(check_arguments(READ_RESULT, '{"handle":"abababababababab","offset":400}'), "text")
    assert hasattr(check_arguments(READ_RESULT, '{"handle":"abababababababab","offset":-1}'), "text")
