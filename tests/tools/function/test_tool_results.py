"""Return values of tools as the model reads them."""

import asyncio
import enum
import json
import uuid
from array import array
from collections import deque
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict

from bridle import Agent
from bridle.ports.run_context import RunContext
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools import tool
from bridle.tools.function.invoker import make_result_parts
from bridle.tools.schema.json_form import to_json_form, to_json_text
from bridle.values.message import Media, Text

IMAGE = Media(kind="image", media_type="image/png", data="AAAA")


class Unit(enum.Enum):
    CELSIUS = "celsius"


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Day:
    when: date
    unit: Unit


class Point(NamedTuple):
    x: int
    y: int


class Shape(msgspec.Struct, tag="shape", rename="camel"):
    the_size: int
    note: str | msgspec.UnsetType = msgspec.UNSET


def text(value, **options):
    (part,) = make_result_parts(value, "t", **options)
    return part.text


@pytest.mark.parametrize(("value", "expected"), [
    ("plain words", "plain words"),
    ("", '""'),
    (" \n", '" \\n"'),
    (True, "true"),
    (3, "3"),
    (2**70, str(2**70)),
    (1.5, "1.5"),
    (float("nan"), '"NaN"'),
    (float("-inf"), '"-Infinity"'),
    ([], "[]"),
    ([1, "a", None], '[1,"a",null]'),
    (["only", "words"], '["only","words"]'),
    ((1, 2), "[1,2]"),
    ({"b": 1, "a": [2]}, '{"b":1,"a":[2]}'),
    ({1: "a", None: "b", False: "c", Unit.CELSIUS: "d"}, '{"1":"a","null":"b","false":"c","celsius":"d"}'),
    ({"b", "a"}, '["a","b"]'),
    (frozenset({10, 9}), "[10,9]"),
    (Day(date(2026, 5, 1), Unit.CELSIUS), '{"when":"2026-05-01","unit":"celsius"}'),
    (Point(1, 2), '{"x":1,"y":2}'),
    (Shape(the_size=1), '{"type":"shape","theSize":1}'),
    (datetime(2026, 5, 1, tzinfo=UTC), '"2026-05-01T00:00:00+00:00"'),
    (Decimal("1.50"), '"1.50"'),
    (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
    (Path("a") / "b", '"a/b"'),
    (Level.LOW, "1"),
    (range(3), "[0,1,2]"),
    (deque([1]), "[1]"),
    ({"x": {"é": "ü"}}, '{"x":{"é":"ü"}}'),
])  # fmt: skip
def test_values_become_text(value, expected):
    assert text(value) == expected


def test_parts_are_left_as_they_are():
    assert make_result_parts(IMAGE, "t") == (IMAGE,)
    assert make_result_parts([Text(text="a"), IMAGE, "b"], "t") == (Text(text="a"), IMAGE, Text(text="b"))
    assert make_result_parts((Text(text=" "),), "t") == (Text(text='" "'),)
    own = Text(text="", native='{"type":"x"}')
    assert make_result_parts(own, "t") == (own,)


def test_nothing_is_done_or_null_depending_on_what_was_promised():
    @tool
    def save() -> None: ...

    @tool
    def log(line: str): ...

    @tool
    def find(name: str) -> str | None: ...

    context = RunContext(context=None, session="s", call_id="c", idempotency_key="k")
    assert asyncio.run(save.run({}, context))[0].text == "done"
    assert asyncio.run(log.run({"line": "x"}, context))[0].text == "done"
    assert asyncio.run(find.run({"name": "x"}, context))[0].text == "null"


def test_a_lone_surrogate_cannot_make_the_log_unwritable():
    for value in ("a\ud800b", ["a\ud800b"], {"a\ud800b": 1}, Text(text="a\ud800b")):
        assert "�" in text(value)
        text(value).encode()


@pytest.mark.parametrize(("value", "said"), [
    (b"raw", "tool `t` returned a bytes, which has no JSON form; return Media.from_bytes(...) for a picture or a file"),
    (object(), "tool `t` returned a object, which has no JSON form; return str"),
    ([{"a": (i for i in "x")}], "tool `t` returned a generator"),
    ({(1, 2): 3}, "tool `t` returned a dict with a key of type tuple"),
    ([Text(text="a"), 3], "tool `t` returned parts with a int among them; use Text, Media or str"),
    (Day, "tool `t` returned a type"),
])  # fmt: skip
def test_what_a_model_cannot_read_is_named(value, said):
    with pytest.raises(TypeError) as refusal:
        make_result_parts(value, "t")
    assert str(refusal.value).startswith(said)


def test_what_contains_itself_is_named():
    loop = []
    loop.append(loop)
    with pytest.raises(TypeError, match="contains itself"):
        to_json_form(loop)


def test_json_text_is_json():
    value = {"a": [1.5, True, None, '"\\\n\x00é'], "b": {}}
    assert json.loads(to_json_text(value)) == value


class Shown(msgspec.Struct):
    picture: Media
    caption: str


@dataclass
class Page:
    picture: Media
    number: int


class Album(NamedTuple):
    pictures: list[Media]


class Poster(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    picture: Media
    day: date = date(2026, 5, 1)


class Frame(BaseModel):
    posters: dict[str, Poster]


BIG = Media.from_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 240, name="chart.png")
OTHER = Media.from_bytes(b"%PDF-1.7\n" + bytes(3000))
HOLDERS = {
    "dict": lambda media: {"picture": media, "n": 1},
    "list in a dict": lambda media: {"pictures": [media]},
    "dict in a list": lambda media: [{"picture": media}],
    "tuple": lambda media: {"pictures": (media, 1)},
    "dataclass": lambda media: Page(media, 1),
    "struct": lambda media: Shown(media, "c"),
    "named tuple": lambda media: Album([media]),
    "pydantic": lambda media: Poster(picture=media),
    "nested pydantic": lambda media: Frame(posters={"a": Poster(picture=media)}),
    "pydantic in a dataclass": lambda media: Page(Poster(picture=media), 1),  # type: ignore[arg-type]
    "deque": lambda media: {"pictures": deque([media])},
}
"""Every structure that a tool may return, around a medium."""


@pytest.mark.parametrize("media", [BIG, OTHER, Media.from_url("https://example.org/a.png")])
@pytest.mark.parametrize("holder", HOLDERS)
def test_media_in_a_structure_are_sent_as_media(holder, media):
    text, *lifted = make_result_parts(HOLDERS[holder](media), "t")
    assert lifted == [media]
    assert len(text.text) < 200 and f"[{media.kind} 1 of this result" in text.text
    assert json.loads(text.text)


def test_several_media_are_numbered_and_a_repeated_one_is_sent_once():
    text, *lifted = make_result_parts({"a": BIG, "b": [OTHER, BIG]}, "t")
    assert lifted == [BIG, OTHER]
    assert json.loads(text.text) == {
        "a": "[image 1 of this result: image/png chart.png]",
        "b": [
            "[document 2 of this result: application/pdf]",
            "[image 1 of this result: image/png chart.png]",
        ],
    }


class Raw(BaseModel):
    data: bytes


@pytest.mark.parametrize(
    "value",
    [
        {"data": b"\xff" * 1000},
        [bytearray(b"\xff")],
        {"data": memoryview(b"\xff")},
        {"data": array("B", range(200))},
        Raw(data=b"\xff\xfe"),
    ],
)
def test_bytes_in_a_structure_are_named_and_never_become_text(value):
    with pytest.raises(TypeError, match=r"tool `t` returned a .*, which has no JSON form"):
        make_result_parts(value, "t")


@pytest.mark.parametrize(
    "model",
    [
        "sim:anthropic/claude-sonnet-5-5",
        "sim:openai/gpt-6-sol",
        "sim:gemini/gemini-3.5-flash",
        "sim:bedrock_converse/global.anthropic.claude-sonnet-4-6",
    ],
)
def test_a_picture_in_a_dict_costs_no_text(model):
    @tool
    def draw() -> dict[str, Any]:
        return {"title": "a chart", "picture": BIG}

    line = scripted(call_reply(("draw", {})), "nice", model=model)
    result = Agent(line, tools=[draw]).run_sync("?")
    (answered,) = [each for message in result.messages for each in message.results]
    assert answered.parts[1] == BIG and BIG.data not in answered.text
    assert result.usage.input < 10_000
