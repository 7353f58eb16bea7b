"""What failures look like on any wire: which words decide, which only look as if they did, and what is cut."""

import asyncio
import json
import re

import pytest
from msgspec.structs import replace

from bridle.ports.codec import HttpReply
from bridle.providers import load_codec
from bridle.providers.wire.failures import MESSAGE_LENGTH_MAX, UNRECOGNISED_LENGTH_MAX, to_one_line
from bridle.run.model_call import ModelCall
from bridle.run.model_connection import ModelConnection
from bridle.transports.inprocess import InProcessTransport
from bridle.values.errors import ProviderError
from bridle.values.message import Message, Text
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request

FAMILIES = ("openai_responses", "openai_chat", "gemini")


def asked(family):
    endpoint = Endpoint(name="here", family=family, auth="none")
    return Request(
        model=Model(id="m", endpoint=endpoint), messages=(Message(role="user", parts=(Text(text="q"),)),)
    )


STATUS_WORDS = {400: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"}


def said(family, message, status=400, **more):
    error = {"message": message, **more}
    if family == "gemini":
        error |= {"code": status, "status": STATUS_WORDS[status]}
    elif status != 429:
        error.setdefault("type", "invalid_request_error")
    return failure(family, json.dumps({"error": error}).encode(), status)


def failure(family, body, status):
    decoder = load_codec(family).new_decoder(asked(family), status, {"content-type": "application/json"})
    with pytest.raises(ProviderError) as caught:
        _ = (list(decoder.feed(body)), decoder.close())
    return caught.value.failure


OVERFLOWS = [
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048575).",
    "Requested token count exceeds the model's maximum context length of 131072 tokens",
    "Input length (140000) exceeds model's maximum context length (131072).",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
    "Please reduce the length of the messages or completion.",
    "This endpoint's maximum context length is 200000 tokens. However, you requested about 250000 tokens",
    "Input length 300000 exceeds the maximum allowed input length of 262144 tokens.",
    "The input (300000 tokens) is longer than the model's context length (262144 tokens).",
    "the request exceeds the available context size, try increasing it",
    "The number of tokens to keep from the initial prompt is greater than the context length",
    "prompt token count of 140000 exceeds the limit of 128000",
    "invalid params, context window exceeds limit (2013)",
    "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
    "Prompt contains 140000 tokens and 0 draft tokens, too large for model with 131072 maximum context length",
    "prompt too long; exceeded max context length by 4096 tokens",
    "This model's maximum context length is 4096 tokens. However, you requested 512 output tokens and",
    "prompt is too long: 1050000 tokens > 1000000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
    "input is too long for requested model",
]
NO_OVERFLOWS = [
    "Rate limit reached: too many tokens in the context window of one minute",
    "Too many requests: the context window of your plan is used up",
    "ThrottlingException: Too many tokens, please wait before trying again.",
    "Unknown parameter: 'context_length'.",
    "Invalid value for 'context_management': this model has no context window compaction",
    "'max_tokens' or 'max_completion_tokens' is too large: 4. This model's maximum context length is 3 tokens",
    "max_tokens is too large: 200000. This model supports at most 128000 completion tokens",
    "Invalid 'input[3].call_id': string too long. Expected a string with maximum length 64",
    "The field 'context' exceeds the limit of 10 members",
    "Tool description is too long; its context length limit is a hint",
]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("message", OVERFLOWS)
def test_a_prompt_that_is_too_long_is_told_by_every_wording_anybody_uses(family, message):
    assert said(family, message).kind == "context"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("message", NO_OVERFLOWS)
def test_what_only_looks_like_a_long_prompt_is_none(family, message):
    assert said(family, message).kind == "invalid"


def test_a_verdict_inside_a_good_reply_is_read_to_its_end():
    verdict = {"status_code": 2013, "status_msg": "invalid params, context window exceeds limit"}
    assert failure("openai_chat", json.dumps({"base_resp": verdict}).encode(), 200).kind == "context"


@pytest.mark.parametrize("family", FAMILIES)
def test_waiting_is_never_taken_for_a_long_prompt(family):
    for message in (*OVERFLOWS, *NO_OVERFLOWS):
        assert said(family, message, 429).kind == "rate_limited"


@pytest.mark.parametrize("family", ["openai_responses", "openai_chat"])
@pytest.mark.parametrize(
    "message",
    [
        "You exceeded your current quota, please check your plan and billing details.",
        "Insufficient balance: you have no credits left, see billing",
        "Invalid value for 'metadata.billing'",
    ],
)
def test_words_about_money_count_only_where_the_status_is_about_money(family, message):
    assert said(family, message).kind == "invalid"
    assert said(family, message, 403).kind == "unauthorized"
    assert said(family, message, 500).kind == "server"
    assert said(family, message, 402).kind == "quota"
    spent = "quota" if "metadata" not in message else "rate_limited"
    assert said(family, message, 429).kind == spent


@pytest.mark.parametrize(
    "message",
    [
        "API key not valid. Please pass a valid API key.",
        "API Key not found. Please pass a valid API key.",
        "API key expired. Please renew the API key.",
    ],
)
def test_a_key_is_wrong_though_the_status_says_that_the_question_was(message):
    assert said("gemini", message).kind == "unauthorized"


def test_a_key_of_the_users_own_data_is_no_key():
    assert (
        said("gemini", "Invalid value at 'tools[0]': the property \"API key\" has no type").kind == "invalid"
    )


UNSIGNED = (
    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work"
    " correctly, and missing thought_signature may lead to degraded model performance."
)
ENCRYPTED = (
    "The encrypted content {} could not be verified. Reason: Encrypted content could not be decrypted."
)
UNLED = "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'."
DANGLING = "Item 'rs_1' of type 'reasoning' was provided without its required following item."
REFUSED = {
    "openai_responses": [ENCRYPTED.format("gAAA"), ENCRYPTED.format("for item rs_1"), UNLED, DANGLING],
    "gemini": [
        UNSIGNED,
        "Invalid thought signature.",
        "Corrupted thought signature.",
        "Thought signature is not valid",
    ],
    "openai_chat": [
        "The reasoning_content in the thinking mode must be passed back to the API.",
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "Reasoning input is not enabled for this model",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
    ],
}


@pytest.mark.parametrize(
    ("family", "message"), [(family, each) for family, messages in REFUSED.items() for each in messages]
)
def test_reasoning_that_is_not_taken_back_is_a_failure_of_its_own(family, message):
    assert said(family, message).kind == "reasoning_refused"
    assert said(family, message, 500).kind == "server"


def test_a_gateway_passes_on_that_reasoning_was_refused():
    broken = "messages.1.content.0: Invalid `signature` in `thinking` block"
    for behind in (UNSIGNED, ENCRYPTED.format("gAAA"), json.dumps({"error": {"message": broken}})):
        told = said("openai_chat", "Provider returned error", metadata={"raw": behind})
        assert told.kind == "reasoning_refused"


@pytest.mark.parametrize("family", ["openai_responses", "openai_chat"])
def test_a_code_says_it_too(family):
    assert said(family, "m", code="invalid_encrypted_content").kind == "reasoning_refused"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "message",
    [
        "Unsupported value: 'reasoning.effort' does not support 'none' with this model.",
        "Unknown parameter: 'reasoning_content'.",
        "thinking_budget is not valid for this model",
        "Invalid signature for function 'look'",
    ],
)
def test_a_wrong_wish_about_reasoning_is_no_refusal_of_it(family, message):
    assert said(family, message).kind == "invalid"


def test_a_cut_never_leaves_a_part_of_a_word():
    key = "sk-" + "k" * 60
    for at in range(MESSAGE_LENGTH_MAX - 80, MESSAGE_LENGTH_MAX + 5):
        told = to_one_line("x " * (at // 2) + key + " was refused " + "y " * 600)
        assert len(told) <= MESSAGE_LENGTH_MAX
        assert key in told or "k" not in told
    assert to_one_line('{"a":"' + "b" * 500 + '","c":"' + key * 20 + '"}').endswith('b",…')
    assert to_one_line(b" " * 64_000 + b"k" * 900) == to_one_line("k" * 2_000) == "…"
    assert to_one_line("short and whole") == "short and whole"


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("status", [200, 400, 500])
def test_a_key_at_the_edge_of_what_is_shown_does_not_survive(family, status):
    """Providers repeat keys in their errors; what is cut before the key is taken out must not hold a half."""
    key = "sk-" + "0123456789" * 6
    edges = {200: UNRECOGNISED_LENGTH_MAX}.get(status, MESSAGE_LENGTH_MAX)
    for at in range(max(edges - 90, 0), edges + 5, 3):
        words = ("ab " * at)[:at] + key + " is no key"
        body = json.dumps({"error": {"message": words}}).encode() if status != 200 else words.encode()
        told = asyncio.run(refusal(family, status, body, key))
        assert not re.search(r"sk-|0123", told), told


async def refusal(family, status, body, key):
    async def answer(outgoing):
        return HttpReply(status=status, headers=(("content-type", "text/plain"),), frames=(body,))

    request = replace(asked(family), stream=False)
    line = ModelConnection(
        model=request.model,
        codec=load_codec(family),
        transport=InProcessTransport(answer),
        headers=(("authorization", f"Bearer {key}"),),
    )
    exchange = ModelCall(line, request, line.codec.new_history(), stream=False, now=lambda: 0.0)
    with pytest.raises(ProviderError) as caught:
        await exchange.send(lambda delta: None, 0.0)
    return caught.value.failure.message
