"""Directives in prompts: the simulated model replies exactly as written."""

import msgspec
import pytest

from bridle.sim.responder.rule_based import SIMULATED_NOTE
from bridle.sim.responder.script import parse_script
from bridle.values.message import Reasoning, Stop, Text, ToolCall
from tests.sim.responder.sim_conversation import Conversation, spec

ADD = spec("add", {"a": {"type": "integer"}, "b": {"type": "integer"}})


def test_words_are_said_as_they_stand():
    talk = Conversation()
    assert talk.ask("!say Hello,  world! ") == "Hello,  world! "
    assert talk.replies[0].parts == (Text(text="Hello,  world! "),)
    assert talk.replies[0].stop is Stop.DONE


def test_lines_said_in_a_row_are_lines_of_one_text():
    assert Conversation().ask("!say one\n!say\n!say  three") == "one\n\n three"


def test_lines_for_human_readers_are_ignored():
    assert Conversation().ask("Please greet me.\n!say Hello\nThank you, 2 + 2.") == "Hello"


def test_a_prompt_without_directives_is_no_script():
    assert parse_script("What is 2 + 2?\n![a picture](x.png)\nReally!") is None


def test_windows_line_ends_are_not_said():
    assert Conversation().ask("!say one\r\n!say two\r\n") == "one\ntwo"


def test_thinking_comes_first():
    talk = Conversation()
    talk.ask("!say done\n!think First this.\n!think Then that.")
    thought, text = talk.replies[0].parts
    assert isinstance(thought, Reasoning)
    assert thought.text == "First this.\nThen that."
    assert text == Text(text="done")


def test_several_calls_in_one_reply_are_parallel_and_come_last():
    talk = Conversation({ADD: lambda a, b: a + b})
    talk.ask('!call add {"a": 1, "b": 2}\n!say Adding.\n!call add {"a":3,"b":4}')
    first = talk.replies[0]
    assert [type(part) for part in first.parts] == [Text, ToolCall, ToolCall]
    assert [call.arguments for call in first.calls] == ['{"a": 1, "b": 2}', '{"a":3,"b":4}']
    assert len({call.id for call in first.calls}) == 2
    assert first.stop is Stop.TOOLS


def test_then_waits_for_results():
    talk = Conversation({ADD: lambda a, b: a + b})
    said = talk.ask(
        '!call add {"a":1,"b":2}\n!then\n!say Halfway.\n!call add {"a":3,"b":4}\n!then\n!say Done.'
    )
    assert said == "Done."
    assert [reply.text for reply in talk.replies] == ["", "Halfway.", "Done."]
    assert talk.calls == [[("add", {"a": 1, "b": 2})], [("add", {"a": 3, "b": 4})]]


def test_ids_never_repeat_in_a_conversation():
    talk = Conversation({ADD: lambda a, b: a + b})
    talk.ask('!call add {"a":1,"b":2}\n!then\n!call add {"a":1,"b":2}')
    talk.ask('!call add {"a":1,"b":2}')
    ids = [call.id for reply in talk.replies for call in reply.calls]
    assert len(ids) == len(set(ids)) == 3


def test_when_the_script_is_used_up_the_last_results_are_told():
    talk = Conversation({ADD: lambda a, b: a + b})
    said = talk.ask('!call add {"a":1,"b":2}\n!then\n!call add {"a":20,"b":3}\n!call missing')
    assert "add brought 23" in said
    assert "missing failed with" in said
    assert "brought 3" not in said
    assert said.endswith(SIMULATED_NOTE)


def test_a_script_counts_from_its_own_prompt():
    talk = Conversation()
    assert talk.ask("!say one\n!then\n!say never") == "one"
    assert talk.ask("!say two") == "two"
    assert talk.ask("2 + 3").startswith("2 + 3 = 5")


def test_a_call_may_name_a_tool_that_does_not_exist_and_needs_no_arguments():
    talk = Conversation()
    talk.ask("!call nothing_like_it")
    assert talk.replies[0].calls[0].arguments == "{}"


def test_an_empty_reply_can_be_scripted():
    talk = Conversation()
    assert talk.ask("!say") == ""
    assert talk.replies[0].parts == ()


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("!shout hello", "no such directive"),
        ("! say hello", "no such directive"),
        ("!call", "name the tool"),
        ("!call add {a: 1}", "one JSON object"),
        ("!call add [1, 2]", "one JSON object"),
        ('!call add {"a": 1} and more', "one JSON object"),
        ("!then more", "nothing may follow"),
    ],
)
def test_a_mistake_is_answered_and_nothing_is_played(line, problem):
    talk = Conversation({ADD: lambda a, b: a + b})
    said = talk.ask(f'!call add {{"a":1,"b":2}}\n{line}')
    assert problem in said
    assert "line 2" in said
    assert "!say TEXT" in said
    assert talk.calls == []


def test_arguments_may_hold_braces_and_letters_of_every_kind():
    talk = Conversation({spec("note", {"text": {"type": "string"}}): lambda text: text})
    talk.ask('!call note {"text": "a {b} ü 日本 \\" !say"}')
    assert msgspec.json.decode(talk.replies[0].calls[0].arguments) == {"text": 'a {b} ü 日本 " !say'}
