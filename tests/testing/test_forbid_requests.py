"""Requests that leave the machine are refused in tests, those to this machine are not."""

import pytest

from bridle import Agent
from bridle.ports.forbidden_requests import check_request
from bridle.testing import ProviderSim, RequestForbidden, call_reply, forbid_requests, scripted

ELSEWHERE = (
    "https://api.example.com/v1",
    "http://10.0.0.1:8080",
    "https://[2001:db8::1]/",
    "http://localhost.example.com",
)
HERE = ("http://127.0.0.1:8080/v1", "http://localhost:1", "http://[::1]:9/", "http://app.localhost/")


@pytest.mark.parametrize("url", ELSEWHERE)
def test_another_machine_is_refused(url):
    with forbid_requests(), pytest.raises(RequestForbidden, match="override"):
        check_request(url)
    check_request(url)


@pytest.mark.parametrize("url", HERE)
def test_this_machine_is_allowed(url):
    with forbid_requests():
        check_request(url)


@pytest.mark.parametrize(("value", "is_forbidden"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_the_variable_forbids_requests_too(monkeypatch, value, is_forbidden):
    monkeypatch.setenv("BRIDLE_FORBID_REQUESTS", value)
    if is_forbidden:
        with pytest.raises(RequestForbidden):
            check_request(ELSEWHERE[0])
    else:
        check_request(ELSEWHERE[0])


def test_a_run_against_a_provider_fails_loudly(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    agent = Agent("anthropic:claude-sonnet-5-5")
    with forbid_requests(), pytest.raises(RequestForbidden, match=r"api\.anthropic\.com"):
        agent.run_sync("Hi.")


def test_a_simulated_provider_still_answers():
    with forbid_requests():
        assert Agent(scripted("Hello.")).run_sync("Hi.").text == "Hello."


def test_a_base_url_is_read_when_the_run_starts(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    agent = Agent("anthropic:claude-sonnet-5-5")
    with forbid_requests(), ProviderSim("From the simulator.") as provider:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", provider.environ["ANTHROPIC_BASE_URL"])
        assert agent.run_sync("Hi.").text == "From the simulator."


def test_a_request_inside_a_tool_fails_the_test(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    inner = Agent("anthropic:claude-sonnet-5-5", name="inner")
    outer = Agent(scripted(call_reply(("inner", {"prompt": "Go."})), "The end."), tools=[inner.as_tool()])
    with forbid_requests(), pytest.raises(RequestForbidden):
        outer.run_sync("Ask.")
