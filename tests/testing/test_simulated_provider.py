"""A provider for one's own tests: scripts, checks at the end, HTTP, and the example in the docs."""

import asyncio
import json
import urllib.error
import urllib.request

import pytest

from bridle import Agent
from bridle.sim.responder.alternatives import echo_last_input
from bridle.testing import ProviderSim, simulator
from bridle.values.errors import MisuseError
from bridle.values.request import Extra
from tests.suite.paths import load_program
from tests.suite.patience import PATIENCE_SECONDS

EXAMPLE = vars(load_program("examples/test_my_agent.py"))
globals().update(
    {name: value for name, value in EXAMPLE.items() if not name.startswith("_")}
)  # it is part of the suite

CLAUDE = "claude-sonnet-5-5"

WRONG = [Extra(name="service_tier", json='"none"')]
"""A setting of the provider's own with a value that it refuses."""


def post_json(url, body, **headers):
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json", **headers}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
        return answer.status, answer.read()


def messages(text, **fields):
    return {"model": CLAUDE, "max_tokens": 50, "messages": [{"role": "user", "content": text}], **fields}


def test_what_is_left_of_a_script_fails_the_test():
    with pytest.raises(AssertionError, match="1 of 2 replies"), ProviderSim("one", "two") as provider:
        Agent(provider.model()).run_sync("go")


@pytest.mark.refusals
def test_what_was_refused_unasked_fails_the_test():
    with pytest.raises(AssertionError, match="service-tier-value"), ProviderSim() as provider:
        Agent(provider.model(), extras=WRONG).run_sync("go")


@pytest.mark.refusals
def test_what_was_meant_to_be_refused_does_not(provider_sim):
    result = Agent(provider_sim.model(), extras=WRONG).run_sync("go")
    assert result.stop == "failed"
    assert provider_sim.refusals[0].rule == "service-tier-value"


def test_an_error_of_the_test_itself_is_not_hidden():
    with pytest.raises(ZeroDivisionError), ProviderSim("never"):
        raise ZeroDivisionError


def test_replies_and_a_brain_are_one_too_many():
    with pytest.raises(MisuseError, match="give replies or a responder, not both"):
        ProviderSim("one", responder=echo_last_input)


def test_it_answers_over_http_from_a_thread():
    with ProviderSim("over the wire", faults=["slow-drip:0"]) as provider:
        status, body = post_json(
            f"{provider.url}/v1/messages", messages("hi"), **{"anthropic-version": "2023-06-01"}
        )
        assert provider.environ["OPENAI_BASE_URL"] == f"{provider.url}/v1"
    assert (status, json.loads(body)["content"][0]["text"]) == (200, "over the wire")


def test_a_header_sent_twice_is_read_once_and_a_cut_is_a_cut():
    async def main():
        async with simulator() as provider:
            port = int(provider.url.rpartition(":")[2])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            body = json.dumps(messages("!cut 40\n!say never whole")).encode()
            head = "POST /v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nUser-Agent: one\r\nUser-Agent: two\r\n"
            head += f"anthropic-version: 2023-06-01\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            heard = await reader.read()
            writer.close()
            return heard

    heard = asyncio.run(main())
    assert heard.startswith(b"HTTP/1.1 200")
    assert not heard.endswith(b"0\r\n\r\n")
    assert b"never whole" not in heard


def test_a_connection_that_is_cut_at_once_has_no_status():
    with ProviderSim("late", faults=["reset:0"]) as provider:
        for attempt in range(2):
            try:
                status, _ = post_json(
                    f"{provider.url}/v1/messages", messages("hi"), **{"anthropic-version": "2023-06-01"}
                )
            except (ConnectionError, urllib.error.URLError):
                assert attempt == 0
        assert status == 200
