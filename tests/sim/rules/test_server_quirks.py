"""State that a server returns and requires in the next request."""

import asyncio
import json

import pytest

from bridle.ports.transport import OutgoingRequest
from bridle.sim.simulator import Simulator


@pytest.mark.parametrize(
    ("model", "echoed"),
    [("deepseek-v4-pro", True), ("kimi-k3.1-pro", True), ("mistral-large-4", False)],
)
def test_a_client_that_sends_back_what_it_got_is_never_refused(model, echoed):
    """Any client: it knows nothing of reasoning, it keeps the message it was sent."""
    simulator = Simulator()
    said = [{"role": "user", "content": '!call look {"city": "Oslo"}\n!then\n!say Done.'}]
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]

    def ask():
        body = json.dumps({"model": model, "messages": said, "tools": tools}).encode()
        asked = OutgoingRequest(method="POST", url="/v1/chat/completions", headers=(), body=body)
        answer = asyncio.run(simulator.answer(asked))
        assert answer.status == 200, answer.body
        return json.loads(answer.body)["choices"][0]["message"]

    message = ask()
    thought = message.get("reasoning_content", "")
    assert bool(thought) is echoed
    (call,) = message["tool_calls"]
    said += [message, {"role": "tool", "tool_call_id": call["id"], "content": "fine"}]
    assert ask()["content"] == "Done."
    assert simulator.refusals == []


def test_a_script_that_thinks_is_played_as_it_stands_and_one_told_not_to_think_does_not():
    spoken = []
    for prompt, thinking in (("!think Mine.\n!call look {}", "enabled"), ("!call look {}", "disabled")):
        body = {"model": "deepseek-v4-pro", "messages": [{"role": "user", "content": prompt}]}
        data = json.dumps({**body, "thinking": {"type": thinking}}).encode()
        asked = OutgoingRequest(method="POST", url="/v1/chat/completions", headers=(), body=data)
        answer = asyncio.run(Simulator().answer(asked))
        spoken.append(json.loads(answer.body)["choices"][0]["message"].get("reasoning_content"))
    assert spoken == ["Mine.", None]
