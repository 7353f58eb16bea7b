"""Fields of the wrong type in a client's request, and the exact error messages.

The messages here were written down apart from the examples of the rules.
"""

import asyncio
import json

import pytest

from bridle.ports.transport import OutgoingRequest
from bridle.sim.families import list_families, list_rules
from bridle.sim.rules.engine import RawRequest
from bridle.sim.simulator import Simulator
from tests.sim.rules.rule_examples import find_examples
from tests.sim.sim_families import MODELS, make_outgoing, question

CLAUDE, GPT, CHAT, GEMINI, CONVERSE = (
    "anthropic", "openai_responses", "openai_chat", "gemini", "bedrock_converse",
)  # fmt: skip
TYPES = "type.googleapis.com/google.ai.generativelanguage.v1beta."


def ask_changed(family, **changes):
    """What comes back for a small legal request with these fields changed."""
    limit = 500 if family == CLAUDE else None
    sent = make_outgoing(question(family, "!say Hi", stream=False, tools=(), max_tokens=limit))
    body = {**json.loads(sent.body), **changes}
    asked = OutgoingRequest(
        method=sent.method, url=sent.url, headers=sent.headers, body=json.dumps(body).encode()
    )
    timeline = asyncio.run(Simulator(profile="first-party").answer(asked))
    return timeline.status, json.loads(timeline.body), dict(timeline.headers)


def words_of(body):
    return body.get("error", body)["message"]


@pytest.mark.refusals
@pytest.mark.parametrize(
    ("family", "changes", "says"),
    [
        (CLAUDE, {"max_tokens": "x"}, "max_tokens: Input should be a valid integer"),
        (CLAUDE, {"max_tokens": True}, "max_tokens: Input should be a valid integer"),
        (CLAUDE, {"max_tokens": None}, "max_tokens: Input should be a valid integer"),
        (CLAUDE, {"max_tokens": -1}, "max_tokens: must be greater than or equal to 0"),
        (CLAUDE, {"tool_choice": 5}, "tool_choice: Input should be an object"),
        (CLAUDE, {"tool_choice": {}}, "tool_choice.type: Field required"),
        (CLAUDE, {"thinking": 5}, "thinking: Input should be an object"),
        (CLAUDE, {"thinking": None}, "thinking: Input should be an object"),
        (CLAUDE, {"metadata": 5}, "metadata: Input does not match the expected shape."),
        (CLAUDE, {"metadata": {"x": "y"}}, "metadata.x: Extra inputs are not permitted"),
        (CLAUDE, {"stream": "yes"}, "stream: Input should be a valid boolean"),
        (CLAUDE, {"stop_sequences": ["a", 1]}, "stop_sequences.1: Input should be a valid string"),
        (CLAUDE, {"system": [7]}, "system.0: Input does not match the expected shape."),
        (CLAUDE, {"output_config": {"effort": "hard"}}, "output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'"),
        (CLAUDE, {"service_tier": "cheap"}, "service_tier: Input should be 'auto' or 'standard_only'"),
        (CLAUDE, {"mcp_servers": []}, "mcp_servers: Extra inputs are not permitted"),
        (CLAUDE, {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": [7]}]}, "messages.1.content.0: Input should be an object"),
        (CLAUDE, {"messages": [{"role": "robot", "content": "a"}]}, 'messages: Unexpected role "robot". Allowed roles are "user" or "assistant"'),
        # Wrong twice: the first in the provider's order is told, not the first that was sent.
        (CLAUDE, {"stream": "yes", "max_tokens": "x"}, "max_tokens: Input should be a valid integer"),
        (CLAUDE, {"nonsense": 1, "stream": "yes"}, "stream: Input should be a valid boolean"),
        (GPT, {"reasoning": "low"}, "Invalid type for 'reasoning': expected an object, but got a string instead."),
        (GPT, {"text": []}, "Invalid type for 'text': expected an object, but got an array instead."),
        (GPT, {"store": "no"}, "Invalid type for 'store': expected a boolean, but got a string instead."),
        (GPT, {"include": ["everything"]}, "Invalid value: 'everything'. Supported values are: 'file_search_call.results', 'web_search_call.results', 'web_search_call.action.sources', 'message.input_image.image_url', 'computer_call_output.output.image_url', 'code_interpreter_call.outputs', 'reasoning.encrypted_content', and 'message.output_text.logprobs'."),
        (GPT, {"previous_response_id": 7}, "Invalid type for 'previous_response_id': expected a string, but got an integer instead."),
        (GPT, {"tool_choice": 7}, "Invalid type for 'tool_choice': expected one of an object or 'none', 'auto', or 'required', but got an integer instead."),
        (GPT, {"max_output_tokens": 16.5}, "Invalid type for 'max_output_tokens': expected an integer, but got a decimal number instead."),
        (GPT, {"truncation": {}}, "Invalid type for 'truncation': expected one of 'auto' or 'disabled', but got an object instead."),
        (GPT, {"metadata": {"k": 7}}, "Invalid type for 'metadata.k': expected a string, but got an integer instead."),
        (GPT, {"stream_options": {"include_usage": True}}, "Unknown parameter: 'stream_options.include_usage'."),
        (CHAT, {"tool_choice": 7}, "Invalid type for 'tool_choice': expected one of one of 'none', 'auto', or 'required' or object, but got an integer instead."),
        (CHAT, {"response_format": "json"}, "Invalid type for 'response_format': expected an object, but got a string instead."),
        (CHAT, {"stream": True, "stream_options": 5}, "Invalid type for 'stream_options': expected an object, but got an integer instead."),
        (CHAT, {"n": "2"}, "Invalid type for 'n': expected an integer, but got a string instead."),
        (CHAT, {"seed": 1.5}, "Invalid type for 'seed': expected an integer, but got a decimal number instead."),
        (CHAT, {"user": None, "store": 1}, "Invalid type for 'store': expected a boolean, but got an integer instead."),
        (GEMINI, {"generationConfig": 5}, f"Invalid value at 'generation_config' ({TYPES}GenerationConfig), 5"),
        (GEMINI, {"generationConfig": {"maxOutputTokens": "many"}}, "Invalid value at 'generation_config.max_output_tokens' (TYPE_INT32), \"many\""),
        (GEMINI, {"generationConfig": {"top_p": [1]}}, "Invalid JSON payload received. Unknown name \"top_p\" at 'generation_config': Proto field is not repeating, cannot start list."),
        (GEMINI, {"generationConfig": {"maxTokens": 5}}, "Invalid JSON payload received. Unknown name \"maxTokens\" at 'generation_config': Cannot find field."),
        (GEMINI, {"toolConfig": "ANY"}, f"Invalid value at 'tool_config' ({TYPES}ToolConfig), \"ANY\""),
        (GEMINI, {"systemInstruction": "Be brief."}, f"Invalid value at 'system_instruction' ({TYPES}Content), \"Be brief.\""),
        (GEMINI, {"contents": [{"role": "user", "parts": [{"functionCall": "look"}]}]}, f"Invalid value at 'contents[0].parts[0].function_call' ({TYPES}FunctionCall), \"look\""),
        (CONVERSE, {"max_tokens": 5}, "Malformed input request: #: extraneous key [max_tokens] is not permitted, please reformat your input and try again."),
        (CONVERSE, {"inferenceConfig": {"maxTokens": "x"}}, "STRING_VALUE can not be converted to an Integer"),
        (CONVERSE, {"inferenceConfig": {"topP": True}}, "TRUE_VALUE can not be converted to a Float"),
        (CONVERSE, {"messages": "Hello"}, "Expected list or null"),
        (CONVERSE, {"system": {}}, "Start of structure or map found where not expected."),
        (CONVERSE, {"toolConfig": 5}, "Expected null"),
        (CONVERSE, {"inferenceConfig": []}, "Start of list found where not expected"),
    ],
)  # fmt: skip
def test_a_field_of_the_wrong_shape_is_refused_in_the_providers_words(family, changes, says):
    status, body, _ = ask_changed(family, **changes)
    assert (status, words_of(body)) == (400, says)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        (CLAUDE, {"max_tokens": 1, "stop_sequences": [], "metadata": {"user_id": None}}),
        (GPT, {"reasoning": None, "text": None, "tool_choice": None, "metadata": None, "include": None}),
        (CHAT, {"tool_choice": None, "stream_options": None, "response_format": None, "stop": None}),
        (GEMINI, {"generationConfig": {"maxOutputTokens": "512", "topK": 40.0, "temperature": "0.5"}}),
        (GEMINI, {"generationConfig": None, "toolConfig": None, "system_instruction": {"parts": {"text": "Hm."}}}),
        (CONVERSE, {"system": None, "inferenceConfig": {"maxTokens": 9.5}, "requestMetadata": {}}),
    ],
)  # fmt: skip
def test_what_the_provider_reads_generously_passes(family, changes):
    status, body, _ = ask_changed(family, **changes)
    assert status == 200, body


@pytest.mark.refusals
@pytest.mark.parametrize(
    ("family", "changes", "param", "code"),
    [
        (GPT, {"reasoning": {"effort": "huge"}}, "reasoning.effort", "invalid_value"),
        (GPT, {"max_output_tokens": 5}, "max_output_tokens", "integer_below_min_value"),
        (GPT, {"nonsense": 5}, "nonsense", "unknown_parameter"),
        (GPT, {"metadata": {"k" * 65: "v"}}, f"metadata.{'k' * 65}", "property_name_above_max_length"),
        (CHAT, {"temperature": "hot"}, "temperature", "invalid_type"),
        (CHAT, {"messages": [{"role": "user", "content": [{"text": "a"}]}]}, "messages[0].content[0].type", "missing_required_parameter"),
    ],
)  # fmt: skip
def test_the_field_at_fault_is_named(family, changes, param, code):
    _, body, headers = ask_changed(family, **changes)
    assert (body["error"]["param"], body["error"]["code"]) == (param, code)
    assert headers["x-request-id"].startswith("req_")


@pytest.mark.refusals
def test_a_refusal_has_a_name_to_quote_and_the_same_asked_has_the_same():
    _, first, headers = ask_changed(CLAUDE, max_tokens="x")
    _, again, _ = ask_changed(CLAUDE, max_tokens="x")
    _, other, _ = ask_changed(CLAUDE, max_tokens="y")
    assert first["request_id"] == headers["request-id"] == again["request_id"] != other["request_id"]


KINDS = (None, True, 7, -1, 1.5, "x", "", [], [None], {}, {"x": 1}, [{"type": []}], {"type": {"a": 1}})


@pytest.mark.parametrize("family", list_families())
def test_no_field_of_any_kind_makes_a_rule_stumble(family):
    """Every field there is, holding every kind of thing, and the same one level deeper."""
    small = find_examples(family, list_rules(family)[-1]).accepted
    examples = [find_examples(family, rule) for rule in list_rules(family)]
    names = {name for each in examples for name in (*each.accepted.body, *each.refused.body)}
    inner = {
        (name, deep)
        for each in examples
        for name, value in each.accepted.body.items()
        if isinstance(value, dict)
        for deep in value
    }
    bodies = [{name: kind} for name in names for kind in KINDS]
    bodies += [{name: {deep: kind}} for name, deep in inner for kind in KINDS]
    for changes in bodies:
        asked = RawRequest(
            path=small.path,
            headers=small.headers,
            body={**small.body, **changes},
            abilities=MODELS[family].abilities,
        )
        for rule in list_rules(family):
            found = rule.find(asked)
            assert found is None or rule.wording.format(**found)
            assert found is None or rule.param.format(**found) is not None
