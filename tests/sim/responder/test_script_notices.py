"""Scripts go on after notices of an agent harness, which come in the user role."""

import json

import pytest

from bridle import Agent, ModelRetry
from bridle.ports.codec import HttpRequest
from bridle.providers import load_codec
from bridle.sim.anthropic.signatures import read_conversation
from bridle.sim.responder.harness_notices import NOTICES, is_harness_notice
from bridle.sim.rules.engine import RawRequest
from bridle.values.errors import ProviderError


@pytest.mark.parametrize("notice", NOTICES)
def test_every_notice_of_core_is_known(notice):
    """The parts in braces vary."""
    assert is_harness_notice(notice.replace("{", "").replace("}", ""))


@pytest.mark.parametrize(
    "text", ["", "Hello.", "!say hi", "Finish your work.", "What is 2 + 2?", "Continue."]
)
def test_a_prompt_is_no_notice(text):
    assert not is_harness_notice(text)


def test_a_script_goes_on_after_a_rejected_reply():
    seen = []

    def check(answer: str) -> str:
        seen.append(answer)
        if len(seen) == 1:
            raise ModelRetry("say more")
        return answer

    agent = Agent("sim:", validate=[check])
    assert agent.run_sync("!say first\n!then\n!say second").text == "second"


def test_a_script_goes_on_after_a_reply_that_was_cut():
    result = Agent("sim:").run_sync("!say one two three\n!truncate\n!then\n!say four")
    assert result.text.endswith("four")


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("What is 17 * 23, minus 100?", "291"),
        ("17 times 23, then minus 100", "291"),
        ("What is 12 plus 5, times 2?", "34"),
        ("What is 12 plus 5 times 2?", "22"),
        ("What is 8, divided by 2, plus 1?", "5"),
        ("In 2024, how much is 17 * 23?", "391"),
        ("What is 1,000 + 2?", "1002"),
    ],
)
def test_an_operation_after_a_comma_continues_the_expression(prompt, answer):
    """17 * 23, minus 100 was answered 391: the rest after the comma was lost."""
    assert f"= {answer}," in Agent("sim:").run_sync(prompt).text


@pytest.mark.parametrize(
    "path",
    [
        "/v1beta/models/{model}/models/{model}:generateContent",
        "/v1beta/models/{model}/models/{model}:streamGenerateContent",
        "/v1beta/models/models/{model}:generateContent",
    ],
)
def test_an_address_with_the_model_twice_is_not_found(path):
    """Simulator and server answered such a request; the provider has no such method."""
    body = json.dumps({"contents": [{"role": "user", "parts": [{"text": "!say x"}]}]}).encode()
    asked = HttpRequest(path=path.replace("{model}", "gemini-3.8-flash"), body=body, headers=())
    with pytest.raises(ProviderError) as raised:
        load_codec("gemini").decode_request(asked)
    assert raised.value.failure.kind == "not_found"


def test_thinking_is_not_bound_to_how_calls_are_streamed():
    """A client may turn `eager_input_streaming` on or off between two requests."""
    body = {
        "model": "claude-opus-4-8",
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
        "messages": [{"role": "user", "content": "hi"}],
    }
    heads = []
    for eager in (None, True, False):
        extra = {} if eager is None else {"eager_input_streaming": eager}
        request = RawRequest(
            path="", headers={}, body={**body, "tools": [{**body["tools"][0], **extra}]}, abilities=None
        )
        heads.append(read_conversation(request).head)
    assert heads[0] == heads[1] == heads[2]
