"""Other responders: echo, scripts from files of every format, adversarial ones."""

import json

import pytest

from bridle.sim.responder.alternatives import AdversarialResponder, ScriptedResponder, echo_last_input
from bridle.sim.responder.decision import CutAfter
from bridle.sim.responder.script_file import parse_steps, read_script
from bridle.sim.simulator import Simulator
from bridle.values.errors import Failure, MisuseError
from bridle.values.message import Reply
from tests.sim.sim_families import FAMILIES, decode_answer, question, send_request

STEPS = ["Hello.", {"expect": "x", "say": "one\ntwo", "calls": [{"name": "f", "arguments": {"a": 1}}]}]


@pytest.mark.parametrize("family", FAMILIES)
def test_an_echo_says_what_it_was_told(family):
    request = question(family, "Say it again")
    assert decode_answer(request, send_request(Simulator(echo_last_input), request)).text == "Say it again"


def test_steps_are_words_directives_or_objects():
    hello, second = parse_steps(STEPS)
    assert hello.reply.text == "Hello."
    assert (second.expect, second.reply.text) == ("x", "one\ntwo")
    assert (second.reply.calls[0].name, json.loads(second.reply.calls[0].arguments)) == ("f", {"a": 1})
    (troubled,) = parse_steps([{"error": [[429, 2], 500], "cut": 9, "truncate": True, "say": "z"}])
    limited, down, cut = troubled.reply.failures
    assert (limited.status, limited.retry_after_seconds, down.status) == (429, 2.0, 500)
    assert cut == CutAfter(bytes=9)
    assert troubled.reply.truncated
    assert len(parse_steps(["!say a\n!then\n!say b"])) == 2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.json", json.dumps(STEPS)),
        ("s2.json", json.dumps({"replies": STEPS})),
        ("s.toml", 'replies = ["Hello.", {expect = "x", say = "one\\ntwo", call = {name = "f", arguments = {a = 1}}}]'),
        ("s.py", f"REPLIES = {STEPS!r}"),
        ("s.txt", '!say Hello.\n!then\n!say one\n!say two\n!call f {"a": 1}'),
    ],
)  # fmt: skip
def test_a_script_is_read_from_any_kind_of_file(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    first, second = read_script(tmp_path / name)
    assert (first.reply.text, second.reply.text, second.reply.calls[0].name) == ("Hello.", "one\ntwo", "f")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("text", "a script is a list"),
        ([3], "step 1 of the script must be a string or an object"),
        (["a", {"sing": "la"}], "step 2 of the script: there is no 'sing' directive"),
        (["!call"], "name the tool to call"),
        ([{}], "is empty"),
    ],
)
def test_a_script_with_a_mistake_is_misuse(given, words):
    with pytest.raises(MisuseError, match=words):
        parse_steps(given)


def test_a_script_expects_what_it_says():
    simulator, request = Simulator(ScriptedResponder(
        parse_steps([{"expect": "tea|coffee", "say": "Yes."}])
    )), question("anthropic", "Is there milk?")  # fmt: skip
    failure = decode_answer(request, send_request(simulator, request))
    assert "step 1 of the script expects 'tea|coffee'" in failure.message


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_an_adversary_is_heard_on_every_wire_and_follows_its_seed(family, stream):
    heard = {}
    for seed in (1, 1, 2):
        said = []
        for number in range(12):
            request = question(family, f"Try {number}", stream=stream)
            answer = decode_answer(request, send_request(Simulator(AdversarialResponder(seed)), request))
            assert isinstance(answer, Reply | Failure)
            said.append(answer)
        assert heard.setdefault(seed, said) == said
    assert heard[1] != heard[2]
