"""The rule-based responder: the demo's tasks, with unknown tools."""

from typing import Any

import msgspec
import pytest

from bridle.sim.responder.rule_based import SIMULATED_NOTE, respond
from bridle.sim.responder.skills.files import find_keywords
from bridle.sim.responder.skills.weather import find_cities
from bridle.values.message import Message, Reasoning, Stop, Text, ToolCall, ToolResult
from bridle.values.model import Abilities
from bridle.values.request import OutputSpec, Request, Thinking, ToolChoice
from tests.sim.responder.sim_conversation import MODEL, Conversation, spec

NUMBERS = {"a": {"type": "number"}, "b": {"type": "number"}}
CALCULATE = spec("calculate", {"expression": {"type": "string"}}, "Work out an arithmetic expression.")
WEATHER = spec("get_weather", {"city": {"type": "string"}}, "Weather in a city now.")
SEARCH = spec("search_files", {"pattern": {"type": "string"}}, "Search the notes.")
READ = spec("read_file", {"path": {"type": "string"}}, "Read a note.")
TEMPERATURES = {"Tokyo": "17 °C, clear", "New York": "14 °C, windy", "Oslo": "-3 °C, snow", "Cairo": "86 °F"}


def raise_error(**_: Any) -> str:
    raise ValueError("the fuse is blown")


# --- arithmetic ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "value"),
    [
        ("17 * 23 minus 100", "291"),
        ("What is 17 * 23 minus 100?", "291"),
        ("what is 12 times 7 plus 3?", "87"),
        ("Please work out (1 + 2) * (3 + 4).", "21"),
        ("1,000 divided by 8", "125"),
        ("10 / 4", "2.5"),
        ("2 to the power of 10", "1024"),
        ("-3 + 5", "2"),
        ("7 - -2", "9"),
        ("2 + 3 * 4 - 1", "13"),
        ("100 - 10 - 5", "85"),
    ],
)
def test_sums_are_worked_out_without_a_tool_and_it_says_so(prompt, value):
    said = Conversation().ask(prompt)
    assert f"= {value}, worked out without a tool" in said
    assert said.endswith(SIMULATED_NOTE)


@pytest.mark.parametrize("prompt", ["12 divided by 0", "9 ** 99999", "((9**99)**99)**99"])
def test_a_sum_without_an_answer_says_why(prompt):
    assert "has no answer I can give" in Conversation().ask(prompt)


@pytest.mark.parametrize(
    "prompt", ["What happened in 2020-2024?", "Open chapter 3.", "1. tea 2. milk", "call 555-1234"]
)
def test_numbers_are_not_always_sums(prompt):
    assert "simulated model" in Conversation().ask(prompt)
    assert "=" not in Conversation().ask(prompt)


def test_a_calculator_with_any_name_is_used():
    for name, parameter, description in (
        ("calculate", "expression", ""),
        ("do_it", "formula", "Evaluates a mathematical formula."),
        ("run", "expression", ""),
    ):
        tool = spec(name, {parameter: {"type": "string"}}, description)
        talk = Conversation({tool: lambda **given: eval(next(iter(given.values())))})
        assert talk.ask("17 * 23 minus 100") == f"17 * 23 - 100 = 291 {SIMULATED_NOTE}"
        assert talk.calls == [[(name, {parameter: "17 * 23 - 100"})]]


def test_the_answer_is_the_tools_even_when_the_tool_is_wrong():
    assert "= 42" in Conversation({CALCULATE: lambda expression: "42"}).ask("2 + 2")
    assert "= 42" in Conversation({CALCULATE: lambda expression: '{"result": 42}'}).ask("2 + 2")


def test_a_sum_is_taken_apart_for_tools_that_take_two_numbers():
    tools = {
        spec("add", NUMBERS): lambda a, b: a + b,
        spec("multiply", NUMBERS): lambda a, b: a * b,
        spec("subtract_numbers", NUMBERS): lambda a, b: a - b,
    }
    talk = Conversation(tools)
    assert talk.ask("What is (1 + 2) * (3 + 4) minus 1?").startswith("(1 + 2) * (3 + 4) - 1 = 20")
    assert talk.calls == [
        [("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})],
        [("multiply", {"a": 3, "b": 7})],
        [("subtract_numbers", {"a": 21, "b": 1})],
    ]


def test_an_operation_nobody_offers_is_worked_out_in_the_head():
    talk = Conversation({spec("add", NUMBERS): lambda a, b: a + b})
    assert "= 14" in talk.ask("2 + 3 * 4")
    assert talk.calls == [[("add", {"a": 2, "b": 12})]]


def test_equal_operations_are_called_once():
    talk = Conversation({spec("add", NUMBERS): lambda a, b: a + b})
    assert "= 9" in talk.ask("(1 + 2) * (1 + 2)")
    assert talk.calls == [[("add", {"a": 1, "b": 2})]]


@pytest.mark.parametrize("tool", [CALCULATE, spec("add", NUMBERS)])
def test_a_calculator_that_fails_is_told_about_once(tool):
    talk = Conversation({tool: raise_error})
    said = talk.ask("2 + 3")
    assert "the fuse is blown" in said
    assert len(talk.calls) == 1


def test_a_result_that_is_no_number_ends_a_sum():
    talk = Conversation({spec("add", NUMBERS): lambda a, b: "many"})
    assert "brought no number: many" in talk.ask("1 + 2 + 3")
    assert len(talk.calls) == 1


# --- weather ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "cities"),
    [
        ("Is it warmer in Tokyo or New York?", ("Tokyo", "New York")),
        ("Compare the weather in Berlin and Madrid.", ("Berlin", "Madrid")),
        ("Which is colder today, Oslo or Rio de Janeiro?", ("Oslo", "Rio de Janeiro")),
        ("Is Paris warmer than London?", ("Paris", "London")),
        ("what's the weather like in São Paulo?", ("São Paulo",)),
        ("compare the weather in paris, rome and new york", ("paris", "rome", "new york")),
        ("is it colder in oslo than in cairo today?", ("oslo", "cairo")),
        ("How is the weather?", ()),
    ],
)
def test_cities_are_found_in_a_question(prompt, cities):
    assert find_cities(prompt) == cities


def test_cities_are_asked_for_in_parallel_and_compared():
    talk = Conversation({WEATHER: lambda city: TEMPERATURES[city]})
    said = talk.ask("Is it warmer in Tokyo or New York?")
    assert talk.calls == [[("get_weather", {"city": "Tokyo"}), ("get_weather", {"city": "New York"})]]
    assert said == f"It is warmer in Tokyo: 17 °C, against 14 °C in New York. {SIMULATED_NOTE}"


def test_the_cold_is_compared_when_asked_for_and_units_are_minded():
    talk = Conversation({WEATHER: lambda city: TEMPERATURES[city]})
    assert talk.ask("Which is coldest, Cairo, Oslo or Tokyo?").startswith(
        "It is coldest in Oslo: -3 °C, against 17 °C in Tokyo and 86 °F in Cairo."
    )


def test_results_may_be_objects():
    talk = Conversation({WEATHER: lambda city: f'{{"temperature_c": {len(city)}, "sky": "clear"}}'})
    assert "warmer in London: 6 °C, against 4 °C in Rome" in talk.ask("Is it warmer in Rome or London?")


def test_one_city_is_told_and_results_without_temperatures_are_repeated():
    talk = Conversation({WEATHER: lambda city: "sunny"})
    assert talk.ask("What is the weather in Rome?") == f"Rome: sunny {SIMULATED_NOTE}"
    assert "Rome: sunny\nOslo: sunny" in talk.ask("Compare the weather in Rome and Oslo.")


def test_the_parameter_may_have_another_name_a_list_to_choose_from_and_company():
    tool = spec(
        "forecast",
        {"location": {"enum": ["Rome", "Oslo"], "type": "string"}, "unit": {"enum": ["C", "F"]}},
    )
    talk = Conversation({tool: lambda location, unit: f"5 °{unit}"})
    assert "equally warm in Oslo and Rome" in talk.ask("is it warmer in oslo or rome").replace(
        "Rome and Oslo", "Oslo and Rome"
    )
    assert talk.calls == [[("forecast", {"location": city, "unit": "C"}) for city in ("Rome", "Oslo")]]


def test_a_city_without_weather_is_told_about_and_not_asked_for_again():
    talk = Conversation({WEATHER: lambda city: TEMPERATURES[city]})
    said = talk.ask("Is it warmer in Tokyo or Atlantis?")
    assert "Tokyo: 17 °C" in said
    assert "could not get the weather for Atlantis" in said
    assert len(talk.calls) == 1


def test_calls_come_one_by_one_where_parallel_ones_are_not_wanted():
    talk = Conversation({WEATHER: lambda city: TEMPERATURES[city]}, tool_choice=ToolChoice(parallel=False))
    assert "warmer in Tokyo" in talk.ask("Is it warmer in Tokyo or New York?")
    assert [len(batch) for batch in talk.calls] == [1, 1]


# --- files --------------------------------------------------------------------------------------

NOTES = {
    "library.txt": "Town library\n\nIt closes at 16:30 on Friday.\nBooks may be kept for four weeks.",
    "harbour.txt": "The ferry leaves at 7:40.",
}


def grep(pattern: str) -> str:
    hits = [
        f"{name}:{number}: {line}"
        for name, text in NOTES.items()
        for number, line in enumerate(text.splitlines(), start=1)
        if pattern.lower() in line.lower()
    ]
    return "\n".join(hits) or f"No matches for {pattern!r}."


def test_something_is_looked_up_by_searching_and_reading():
    talk = Conversation({SEARCH: grep, READ: lambda path: NOTES[path]})
    said = talk.ask("When does the library close on Fridays? Look it up in the notes.")
    assert talk.calls[0] == [("search_files", {"pattern": "Fridays"})]
    assert talk.calls[-1] == [("read_file", {"path": "library.txt"})]
    assert said == f"library.txt says: “It closes at 16:30 on Friday.” {SIMULATED_NOTE}"


def test_words_in_quotation_marks_are_searched_for_first():
    assert find_keywords('Find "four weeks" in the files, about Books')[0] == "four weeks"


def test_a_search_that_brings_nothing_is_repeated_with_other_words_and_then_given_up():
    talk = Conversation({SEARCH: lambda pattern: "no matches", READ: lambda path: NOTES[path]})
    said = talk.ask("Search the files for unicorns grazing near waterfalls under rainbows tonight")
    assert "I found nothing" in said
    assert len(talk.calls) == 4


def test_a_search_alone_is_enough_for_an_answer():
    assert "The ferry leaves at 7:40." in Conversation({SEARCH: grep}).ask("Find the ferry in the notes")


def test_a_file_that_is_named_is_read_at_once():
    talk = Conversation({SEARCH: grep, READ: lambda path: NOTES[path]})
    assert "The ferry leaves at 7:40." in talk.ask("Read harbour.txt please")
    assert talk.calls == [[("read_file", {"path": "harbour.txt"})]]


@pytest.mark.parametrize(
    "tools", [{SEARCH: raise_error, READ: raise_error}, {SEARCH: grep, READ: raise_error}]
)
def test_a_failing_lookup_is_told_about(tools):
    talk = Conversation(tools)
    assert "failed: the fuse is blown" in talk.ask("Look up the ferry in the notes.")
    assert len(talk.calls) <= 2


# --- a shape for the answer, and tools that must be called ----------------------------------------

SHAPE = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "degrees": {"type": "number"},
        "sky": {"enum": ["rain", "sun"]},
        "summary": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2, "uniqueItems": True},
    },
    "required": ["city", "degrees", "sky", "summary", "tags"],
    "additionalProperties": False,
}
OUTPUT = OutputSpec(name="report", parameters=msgspec.json.encode(SHAPE).decode())


def test_an_answer_in_a_shape_is_pure_json_filled_from_the_conversation():
    said = msgspec.json.decode(Conversation(output=OUTPUT).ask("Report on Tokyo: sun and 21.5 degrees."))
    assert (said["city"], said["degrees"], said["sky"]) == ("Tokyo", 21.5, "sun")
    assert len(set(said["tags"])) == 2


def test_tools_are_used_before_the_answer_takes_its_shape():
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    output = OutputSpec(name="answer", parameters=msgspec.json.encode(schema).decode())
    talk = Conversation({CALCULATE: lambda expression: "291"}, output=output)
    assert msgspec.json.decode(talk.ask("17 * 23 minus 100")) == {"answer": "17 * 23 - 100 = 291"}
    assert len(talk.calls) == 1


def test_a_forced_tool_is_called_with_arguments_that_fit():
    tool = spec(
        "book", {"seats": {"type": "integer", "minimum": 3}, "when": {"type": "string", "format": "date"}}
    )
    request = Request(
        model=MODEL,
        tools=(tool,),
        tool_choice=ToolChoice(mode="tool", name="book"),
        messages=(Message(role="user", parts=(Text(text="Hello"),)),),
    )
    (call,) = respond(request).reply.calls
    assert call.name == "book"
    assert msgspec.json.decode(call.arguments) == {"seats": 3, "when": "2026-01-01"}


def test_any_tool_means_the_one_that_takes_the_answer_if_there_is_one():
    final = spec("finish", {"answer": {"type": "string"}}, "Give your final answer by calling this.")
    request = Request(
        model=MODEL,
        tools=(CALCULATE, final),
        tool_choice=ToolChoice(mode="any"),
        messages=(
            Message(role="user", parts=(Text(text="2 + 2"),)),
            Message(
                role="assistant",
                parts=(ToolCall(id="c1", name="calculate", arguments='{"expression":"2 + 2"}'),),
            ),
            Message(role="tool", parts=(ToolResult(call_id="c1", parts=(Text(text="4"),)),)),
        ),
    )
    (call,) = respond(request).reply.calls
    assert (call.name, msgspec.json.decode(call.arguments)) == ("finish", {"answer": "2 + 2 = 4"})


def test_no_tool_is_called_when_none_may_be():
    talk = Conversation({CALCULATE: raise_error}, tool_choice=ToolChoice(mode="none"))
    assert "= 4, worked out without a tool" in talk.ask("2 + 2")


def test_a_tool_asked_for_by_name_is_called_and_told_about():
    tool = spec("roll_dice", {"sides": {"type": "integer", "minimum": 2}})
    talk = Conversation({tool: lambda sides: f"a {sides}"})
    assert talk.ask("Call roll_dice with 20 sides") == f"roll_dice returned: a 20 {SIMULATED_NOTE}"
    assert talk.calls == [[("roll_dice", {"sides": 20})]]


# --- what it is ---------------------------------------------------------------------------------


def test_anything_else_gets_a_plain_sentence_about_what_this_is():
    said = Conversation().ask("Write me a sonnet.")
    assert "simulated model" in said
    assert "-m" in said


def test_a_request_nobody_spoke_in_is_answered_too():
    assert "simulated" in respond(Request(model=MODEL)).reply.text


def test_the_same_request_gets_the_same_reply():
    talk = Conversation({WEATHER: lambda city: TEMPERATURES[city]})
    talk.ask("Is it warmer in Tokyo or New York?")
    again = Conversation({WEATHER: lambda city: TEMPERATURES[city]})
    again.ask("Is it warmer in Tokyo or New York?")
    assert talk.replies == again.replies


@pytest.mark.parametrize(
    ("thinking", "modes", "expected"),
    [
        (None, (), 0),
        (Thinking(mode="adaptive"), ("adaptive", "disabled"), 1),
        (Thinking(mode="disabled"), ("adaptive", "disabled"), 0),
        (Thinking(budget_tokens=2048), ("enabled",), 1),
        (None, ("adaptive", "disabled"), 0),
        (None, ("adaptive",), 1),
        (Thinking(effort="low"), ("adaptive",), 1),
        (Thinking(effort="low"), ("adaptive", "disabled"), 0),
    ],
)
def test_it_thinks_when_asked_to_or_when_the_model_always_does(thinking, modes, expected):
    model = msgspec.structs.replace(MODEL, abilities=Abilities(thinking=modes))
    talk = Conversation(model=model, thinking=thinking)
    talk.ask("2 + 2")
    thoughts = [part for part in talk.replies[0].parts if isinstance(part, Reasoning)]
    assert len(thoughts) == expected
    assert all(thought.text for thought in thoughts)
    assert talk.replies[0].stop is Stop.DONE
