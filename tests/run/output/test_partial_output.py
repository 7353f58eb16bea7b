"""`stream.partial()`: the answer as it grows, on every wire, in the text and as a call of the output tool."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle import Agent, MisuseError, ModelRetry
from bridle.events import PartialOutput
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools.schema.partial_output import PartialJson, PartialTracker
from bridle.values.result import TextDelta
from tests.suite.wire_models import SCHEMA_MODELS


@dataclass
class Report:
    title: str
    cents: int
    notes: list[str]


@dataclass
class OpenReport:
    """An open map is asked for by a tool where the native form cannot express it."""

    title: str
    by_city: dict[str, int]


VALUES: dict[str, Any] = {
    Report: {"title": "Broken \"parcel\" \u00e9 \U0001f4e6 " + "word " * 30, "cents": 120, "notes": ["a", "b" * 40]},
    OpenReport: {"title": "Prices of all the cities " * 5, "by_city": {"Rome": 120, "Oslo": 95}},
}  # fmt: skip


def make_agent(replies, model, **options):
    native = Agent(model, **options).settings.output.mode == "native"
    name = Agent(model, **options).settings.output.name
    script = [
        json.dumps(value) if native else call_reply((name, value), text="Here it is:") for value in replies
    ]
    return Agent(scripted(*script, model=model), **options)


def collect(stream):
    async def main():
        return [item async for item in stream.partial()], await stream.result()

    return asyncio.run(main())


def is_prefix(part, whole):
    if isinstance(whole, dict):
        return isinstance(part, dict) and all(
            key in whole and is_prefix(part[key], whole[key]) for key in part
        )
    if isinstance(whole, list):
        return isinstance(part, list) and len(part) <= len(whole) and all(map(is_prefix, part, whole))
    return whole.startswith(part) if isinstance(whole, str) else part == whole


@pytest.mark.parametrize("output", [Report, OpenReport])
@pytest.mark.parametrize("model", SCHEMA_MODELS)
def test_the_answer_grows_on_every_wire(model, output):
    value = VALUES[output]
    items, result = collect(make_agent([value], model, output=output).stream("go"))
    assert result.stop == "done"
    *growing, last = items
    assert last == PartialOutput(value=value, output=output(**value), complete=True)
    assert last.output == result.output
    for item in growing:
        assert is_prefix(item.value, value)
        assert item.answer == 1
        assert not item.complete
    sizes = [len(json.dumps(item.value)) for item in growing]
    assert sizes == sorted(sizes)
    assert len(growing) > 3
    assert any(item.output is None for item in growing)
    assert growing[-1].output == output(**value)


@pytest.mark.parametrize("model", [SCHEMA_MODELS[0], SCHEMA_MODELS[2]])
def test_an_answer_that_is_sent_back_starts_again(model):
    def positive(report: OpenReport) -> None:
        if not report.by_city:
            raise ModelRetry("name a city")

    first, second = {"title": "Nothing " * 20, "by_city": {}}, VALUES[OpenReport]
    agent = make_agent([first, second], model, output=OpenReport, validate=positive)
    items, result = collect(agent.stream("go"))
    assert result.output == OpenReport(**second)
    assert [item.answer for item in items] == sorted(item.answer for item in items)
    assert {item.answer for item in items} == {1, 2}
    for item in items:
        assert is_prefix(item.value, first if item.answer == 1 else second)
    assert items[-1].complete


def test_text_grows_too():
    items, result = collect(Agent(scripted("one two three four five six seven eight")).stream("go"))
    assert items[-1] == PartialOutput(value=result.text, output=result.text, complete=True)
    assert all(result.text.startswith(item.value) for item in items)
    assert len(items) > 2


def test_a_list_comes_unwrapped():
    agent = Agent(scripted('```json\n{"value": [1, 2, 30]}\n```'), output=list[int])
    items, _ = collect(agent.stream("go"))
    assert all(isinstance(item.value, list) for item in items)
    assert items[-1].output == [1, 2, 30]
    assert [3] not in [item.value[2:] for item in items], "half a number is no number"


def test_a_run_without_an_answer_has_no_last_item():
    async def main():
        stream = Agent(scripted('{"x": ', '{"x": ', '{"x": '), output=Report).stream("go")
        items = [item async for item in stream.partial()]
        return items, await stream.result()

    items, result = asyncio.run(main())
    assert result.stop == "failed"
    assert not any(item.complete for item in items)


def test_a_stream_that_has_not_started_has_no_result():
    with pytest.raises(MisuseError, match="has not started"):
        asyncio.run(Agent(scripted("x")).stream("go").result())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=8) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4), st.booleans(), st.sampled_from([None, 2]))
def test_every_beginning_of_an_object_is_a_part_of_it(whole, ascii_only, indent):
    text = json.dumps(whole, ensure_ascii=ascii_only, indent=indent)
    partial = PartialJson()
    for character in text:
        partial.feed(character)
        found = partial.value()
        assert found is not None
        assert is_prefix(found, whole)
    assert partial.value() == whole


@pytest.mark.parametrize("hostile", ['{"title":' * 2_000, '{"notes":' + "[" * 2_000])
def test_an_answer_nested_without_end_does_not_end_the_run(hostile):
    script = scripted(hostile, json.dumps(VALUES[Report]), model=SCHEMA_MODELS[0])
    items, result = collect(Agent(script, output=Report).stream("go"))
    assert result.stop == "done"
    assert items[-1].output == Report(**VALUES[Report])


def test_half_a_character_is_not_an_answer_yet():
    partial = PartialJson()
    partial.feed('{"title": "\ud83d')
    assert partial.value() == {}


@pytest.mark.parametrize("output", [Report, None])
def test_all_readings_of_an_answer_stay_proportional_to_it(output):
    """A reading costs as much as the answer so far; one per delta would make 10,000 deltas quadratic."""

    def count_read_characters(length):
        tracker = PartialTracker(Agent(SCHEMA_MODELS[0], output=output).parts.output_type if output else None)
        sizes = [
            size for size in range(length) if tracker.apply(TextDelta(text='{"'[size : size + 1] or "x"))
        ]
        return sum(sizes)

    assert count_read_characters(20_000) < 2.5 * count_read_characters(10_000)
    assert count_read_characters(100) == sum(range(100))
