"""Failures on every wire: status, headers and body, which words decide, and what is cut."""

import asyncio
import json
import re

import pytest

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
from tests.providers.anthropic.anthropic_errors import FAILURES as ANTHROPIC
from tests.providers.bedrock.bedrock_errors import FAILURES as BEDROCK
from tests.providers.gemini.gemini_errors import FAILURES as GEMINI
from tests.providers.gemini.gemini_errors import UNSIGNED
from tests.providers.kit.wire_kit import list_rows
from tests.providers.openai_chat.openai_chat_errors import FAILURES as OPENAI_CHAT
from tests.providers.openai_responses.openai_responses_errors import ENCRYPTED
from tests.providers.openai_responses.openai_responses_errors import FAILURES as OPENAI_RESPONSES

CASES = {each.wire.family: each for each in (ANTHROPIC, BEDROCK, GEMINI, OPENAI_CHAT, OPENAI_RESPONSES)}
for_families = pytest.mark.parametrize("cases", CASES.values(), ids=CASES)


def fail(cases, message, status=400, **more):
    return cases.wire.fail(cases.say(message, status, **more), status)


# Status, body and headers


@pytest.mark.parametrize(("cases", "refusal"), list_rows(CASES, "refusals"))
def test_every_refusal_has_one_kind(cases, refusal):
    decoder = cases.wire.new_decoder(refusal.status, refusal.headers)
    assert list(decoder.feed(refusal.body)) == []
    with pytest.raises(ProviderError) as failed:
        decoder.close()
    found = failed.value.failure
    assert (found.kind, found.status) == (refusal.kind, refusal.status)
    assert refusal.code is None or found.code == refusal.code
    assert found.message if refusal.message is None else found.message == refusal.message


@pytest.mark.parametrize(("cases", "bodies", "kind", "code", "words"), list_rows(CASES, "in_replies"))
def test_a_failure_under_a_good_status_is_a_failure(cases, bodies, kind, code, words):
    for body in bodies:
        found = cases.wire.fail(body)
        assert (found.kind, found.status) == (kind, 200), body
        assert code is None or found.code == code
        assert found.message and words in found.message


DATE, LATER = "Sun, 15 Nov 2026 10:00:00 GMT", "Sun, 15 Nov 2026 10:00:30 GMT"


@for_families
@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": LATER}, None),
        ({"retry-after": LATER, "date": DATE}, 30.0),
        ({"retry-after": DATE, "date": LATER}, 0.0),
    ],
)
def test_the_wait_is_what_the_provider_asked_for(cases, headers, seconds):
    found = cases.wire.fail(cases.say("Slow down.", 429), 429, headers)
    assert (found.kind, found.retry_after_seconds) == ("rate_limited", seconds)


@pytest.mark.parametrize(("cases", "body", "headers", "seconds"), list_rows(CASES, "waits"))
def test_the_wait_may_stand_in_the_body(cases, body, headers, seconds):
    assert cases.wire.fail(body, 429, headers).retry_after_seconds == seconds


@for_families
@pytest.mark.parametrize(("word", "said"), [("true", True), ("FALSE", False), ("", None), ("perhaps", None)])
def test_the_providers_word_on_trying_again(cases, word, said):
    assert cases.wire.fail(cases.say("m", 500), 500, {"x-should-retry": word}).should_retry is said


@for_families
@pytest.mark.parametrize(
    ("status", "body", "headers", "words"),
    [
        (502, b"<html><title>502\n Bad Gateway</title><p>x</html>", {}, "HTTP 502: 502 Bad Gateway"),
        (403, b"<html><style>a{}</style><p>No\nentry</p></html>", {}, "HTTP 403: No entry"),
        (500, b"", {}, "HTTP 500, without an explanation"),
        (500, b"\xff\xfe", {}, "HTTP 500: \ufffd\ufffd"),
        (301, b"", {"location": "https://else/"}, "HTTP 301 to https://else/, without an explanation"),
        (400, b'{"detail":"nope"}', {}, "nope"),
        (400, b'[{"error":{"message":"in a list"}}]', {}, "in a list"),
        (400, b'{"error":"just words"}', {}, "just words"),
    ],
)
def test_a_body_that_is_not_theirs_gives_one_readable_line(cases, status, body, headers, words):
    assert cases.wire.fail(body, status, headers).message == words


@for_families
def test_long_messages_are_cut_and_long_pages_not_kept(cases):
    assert len(cases.wire.fail(b"x" * 5_000_000, 500).message) <= MESSAGE_LENGTH_MAX
    assert len(fail(cases, "y" * 5_000).message) <= MESSAGE_LENGTH_MAX


@for_families
def test_a_failure_spoken_is_a_failure_understood(cases):
    for failure in cases.told:
        spoken = cases.wire.server.encode_failure(failure)
        assert cases.wire.fail(b"".join(spoken.frames), spoken.status, dict(spoken.headers)) == failure


# Words that decide


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


WISHES = [
    "Unsupported value: 'reasoning.effort' does not support 'none' with this model.",
    "Unknown parameter: 'reasoning_content'.",
    "thinking_budget is not valid for this model",
    "Invalid signature for function 'look'",
]


@pytest.mark.parametrize(("cases", "message"), list_rows(CASES, lambda each: OVERFLOWS))
def test_every_known_wording_of_a_too_long_prompt_is_recognized(cases, message):
    assert fail(cases, message).kind == "context"
    assert fail(cases, message, 429).kind == "rate_limited", "the status comes first"


def list_looks(cases):
    return [each for each in (*NO_OVERFLOWS, *WISHES, *cases.invalid) if each not in cases.rate_limited]


@pytest.mark.parametrize(("cases", "message"), list_rows(CASES, list_looks))
def test_what_only_looks_like_a_cause_is_none(cases, message):
    assert fail(cases, message).kind == "invalid"
    assert fail(cases, message, 429).kind == "rate_limited"


@for_families
def test_a_rate_limit_may_be_told_by_its_words(cases):
    for message in cases.rate_limited:
        assert fail(cases, message).kind == "rate_limited"


@pytest.mark.parametrize(("cases", "message"), list_rows(CASES, "reasoning_refused"))
def test_reasoning_that_is_not_taken_back_is_a_failure_of_its_own(cases, message):
    assert fail(cases, message).kind == "reasoning_refused"
    assert fail(cases, message, 500).kind == "server"


@pytest.mark.parametrize("status", [401, 413, 529])
def test_type_and_status_come_before_words(status):
    kinds = {401: "unauthorized", 413: "too_large", 529: "overloaded"}
    for message in (*ANTHROPIC.reasoning_refused, *OVERFLOWS, *ANTHROPIC.invalid):
        assert fail(ANTHROPIC, message, status).kind == kinds[status]


def test_a_verdict_inside_a_good_reply_is_read_to_its_end():
    verdict = {"status_code": 2013, "status_msg": "invalid params, context window exceeds limit"}
    assert OPENAI_CHAT.wire.fail(json.dumps({"base_resp": verdict}).encode()).kind == "context"


OPENAI = pytest.mark.parametrize(
    "cases", [OPENAI_RESPONSES, OPENAI_CHAT], ids=["openai_responses", "openai_chat"]
)


@OPENAI
@pytest.mark.parametrize(
    "message",
    [
        "You exceeded your current quota, please check your plan and billing details.",
        "Insufficient balance: you have no credits left, see billing",
        "Invalid value for 'metadata.billing'",
    ],
)
def test_words_about_money_count_only_where_the_status_is_about_money(cases, message):
    assert fail(cases, message).kind == "invalid"
    assert fail(cases, message, 403).kind == "unauthorized"
    assert fail(cases, message, 500).kind == "server"
    assert fail(cases, message, 402).kind == "quota"
    spent = "quota" if "metadata" not in message else "rate_limited"
    assert fail(cases, message, 429).kind == spent


def test_a_gateway_passes_on_that_reasoning_was_refused():
    broken = "messages.1.content.0: Invalid `signature` in `thinking` block"
    for behind in (UNSIGNED, ENCRYPTED.format("gAAA"), json.dumps({"error": {"message": broken}})):
        told = fail(OPENAI_CHAT, "Provider returned error", metadata={"raw": behind})
        assert told.kind == "reasoning_refused"


@OPENAI
def test_a_code_says_it_too(cases):
    assert fail(cases, "m", code="invalid_encrypted_content").kind == "reasoning_refused"


# What is cut


def test_a_cut_never_leaves_a_part_of_a_word():
    key = "sk-" + "k" * 60
    for at in range(MESSAGE_LENGTH_MAX - 80, MESSAGE_LENGTH_MAX + 5):
        told = to_one_line("x " * (at // 2) + key + " was refused " + "y " * 600)
        assert len(told) <= MESSAGE_LENGTH_MAX
        assert key in told or "k" not in told
    assert to_one_line('{"a":"' + "b" * 500 + '","c":"' + key * 20 + '"}').endswith('b",…')
    assert to_one_line(b" " * 64_000 + b"k" * 900) == to_one_line("k" * 2_000) == "…"
    assert to_one_line("short and whole") == "short and whole"


@pytest.mark.parametrize("family", CASES)
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

    request = Request(
        model=Model(id="m", endpoint=Endpoint(name="here", family=family, auth="none")),
        messages=(Message(role="user", parts=(Text(text="q"),)),),
        stream=False,
    )
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
