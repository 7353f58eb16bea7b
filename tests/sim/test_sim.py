"""The whole path: encode, rules, responder, wire, decode; by hand, then with an agent and the demo's tools."""

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from bridle import Agent, Budget
from bridle.ports.codec import HttpReply
from bridle.ports.transport import OutgoingRequest
from bridle.providers import load_codec
from bridle.providers.catalogue import find_model, known_models
from bridle.providers.wire.failures import MESSAGE_LENGTH_MAX
from bridle.sim.families import list_families, list_profiles, list_rules
from bridle.sim.responder.rule_based import SIMULATED_NOTE
from bridle.sim.simulator import answer
from bridle.stores.memory import MemoryStore
from bridle.values.errors import MisuseError, ProviderError
from bridle.values.message import Message, Reasoning, Reply, Stop, Text
from bridle.values.model import Abilities, Endpoint, Model, Origin
from bridle.values.request import Request, Thinking, ToolChoice, ToolSpec
from tests.sim.rules.rule_examples import find_examples
from tests.sim.sim_families import answer_statelessly
from tests.suite.paths import load_program

demo_tools = load_program("examples/demo_tools.py")
DEFAULT = find_model("sim:", environ={})
FIRST_MODELS = {model.endpoint.name: model.id for model in reversed(known_models())}
"""A model of every endpoint."""
TOOLS = [demo_tools.calculate, demo_tools.get_weather, demo_tools.search_files, demo_tools.read_file]


def send_request(request: Request, address: str = "") -> HttpReply:
    encoded = load_codec(request.model.endpoint.family).encode(request)
    outgoing = OutgoingRequest(
        method=encoded.method, url=address + encoded.path, headers=encoded.headers, body=encoded.body
    )
    timeline = asyncio.run(answer(outgoing))
    return HttpReply(status=timeline.status, headers=timeline.headers, frames=timeline.steps)  # type: ignore[arg-type]


def decode_reply(request: Request, reply: HttpReply) -> Reply:
    decoder = load_codec(request.model.endpoint.family).new_decoder(
        request, reply.status, dict(reply.headers)
    )
    for frame in reply.frames:
        decoder.feed(frame)
    return decoder.close()


def make_request(prompt: str, model: Model = DEFAULT, **fields: Any) -> Request:
    return Request(
        model=model, messages=(Message(role="user", parts=(Text(text=prompt),), id="m1"),), **fields
    )


def expect_refusal(request: Request) -> tuple[int | None, str]:
    with pytest.raises(ProviderError) as caught:
        decode_reply(request, send_request(request))
    return caught.value.failure.status, caught.value.failure.message


# --- by hand ------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_a_scripted_reply_arrives_as_it_was_written(stream):
    request = make_request(
        '!think Let me see.\n!say Look:\n!call look {"at": "the ü"}\n!call look {}',
        stream=stream,
        thinking=Thinking(mode="adaptive", display="summarized"),
    )
    reply = decode_reply(request, send_request(request))
    thought, text, *calls = reply.parts
    assert isinstance(thought, Reasoning)
    assert (thought.text, bool(thought.signature)) == ("Let me see.", True)
    assert text == Text(text="Look:")
    assert [(call.name, msgspec.json.decode(call.arguments)) for call in calls] == [
        ("look", {"at": "the ü"}),
        ("look", {}),
    ]
    assert len({call.wire_id for call in calls}) == 2
    assert reply.stop is Stop.TOOLS
    assert reply.usage.input > 0
    assert reply.usage.output > reply.usage.reasoning > 0


@pytest.mark.parametrize(
    "prompt", ["!say Hello there", "!think Hm.\n!call look {}", "What is 2 + 2?", "!say", "Hi"]
)
def test_streamed_and_whole_say_the_same(prompt):
    streamed, whole = make_request(prompt, stream=True), make_request(prompt, stream=False)
    assert decode_reply(streamed, send_request(streamed)) == decode_reply(whole, send_request(whole))
    assert len(send_request(streamed).frames) > len(send_request(whole).frames) == 1


def test_the_same_request_gets_the_same_bytes():
    assert send_request(make_request("What is 2 + 2?")) == send_request(make_request("What is 2 + 2?"))


@pytest.mark.parametrize(
    "address", ["", "sim://anthropic", "http://127.0.0.1:8080", "http://localhost/some/path"]
)
def test_it_answers_wherever_it_is_reached(address):
    request = make_request("!say Here")
    assert decode_reply(request, send_request(request, address)).text == "Here"


def test_an_address_of_a_family_that_does_not_exist_is_misuse():
    with pytest.raises(MisuseError, match="unheard_of"):
        send_request(make_request("!say Here"), "sim://unheard_of")


def test_another_path_is_not_found():
    reply = answer_statelessly(
        OutgoingRequest(
            method="POST", url="/v1/nothing", headers=(("anthropic-version", "2023-06-01"),), body=BODY
        )
    )
    assert reply.status == 404


def test_any_brain_can_be_put_in():
    def echo(request: Request) -> Reply:
        origin = Origin(family="f", endpoint="e", model=request.model.id)
        return Reply(parts=(Text(text=request.messages[-1].text.upper()),), stop=Stop.DONE, origin=origin)

    request = make_request("louder")
    encoded = load_codec("anthropic").encode(request)
    outgoing = OutgoingRequest(method="POST", url=encoded.path, headers=encoded.headers, body=encoded.body)
    assert decode_reply(request, answer_statelessly(outgoing, echo)).text == "LOUDER"


def test_a_reply_is_cut_off_where_its_room_ends():
    request = make_request("!say one two three four five six seven eight nine ten", max_tokens=5)
    reply = decode_reply(request, send_request(request))
    assert reply.text == "one two three four five"
    assert reply.stop is Stop.LENGTH


@pytest.mark.parametrize(("name", "thinks"), [("sim:", True), ("sim:anthropic/claude-haiku-4-5", False)])
def test_a_model_that_always_thinks_does(name, thinks):
    request = make_request("What is 2 + 2?", model=find_model(name, environ={}))
    parts = decode_reply(request, send_request(request)).parts
    assert any(isinstance(part, Reasoning) for part in parts) == thinks


# --- refusals -----------------------------------------------------------------------------------

HEADERS = (("anthropic-version", "2023-06-01"),)
BODY = b'{"model":"claude-haiku-4-5","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}'
SPOKEN = [
    (family, profile.name, rule)
    for family in list_families()
    for profile in list_profiles(family)
    for rule in list_rules(family, profile.name)
    if not (example := find_examples(family, rule).refused).malformed
    and not example.size
    and not example.prompt_tokens
]
"""A rule that several kinds of servers have is spoken by each."""
EXAMPLES = ("some-model", "some.model-v1:0")
"""What the examples call the model they ask."""


def model_in(path: str) -> str:
    return next((name for name in EXAMPLES if name in path), EXAMPLES[0])


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("family", "profile", "rule"), SPOKEN, ids=[f"{family}-{name}-{rule.id}" for family, name, rule in SPOKEN]
)
def test_a_refusal_is_spoken_in_the_providers_words(family, profile, rule, tmp_path, monkeypatch):
    """Asked of a model that can do what the example says."""
    examples = find_examples(family, rule)
    refused = examples.refused
    body = {**refused.body}
    abilities = refused.abilities
    if abilities is not None:
        tables = tmp_path / "models.toml"
        tables.write_text(_tables(family, str(body.get("model") or "") or model_in(refused.path), abilities))
        monkeypatch.setenv("BRIDLE_MODELS", str(tables))
    outgoing = OutgoingRequest(
        method="POST",
        url=f"sim://{family}{refused.path}",
        headers=tuple(refused.headers.items()),
        body=msgspec.json.encode(body),
    )
    reply = answer_statelessly(outgoing, profile=profile)
    with pytest.raises(ProviderError) as caught:
        decode_reply(
            make_request("x", model=Model(id="m", endpoint=Endpoint(name="mine", family=family))), reply
        )
    failure = caught.value.failure
    said = " ".join(examples.message.split())
    shown = said if len(said) <= MESSAGE_LENGTH_MAX else said[: MESSAGE_LENGTH_MAX - 1] + "…"
    assert (reply.status, failure.message) == (rule.status, shown)
    # Our own word for it may be another: some troubles have one code whatever a provider calls them.
    told = b"".join(reply.frames).decode() + msgspec.json.encode(reply.headers).decode()
    assert f'"{rule.type}"' in told


def _tables(family: str, model: str, abilities: Abilities) -> str:
    facts = "\n".join(
        f"{name} = {msgspec.json.encode(value).decode()}"
        for name, value in msgspec.structs.asdict(abilities).items()
        if value is not None
    )
    return (
        f'[endpoints.mine]\nfamily = "{family}"\nmodels = ["mine"]\nbase_url = "https://host"\n'
        f'[models.mine.ids."{model}"]\n{facts}\n'
    )


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "Expecting value: line 1 column 1 (char 0)"),
        (b"{,}", "Expecting property name enclosed in double quotes"),
        (b'{"model":"\\ud83d"}', "no low surrogate in string: line 1 column 17 (char 16)"),
        (b"[]", "the top level must be an object"),
        (b'{"model":"\xff"}', "can't decode byte 0xff"),
    ],
)
def test_bytes_that_are_no_json_object_are_refused(body, says):
    reply = answer_statelessly(OutgoingRequest(method="POST", url="/v1/messages", headers=HEADERS, body=body))
    assert reply.status == 400
    message = msgspec.json.decode(b"".join(reply.frames))["error"]["message"]
    assert message.startswith("The request body is not valid JSON: ")
    assert says in message


def test_a_body_that_is_too_large_is_refused():
    body = BODY[:-1] + b" " * (32 * 1024 * 1024) + b"}"
    assert (
        answer_statelessly(
            OutgoingRequest(method="POST", url="/v1/messages", headers=HEADERS, body=body)
        ).status
        == 413
    )


@pytest.mark.refusals
def test_an_unknown_model_is_refused():
    unknown = msgspec.structs.replace(DEFAULT, id="claude-nonsense-9")
    assert expect_refusal(make_request("hi", model=unknown)) == (404, "model: claude-nonsense-9")


def test_a_dated_name_of_a_known_model_is_known():
    dated = find_model("sim:anthropic/claude-haiku-4-5-20251001", environ={})
    request = make_request("!say Hi", model=dated)
    assert decode_reply(request, send_request(request)).text == "Hi"


@pytest.mark.refusals
def test_what_a_model_cannot_do_is_refused():
    look = ToolSpec(name="look")
    status, message = expect_refusal(make_request("hi", tools=(look,), tool_choice=ToolChoice(mode="any")))
    assert (status, message) == (400, 'tool_choice: type "tool" and "any" are not supported for this model.')
    status, message = expect_refusal(
        make_request("hi", thinking=Thinking(mode="enabled", budget_tokens=2048))
    )
    assert message.startswith('"thinking.type.enabled" is not supported for this model.')


# --- with an agent and the demo's tools ---------------------------------------------------------


@dataclass
class Report:
    city: str
    degrees: int
    summary: str


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("What is 17 * 23 minus 100?", "17 * 23 - 100 = 291"),
        ("Is it warmer in Tokyo or New York?", "warmer in Tokyo: 17 °C, against 14 °C in New York"),
        ("Which is coldest, Oslo, Rome or Cairo?", "coldest in Oslo: 3 °C"),
        ("When does the reading room close on Fridays? Look it up in the notes.", "16:30 on Friday"),
        ("Where does the key hang? Search the notes.", "third hook from the left"),
        ('Find "lighthouse" in the files.', "automatic since 1987"),
        ("Is it warmer in Tokyo or Atlantis?", "could not get the weather for Atlantis"),
        ("What is 1 divided by 0?", "division by zero"),
    ],
)
def test_the_demo_tasks(prompt, says):
    result = Agent("sim:", tools=TOOLS, budget=Budget(steps=6)).run_sync(prompt)
    assert result.stop == "done"
    assert says in result.text
    assert result.text.endswith(SIMULATED_NOTE)
    assert result.usage.input > 0


PLAYED = [f"sim:{endpoint}/{model}" for endpoint, model in FIRST_MODELS.items()]


@pytest.mark.parametrize("model", PLAYED)
def test_whoever_is_played_refuses_nothing_that_we_send(model):
    """Words, thoughts, calls side by side and one after another, and an answer in a shape."""
    store = MemoryStore()
    script = (
        '!think Hm.\n!say Let me see.\n!call get_weather {"city": "Oslo"}\n!call get_weather {"city": "Rome"}\n'
        '!then\n!think So.\n!call calculate {"expression": "18 - 3"}\n!then\n!say Rome it is.'
    )
    for prompt, says in ((script, "Rome it is."), ("What is 17 * 23 minus 100?", "= 291"), (script, "Rome")):
        agent = Agent(model, tools=TOOLS, instructions="Be brief.", store=store)
        result = agent.run_sync(prompt, session="s")
        assert (result.stop, says in result.text) == ("done", True)
    shaped = Agent(model, tools=TOOLS, output=Report)
    assert shaped.run_sync("Report: city: Oslo, degrees: 3").stop == "done"


def test_without_tools_it_still_answers():
    assert "= 291, worked out without a tool" in Agent("sim:").run_sync("17 * 23 minus 100").text


def test_a_script_is_played_through_an_agent():
    script = '!say Let me see.\n!call get_weather {"city": "Oslo"}\n!call nothing {}\n!then\n!say Cold.'
    result = Agent("sim:", tools=TOOLS).run_sync(script)
    assert (result.stop, result.text) == ("done", "Cold.")
    outcomes = [part.outcome for message in result.messages for part in message.results]
    assert outcomes == ["ok", "invalid"]


def test_an_answer_in_a_shape_comes_as_that_shape():
    result = Agent("sim:", output=Report).run_sync("Report: city: Oslo, degrees: 3")
    assert isinstance(result.output, Report)
    assert (result.output.city, result.output.degrees) == ("Oslo", 3)


@pytest.mark.parametrize(
    ("path", "problem"),
    [("../demo_tools.py", "outside the notes"), ("/etc/hosts", "outside"), ("no.txt", "no note")],
)
def test_the_demo_reads_nothing_but_its_notes(path, problem):
    script = f'!call read_file {{"path": "{path}"}}'
    result = Agent("sim:", tools=TOOLS).run_sync(script)
    assert problem in result.text


@pytest.mark.parametrize(
    "expression", ["__import__('os')", "9**9**9", "(-8) ** 0.5", "1 +", "True + 1", "'a' * 3"]
)
def test_the_demo_works_out_nothing_but_sums(expression):
    arguments = msgspec.json.encode({"expression": expression}).decode()
    result = Agent("sim:", tools=TOOLS).run_sync(f"!call calculate {arguments}")
    assert "calculate failed with" in result.text
