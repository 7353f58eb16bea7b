"""Free-text tools of a client behind the gateway, as Codex has them: the model is offered a function in their place."""

import pytest

from tests.serve.raw_http import send
from tests.serve.served import serving_gateway
from tests.serve.wires.wire_clients import PROVIDERS

CUSTOM = {"type": "custom", "name": "exec", "description": "Run it."}
FORMS = {
    "plain": [CUSTOM],
    "in a namespace": [
        {"type": "namespace", "name": "functions", "description": "Functions.", "tools": [CUSTOM]}
    ],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_result_goes_back_in_the_form_in_which_its_call_was_sent(provider, form):
    """Codex at a gateway to its own wire ended after the first call: the output of a custom call followed a function call."""
    items = [
        {
            "role": "user",
            "content": '!call exec {"input": "ls"}\n!then\n!call exec {"input": "pwd"}\n!then\n!say fine',
        }
    ]
    with serving_gateway({"models": {"helper": {"chain": [PROVIDERS[provider]]}}}) as served:
        for text in ("ls", "pwd"):
            body = {"model": "helper", "input": items, "tools": FORMS[form]}
            reply = send(f"{served.url}/openai/v1/responses", body)
            assert reply.status == 200, reply.body
            [call] = [item for item in reply.json["output"] if item["type"] == "custom_tool_call"]
            assert call["input"] == text
            output = {"type": "custom_tool_call_output", "call_id": call["call_id"], "output": "done"}
            items += [*reply.json["output"], {**output, "id": f"ctco_{text}"}]
        reply = send(
            f"{served.url}/openai/v1/responses", {"model": "helper", "input": items, "tools": FORMS[form]}
        )
        assert reply.status == 200, reply.body
        assert reply.json["output"][-1]["content"][0]["text"] == "fine"
