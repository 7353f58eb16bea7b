"""Every form in which clients ask for JSON gets JSON from the simulator."""

import json
from typing import Any

import pytest

from bridle import Agent
from bridle.ports.transport import OutgoingRequest
from bridle.run.sync import run_in_background
from bridle.sim.simulator import Simulator

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
CAPITALS = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"]}
ASKED = [{"role": "user", "content": "Tell me about Oslo."}]
CONTENTS = [{"role": "user", "parts": [{"text": "Tell me about Oslo."}]}]
BLOCKS = [{"role": "user", "content": [{"text": "Tell me about Oslo."}]}]
CLAUDE = {"model": "claude-sonnet-5-5", "max_tokens": 900, "messages": ASKED}
VERSION = (("anthropic-version", "2026-10-21"), ("anthropic-beta", "structured-outputs-2025-11-13"))
BEDROCK = "/model/global.anthropic.claude-sonnet-4-6/converse"
GEMINI = "/models/gemini-3.5-flash:generateContent"
FORMAT = {"type": "json_schema", "schema": SCHEMA}
FORMS = {
    "anthropic output_format": ("anthropic", "/v1/messages", {**CLAUDE, "output_format": FORMAT}),
    "anthropic output_config": ("anthropic", "/v1/messages", {**CLAUDE, "output_config": {"format": FORMAT}}),
    "bedrock output_config": (
        "bedrock_converse",
        BEDROCK,
        {"messages": BLOCKS, "additionalModelRequestFields": {"output_config": {"format": FORMAT}}},
    ),
    "gemini responseSchema": (
        "gemini",
        GEMINI,
        {
            "contents": CONTENTS,
            "generationConfig": {"responseMimeType": "application/json", "responseSchema": CAPITALS},
        },
    ),
    "gemini JSON": (
        "gemini",
        GEMINI,
        {"contents": CONTENTS, "generationConfig": {"responseMimeType": "application/json"}},
    ),
    "chat json_object": (
        "openai_chat",
        "/chat/completions",
        {"model": "gpt-5.4", "messages": [{"role": "user", "content": "JSON about Oslo."}],
         "response_format": {"type": "json_object"}},
    ),
    "responses json_object": (
        "openai_responses",
        "/responses",
        {"model": "gpt-6-sol", "input": "JSON about Oslo.", "text": {"format": {"type": "json_object"}}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_asking_for_json_gets_json(form):
    family, path, body = FORMS[form]
    headers = (("authorization", "Bearer k"), ("content-type", "application/json"))
    outgoing = OutgoingRequest(
        method="POST",
        url=f"sim://{family}{path}",
        headers=(*headers, *(VERSION if family == "anthropic" else ())),
        body=json.dumps(body).encode(),
    )
    timeline = run_in_background(Simulator().answer(outgoing))
    assert timeline.status == 200, timeline.body
    said = [text for text in _texts(json.loads(timeline.body)) if text.strip().startswith("{")]
    assert said and isinstance(json.loads(said[-1]), dict)
    if "json_object" not in form and form != "gemini JSON":
        assert set(json.loads(said[-1])) == {"city"}


def _texts(value):
    """Every string under `text` or `content` in an answer."""
    if isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name in ("text", "content") and isinstance(inner, str):
                yield inner
            else:
                yield from _texts(inner)


@pytest.mark.parametrize(
    "model", ["sim:anthropic/claude-sonnet-5-5", "sim:openai/gpt-6-sol", "sim:gemini/gemini-3.5-flash"]
)
def test_with_a_shape_asked_for_a_script_is_played_as_written(model):
    result = Agent(model, output=SCHEMA).run_sync('!say Not JSON.\n!then\n!say {"city": "Oslo"}')
    assert result.output == {"city": "Oslo"}
    said = [message.text for message in result.messages if message.role == "assistant"]
    assert said == ["Not JSON.", '{"city": "Oslo"}']
