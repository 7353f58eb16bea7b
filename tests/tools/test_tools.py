"""Tools from functions, from types and from raw schemas, and what is said when one cannot be made."""

import asyncio
import functools
import inspect
from dataclasses import dataclass
from typing import Annotated

import msgspec
import pytest

from bridle.ports.run_context import RunContext
from bridle.tools import tool
from bridle.tools.collect_tools import collect_tools
from bridle.tools.schema.json_types import JsonMismatch
from bridle.values.errors import BadTool
from bridle.values.request import TOOL_SECONDS_DEFAULT, ToolSpec
from tests.tools.tool_calls import CONTEXT, run, schema


@tool
def get_weather(city: str, days: int = 1) -> str:
    """Weather for a city.

    Args:
        city: Name of the city.
        days: How many days ahead.
    """
    return f"{city} {days}"


def test_a_plain_function():
    assert get_weather.spec == ToolSpec(
        name="get_weather",
        description="Weather for a city.",
        parameters=(
            '{"type":"object","properties":{"city":{"type":"string","description":"Name of the city."},'
            '"days":{"type":"integer","description":"How many days ahead.","default":1}},'
            '"required":["city"],"additionalProperties":false}'
        ),
        effect="undeclared",
        on_unknown="report",
        timeout_seconds=TOOL_SECONDS_DEFAULT,
    )
    assert run(get_weather, city="Tokyo") == "Tokyo 1"


def test_it_is_still_the_function():
    assert get_weather("Oslo", days=2) == "Oslo 2"
    assert get_weather.__name__ == "get_weather"
    assert get_weather.__doc__.startswith("Weather for a city.")
    assert str(inspect.signature(get_weather)) == "(city: str, days: int = 1) -> str"
    assert repr(get_weather) == "<tool get_weather>"


def test_an_async_function_runs_on_the_loop_of_the_caller():
    @tool
    async def where() -> bool:
        return asyncio.get_running_loop() is home

    async def main():
        nonlocal home  # type: ignore[misc]
        home = asyncio.get_running_loop()
        (part,) = await where.run({}, CONTEXT)
        assert await where() is True
        return part.text

    home = None
    assert asyncio.run(main()) == "true"


def test_what_the_parentheses_say_wins():
    @tool(name="look", description="Looks.", effect="read", timeout=2)
    def look_up(word: str) -> str:
        """Something else."""

    assert look_up.spec.name == "look"
    assert look_up.__name__ == "look_up"
    assert (look_up.spec.description, look_up.spec.effect) == ("Looks.", "read")
    assert (look_up.spec.timeout_seconds, look_up.spec.on_unknown) == (2.0, "retry")


@pytest.mark.parametrize(("options", "expected"), [
    ({}, "report"),
    ({"effect": "read"}, "retry"),
    ({"effect": "write"}, "report"),
    ({"effect": "exclusive"}, "report"),
    ({"effect": "read", "on_unknown": "report"}, "report"),
    ({"effect": "write", "on_unknown": "retry"}, "retry"),
])  # fmt: skip
def test_only_a_reading_tool_is_repeated_unless_told_otherwise(options, expected):
    assert tool(lambda: None, name="t", **options).spec.on_unknown == expected


def test_no_deadline_must_be_asked_for():
    assert tool(lambda: None, name="t", timeout=None).spec.timeout_seconds is None


def test_methods():
    class Shop:
        def __init__(self, name):
            self.name = name

        @tool
        def sell(self, what: str) -> str:
            """Sell something."""
            return f"{self.name}: {what}"

        @tool
        async def close(self) -> str:
            return self.name

        @staticmethod
        @tool
        def hours(day: int) -> str:
            return "9-5"

        @tool
        @staticmethod
        def owner(day: int) -> str:
            return "Ann"

        @classmethod
        @tool
        def chain(cls, town: str) -> str:
            return f"{cls.__name__} in {town}"

        def plain(self, what: str) -> str:
            return f"{self.name} has {what}"

    shop = Shop("corner")
    assert run(shop.sell, what="tea") == shop.sell("tea") == "corner: tea"
    assert run(Shop("other").sell, what="tea") == "other: tea"
    assert schema(shop.sell)["required"] == ["what"]
    assert str(inspect.signature(shop.sell)) == "(what: str) -> str"
    assert run(shop.close) == "corner"
    assert run(Shop.hours, day=1) == run(shop.hours, day=1) == "9-5"
    assert run(shop.owner, day=1) == shop.owner(1) == "Ann"  # type: ignore[call-arg]
    assert run(tool(shop.plain), what="milk") == "corner has milk"
    assert run(collect_tools([Shop.chain])["chain"], town="Rome") == Shop.chain("Rome") == "Shop in Rome"  # type: ignore[arg-type, call-arg]
    assert list(collect_tools([shop.sell, shop.hours, shop.plain])) == ["sell", "hours", "plain"]
    with pytest.raises(BadTool, match="`sell`: it is an unbound method"):
        collect_tools([Shop.sell])
    with pytest.raises(BadTool, match=r"pass `.*Shop\(…\)\.sell`"):
        run(Shop.sell, what="tea")


def test_partials_show_only_what_is_left():
    def search(index: str, words: str, limit: int = 5) -> str:
        """Search an index."""
        return f"{index} {words} {limit}"

    made = tool(functools.partial(search, "docs", limit=3))
    assert list(schema(made)["properties"]) == ["words"]
    assert (made.spec.name, made.spec.description, made.__name__) == ("search", "Search an index.", "search")
    assert run(made, words="x") == made(words="x") == "docs x 3"  # type: ignore[call-arg]


def test_callable_objects():
    class Greeter:
        """Not this."""

        def __init__(self, word):
            self.word = word

        async def __call__(self, name: str) -> str:
            """Greet somebody."""
            return f"{self.word} {name}"

    made = tool(Greeter("hello"), name="greet")
    assert made.spec.description == "Greet somebody."
    assert run(made, name="Ann") == "hello Ann"


def test_a_decorated_function_keeps_its_signature():
    def shouting(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs).upper()

        return wrapper

    @tool
    @shouting
    def say(word: str) -> str:
        return word

    assert run(say, word="ha") == "HA"


def test_a_plain_function_that_returns_something_to_await():
    async def later(word: str) -> str:
        return word

    assert run(tool(lambda: later("now"), name="t")) == "now"


def test_the_context_is_given_and_not_shown():
    @tool
    def pay(amount: int, call: RunContext) -> str:
        return f"{amount} {call.idempotency_key}"

    assert list(schema(pay)["properties"]) == ["amount"]
    assert run(pay, amount=3) == "3 k1"

    @tool
    def maybe(call: RunContext | None = None) -> str:
        return "called" if call else "tried"

    assert schema(maybe)["properties"] == {}
    assert (run(maybe), maybe()) == ("called", "tried")  # type: ignore[call-arg]


def test_annotations_that_are_strings():
    @dataclass
    class Here:
        x: "int"

    scope = {"tool": tool}
    source = (
        "from __future__ import annotations\n"
        "def define():\n"
        "    from dataclasses import dataclass\n"
        "    @dataclass\n"
        "    class Local:\n"
        "        x: int\n"
        "        next: Local | None = None\n"
        "    @tool\n"
        "    def f(it: Local, others: list[Local]) -> int:\n"
        "        return it.x\n"
        "    return f\n"
    )
    exec(source, scope)
    assert run(scope["define"](), it={"x": 3, "next": {"x": 4}}, others=[]) == "3"

    @tool
    def g(it: "Here") -> int:
        return it.x

    assert run(g, it={"x": 5}) == "5"


def test_annotated_descriptions_win_over_the_docstring():
    @tool
    def f(
        a: Annotated[int, "from the annotation"], b: Annotated[str, msgspec.Meta(description="meta")]
    ) -> None:
        """Do it.

        :param a: from the docstring
        """

    assert schema(f)["properties"]["a"]["description"] == "from the annotation"
    assert schema(f)["properties"]["b"]["description"] == "meta"


def test_arguments_of_another_shape_never_reach_the_function():
    reached = []

    @tool
    def f(n: int) -> None:
        reached.append(n)

    for bad in ({"n": "3"}, {"n": 3, "m": 1}, {}, {"n": True}):
        with pytest.raises(JsonMismatch):
            asyncio.run(f.run(bad, CONTEXT))
    assert reached == []


def test_an_unresolvable_return_type_is_accepted():
    def f(x: int) -> "Nowhere":  # type: ignore[name-defined]  # noqa: F821
        return None

    assert run(tool(f), x=1) == "null"


def missing(x):
    pass


def unreadable(x: "int +"):  # noqa: F722
    pass


def many(*words: str):
    pass


def named(**words: str):
    pass


def unnamed(x: int, /):
    pass


def raw(x: bytes):
    pass


def sloppy(x: str = None):  # type: ignore[assignment]  # noqa: RUF013
    pass


def yielding(x: int):
    yield x


def dangling(x: "Nowhere"):  # type: ignore[name-defined]  # noqa: F821
    pass


@pytest.mark.parametrize(("function", "said"), [
    (missing, "tool `missing`: parameter `x` has no annotation; write its type, as in `x: str`"),
    (many, "tool `many`: parameter `words` takes any number of values; use one list, as in `words: list"),
    (named, "tool `named`: parameter `words` takes any names; use one dict, as in `words: dict[str, str]`"),
    (unnamed, "tool `unnamed`: parameter `x` is positional-only"),
    (raw, "tool `raw`: parameter `x` is a `bytes`, which has no JSON form; take a `str` and decode it"),
    (sloppy, "tool `sloppy`: parameter `x` has the default None, which is not of its type; write `… | None`"),
    (yielding, "tool `yielding`: generators are not supported; return a list"),
    (dangling, "tool `dangling`: parameter `x` has an annotation with the unknown name `Nowhere`; define"),
    (unreadable, "tool `unreadable`: has an annotation that Python cannot read"),
    (lambda: None, "tool `<lambda>`: not every provider accepts this name"),
    (int, "tool `int`: it is a class; use TypedTool(int, run=…)"),
    (get_weather, "tool `get_weather`: it is already a tool; use @tool once"),
    (classmethod(missing), "tool `missing`: it is already a classmethod; write @classmethod above @tool"),
    (3, "tool `int`: it is not callable; put @tool on a function"),
])  # fmt: skip
def test_what_cannot_be_a_tool_is_one_line(function, said):
    with pytest.raises(BadTool) as refusal:
        tool(function)
    assert str(refusal.value).startswith(said)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(("options", "said"), [
    ({"effect": "reads"}, 'effect=\'reads\' is invalid; use one of "read", "write", "exclusive"'),
    ({"on_unknown": "hope"}, "on_unknown='hope' is invalid"),
    ({"on_unknown": "probe"}, 'on_unknown="probe" needs probe=…'),
    ({"resource": "file:{path}"}, "resource='file:{path}' names 'path', which is not a parameter"),
    ({"resource": 3}, "resource=3 is not callable"),
    ({"approve": "yes"}, "approve='yes' is not callable"),
    ({"at_once": 0}, "at_once=0 is invalid"),
    ({"effect": "read", "compensate": print}, "it only reads, so there is nothing to compensate"),
    ({"efect": "read"}, "unknown option 'efect'"),
    ({"timeout": 0}, "timeout=0 is invalid; use seconds above 0, or None"),
    ({"timeout": float("inf")}, "timeout=inf is invalid"),
    ({"timeout": "5"}, "timeout='5' is invalid"),
    ({"name": "get weather"}, "not every provider accepts this name; use 1 to 64 letters"),
    ({"name": "x" * 65}, "not every provider accepts"),
])  # fmt: skip
def test_options_that_make_no_sense(options, said):
    with pytest.raises(BadTool) as refusal:
        tool(raw_free, **options)
    assert said in str(refusal.value)


def raw_free() -> None:
    pass
