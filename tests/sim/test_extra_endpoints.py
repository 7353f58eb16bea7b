"""Endpoints besides the main one: models, token counts, stored responses, stored prompts."""

import asyncio
import gzip
import json
import zlib

import pytest

from bridle.ports.transport import OutgoingRequest
from bridle.sim.gemini.cached_contents import billed_token_seconds
from bridle.sim.simulator import Simulator
from bridle.testing import FakeClock
from tests.sim.sim_families import MODELS, decode_answer, make_outgoing, question, send_request

GPT, CLAUDE, GEMINI = (MODELS[family].id for family in ("openai_responses", "anthropic", "gemini"))
VERSION = ("anthropic-version", "2023-06-01")


def knock(simulator, method, url, body=None, *headers):
    data = b"" if body is None else json.dumps(body).encode()
    asked = OutgoingRequest(method=method, url=url, headers=headers, body=data)
    answer = asyncio.run(simulator.answer(asked))
    return answer.status, json.loads(answer.body)


def ask(simulator, text, **fields):
    body = {"model": GPT, "input": text, **fields}
    return knock(simulator, "POST", "/v1/responses", body)


def output_text(response):
    return response["output"][-1]["content"][0]["text"]


@pytest.mark.parametrize(
    ("url", "headers", "found"),
    [
        ("/v1/models", (VERSION,), lambda body: [each["id"] for each in body["data"]]),
        ("/v1/models?limit=1000", (VERSION,), lambda body: [each["id"] for each in body["data"]]),
        ("/v1/models", (), lambda body: [each["id"] for each in body["data"]]),
        ("/v1beta/models", (), lambda body: [each["name"].partition("/")[2] for each in body["models"]]),
        ("/v1/models", (("x-goog-api-key", "k"),), lambda body: [each["name"].partition("/")[2] for each in body["models"]]),
    ],
)  # fmt: skip
@pytest.mark.refusals
def test_models_are_listed_in_the_words_of_whoever_is_asked(url, headers, found):
    simulator = Simulator()
    status, body = knock(simulator, "GET", url, None, *headers)
    ids = found(body)
    assert status == 200
    assert len(ids) == len(set(ids)) > 1
    assert {CLAUDE, GPT, GEMINI} & set(ids)
    one, missing = (
        knock(simulator, "GET", f"{url.partition('?')[0]}/{name}", None, *headers)
        for name in (ids[0], "nobody")
    )
    assert (one[0], missing[0]) == (200, 404)
    assert "nobody" in json.dumps(missing[1])


def test_tokens_are_counted_as_they_are_charged():
    simulator = Simulator()
    request = question("anthropic", "Count me", tools=())
    charged = decode_answer(request, send_request(simulator, request)).usage.input
    body = {"model": CLAUDE, "messages": [{"role": "user", "content": "Count me"}]}
    assert knock(simulator, "POST", "/v1/messages/count_tokens", body, VERSION) == (
        200,
        {"input_tokens": charged},
    )
    contents = {"contents": [{"role": "user", "parts": [{"text": "Count me"}]}]}
    _, counted = knock(simulator, "POST", f"/v1beta/models/{GEMINI}:countTokens", contents)
    assert counted["totalTokens"] > 2
    inside = {"generateContentRequest": {"model": f"models/{GEMINI}", **contents}}
    assert knock(simulator, "POST", f"/v1beta/models/{GEMINI}:countTokens", inside)[1] == counted
    _, counted = knock(simulator, "POST", "/v1/responses/input_tokens", {"model": GPT, "input": "Count me"})
    assert counted["input_tokens"] > 2


@pytest.mark.refusals
def test_counting_goes_by_the_rules_too():
    body = {"model": CLAUDE, "messages": [{"role": "user", "content": " "}]}
    status, error = knock(Simulator(), "POST", "/v1/messages/count_tokens", body, VERSION)
    assert (status, error["error"]["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize("stream", [False, True])
def test_a_chain_of_responses_is_one_conversation(stream):
    simulator = Simulator()
    _, first = ask(simulator, '!call look {"city": "Oslo"}\n!then\n!say Done.', tools=[])
    (call,) = [item for item in first["output"] if item["type"] == "function_call"]
    output = [{"type": "function_call_output", "call_id": call["call_id"], "output": "fine"}]
    body = {"model": GPT, "input": output, "previous_response_id": first["id"], "stream": stream}
    answer = asyncio.run(
        simulator.answer(
            OutgoingRequest(method="POST", url="/v1/responses", headers=(), body=json.dumps(body).encode())
        )
    )
    assert b"Done." in answer.body
    assert first["id"].encode() in answer.body
    assert simulator.refusals == []


@pytest.mark.refusals
def test_what_was_not_kept_cannot_be_leaned_on():
    simulator = Simulator()
    _, first = ask(simulator, "!say Hi", store=False)
    status, error = ask(simulator, "more", previous_response_id=first["id"])
    assert (status, error["error"]["code"]) == (400, "previous_response_not_found")
    assert error["error"]["message"] == f"Previous response with id '{first['id']}' not found."
    assert knock(simulator, "GET", f"/v1/responses/{first['id']}")[0] == 404


@pytest.mark.refusals
def test_a_kept_response_can_be_looked_at_and_deleted():
    simulator = Simulator()
    _, first = ask(simulator, "!say Hi", metadata={"a": "b"})
    place = f"/v1/responses/{first['id']}"
    assert knock(simulator, "GET", place) == (200, first)
    assert first["metadata"] == {"a": "b"}
    assert knock(simulator, "GET", f"{place}/input_items")[1]["data"][0]["content"] == "!say Hi"
    assert knock(simulator, "POST", f"{place}/cancel", {})[0] == 400
    assert knock(simulator, "DELETE", place)[1]["deleted"] is True
    assert knock(simulator, "DELETE", place)[0] == 404
    assert ask(simulator, "more", previous_response_id=first["id"])[0] == 400


@pytest.mark.refusals
def test_a_conversation_grows_by_itself():
    simulator = Simulator()
    _, made = knock(simulator, "POST", "/v1/conversations", {"metadata": {"x": "y"}})
    place = f"/v1/conversations/{made['id']}"
    assert output_text(ask(simulator, "!say One", conversation=made["id"])[1]) == "One"
    assert output_text(ask(simulator, "!say Two", conversation={"id": made["id"]})[1]) == "Two"
    items = knock(simulator, "GET", f"{place}/items?order=asc")[1]["data"]
    assert [item["role"] for item in items] == ["user", "assistant", "user", "assistant"]
    assert len({item["id"] for item in items}) == 4
    added = knock(simulator, "POST", f"{place}/items", {"items": [{"role": "user", "content": "x"}]})
    assert added[1]["data"][0]["type"] == "message"
    one = f"{place}/items/{added[1]['data'][0]['id']}"
    assert knock(simulator, "GET", one)[0] == knock(simulator, "DELETE", one)[0] == 200
    assert knock(simulator, "GET", one)[0] == 404
    assert knock(simulator, "POST", place, {"metadata": {"z": "1"}})[1]["metadata"] == {"z": "1"}
    assert knock(simulator, "DELETE", place)[1]["deleted"] is True
    assert knock(simulator, "GET", place)[0] == 404
    assert ask(simulator, "more", conversation=made["id"])[0] == 404


@pytest.mark.refusals
def test_two_memories_at_once_are_one_too_many():
    status, error = ask(Simulator(), "x", conversation="conv_1", previous_response_id="resp_1")
    assert (status, error["error"]["code"]) == (400, "mutually_exclusive_parameters")


def test_compaction_leaves_what_people_said_and_one_sealed_item():
    items = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    _, compacted = knock(Simulator(), "POST", "/v1/responses/compact", {"model": GPT, "input": items})
    assert compacted["object"] == "response.compaction"
    assert [item["type"] for item in compacted["output"]] == ["message", "compaction"]


def test_a_stream_without_events_is_a_list():
    request = question("gemini", "!say one two")
    asked = make_outgoing(request)
    plain = OutgoingRequest(
        method="POST", url=asked.url.partition("?")[0], headers=asked.headers, body=asked.body
    )
    answer = asyncio.run(Simulator().answer(plain))
    assert isinstance(json.loads(answer.body), list)
    assert decode_answer(request, answer).text == "one two"


@pytest.mark.refusals
def test_an_unknown_path_is_not_found():
    simulator = Simulator()
    assert knock(simulator, "GET", "/v1/nothing")[0] == 404
    assert len(simulator.refusals) == 1


FRONT = {"systemInstruction": {"parts": [{"text": "Look before you leap. " * 2_000}]}}
FLASH = "gemini-3.8-flash"
KEPT = "/v1beta/cachedContents"


def generate(simulator, name, *headers, model=FLASH, **more):
    body = {"contents": [{"role": "user", "parts": [{"text": "Say yes."}]}], "cachedContent": name, **more}
    return knock(simulator, "POST", f"/v1beta/models/{model}:generateContent", body, *headers)


@pytest.mark.refusals
def test_a_prompt_kept_by_name_is_read_until_its_time_is_up():
    clock = FakeClock()
    simulator = Simulator(clock=clock)
    status, kept = knock(simulator, "POST", KEPT, {"model": f"models/{FLASH}", **FRONT, "ttl": "600s"})
    tokens = kept["usageMetadata"]["totalTokenCount"]
    assert status == 200
    assert tokens > 4_096
    usage = generate(simulator, kept["name"])[1]["usageMetadata"]
    assert usage["cachedContentTokenCount"] == tokens
    assert usage["promptTokenCount"] > tokens
    url = f"/v1beta/{kept['name']}"
    clock.advance(500)
    longer = knock(simulator, "PATCH", f"{url}?updateMask=ttl", {"ttl": "600s"})[1]
    assert longer["expireTime"] > kept["expireTime"]
    clock.advance(500)
    assert knock(simulator, "GET", url)[1] == longer
    assert [each["name"] for each in knock(simulator, "GET", KEPT)[1]["cachedContents"]] == [kept["name"]]
    assert billed_token_seconds(simulator.stored, clock.now()) == tokens * 1_000
    clock.advance(101)
    gone = generate(simulator, kept["name"])
    assert (gone[0], gone[1]["error"]["status"]) == (403, "PERMISSION_DENIED")
    assert "CachedContent not found" in gone[1]["error"]["message"]
    assert knock(simulator, "GET", KEPT)[1] == {"cachedContents": []}
    assert knock(simulator, "DELETE", url)[0] == 403


@pytest.mark.refusals
def test_a_named_prompt_is_one_account_s_one_model_s_and_said_once():
    simulator = Simulator(clock=FakeClock())
    mine, other = ("x-goog-api-key", "mine"), ("x-goog-api-key", "other")
    name = knock(simulator, "POST", KEPT, {"model": f"models/{FLASH}", **FRONT}, mine)[1]["name"]
    assert generate(simulator, name, mine)[0] == 200
    assert generate(simulator, name, other)[0] == 403
    assert "has to be the same" in str(generate(simulator, name, mine, model="gemini-2.5-flash")[1])
    assert "move those values to CachedContent" in str(generate(simulator, name, mine, **FRONT)[1])
    assert "Invalid CachedContent name" in str(generate(simulator, "1234567890", mine)[1])
    assert knock(simulator, "DELETE", f"/v1beta/{name}", None, mine) == (200, {})
    assert generate(simulator, name, mine)[0] == 403


@pytest.mark.refusals
@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"model": "models/gemini-4-argon", **FRONT}, 404, "not supported for createCachedContent"),
        ({"model": "models/nobody", **FRONT}, 404, "not found"),
        ({"model": f"models/{FLASH}"}, 400, "too small. total_token_count=4, min_total_token_count=4096"),
        (
            {"model": f"models/{FLASH}", **FRONT, "ttl": "an hour"},
            400,
            "Invalid value at 'cached_content.ttl'",
        ),
    ],
)
def test_not_everything_can_be_kept_by_name(body, status, words):
    answered = knock(Simulator(clock=FakeClock()), "POST", KEPT, body)
    assert answered[0] == status
    assert words in answered[1]["error"]["message"]


@pytest.mark.refusals
@pytest.mark.parametrize(
    ("method", "url", "headers", "expected"),
    [
        ("POST", "/v1/nothing", (VERSION,), {"type": "error", "error": {"type": "not_found_error", "message": "Not Found"}}),
        ("POST", "/v1/nothing", (), {"error": {"message": "Invalid URL (POST /v1/nothing)", "type": "invalid_request_error", "param": None, "code": None}}),
        ("GET", "/v1/responses/a/b/c", (), {"error": {"message": "Invalid URL (GET /v1/responses/a/b/c)", "type": "invalid_request_error", "param": None, "code": None}}),
        ("POST", "/v1beta/models/x:sing", (), {"error": {"code": 404, "message": "Method not found.", "status": "NOT_FOUND"}}),
        ("POST", "/model/x/sing", (), {"message": "Unable to determine service/operation name to be authorized"}),
    ],
)  # fmt: skip
def test_the_lost_are_told_in_the_words_of_whoever_they_meant(method, url, headers, expected):
    status, body = knock(Simulator(), method, url, {}, *headers)
    assert status == 404
    assert body.items() >= expected.items()


@pytest.mark.refusals
@pytest.mark.parametrize(
    ("url", "headers", "says"),
    [
        ("/v1/messages/count_tokens", (VERSION,), "The request body is not valid JSON: "),
        ("/v1/responses/input_tokens", (), "We could not parse the JSON body of your request."),
        ("/v1/conversations", (), "We could not parse the JSON body of your request."),
        (f"/v1beta/models/{GEMINI}:countTokens", (), "Invalid JSON payload received. "),
    ],
)
def test_a_side_door_reads_only_json(url, headers, says):
    asked = OutgoingRequest(method="POST", url=url, headers=headers, body=b'{"model": ')
    answer = asyncio.run(Simulator().answer(asked))
    assert answer.status == 400
    assert json.loads(answer.body)["error"]["message"].startswith(says)


@pytest.mark.refusals
def test_a_packed_body_is_unpacked_and_a_broken_one_refused():
    sent = make_outgoing(question("anthropic", "!say Hi", stream=False, tools=()))

    def answered(body, packing):
        headers = (*sent.headers, ("Content-Encoding", packing))
        asked = OutgoingRequest(method="POST", url=sent.url, headers=headers, body=body)
        answer = asyncio.run(Simulator().answer(asked))
        return answer.status, answer.body.decode()

    assert answered(gzip.compress(sent.body), "gzip")[0] == 200
    assert answered(zlib.compress(sent.body), "deflate")[0] == 200
    assert answered(sent.body, "identity")[0] == 200
    for body in (sent.body, gzip.compress(sent.body)[:-9]):
        status, told = answered(body, "gzip")
        assert status == 400
        assert "not valid gzip" in told
    assert "is not supported" in answered(sent.body, "br")[1]


def test_lists_come_a_page_at_a_time():
    simulator = Simulator()
    listed = knock(simulator, "GET", "/v1/models?limit=1000", None, VERSION)[1]["data"]
    first = knock(simulator, "GET", "/v1/models?limit=2", None, VERSION)[1]
    assert (first["data"], first["has_more"]) == (listed[:2], True)
    onward = knock(simulator, "GET", f"/v1/models?limit=2&after_id={first['last_id']}", None, VERSION)[1]
    assert onward["data"] == listed[2:4]

    every = knock(simulator, "GET", "/v1beta/models?pageSize=1000")[1]
    page = knock(simulator, "GET", "/v1beta/models?pageSize=2")[1]
    assert "nextPageToken" not in every
    rest = knock(simulator, "GET", f"/v1beta/models?pageSize=1000&pageToken={page['nextPageToken']}")[1]
    assert page["models"] + rest["models"] == every["models"]

    items = [{"type": "message", "role": "user", "content": f"number {n}"} for n in range(3)]
    place = (
        f"/v1/conversations/{knock(simulator, 'POST', '/v1/conversations', {'items': items})[1]['id']}/items"
    )
    some = knock(simulator, "GET", f"{place}?limit=2&order=asc")[1]
    assert ([item["content"] for item in some["data"]], some["has_more"]) == (["number 0", "number 1"], True)
    last = knock(simulator, "GET", f"{place}?limit=2&order=asc&after={some['last_id']}")[1]
    assert ([item["content"] for item in last["data"]], last["has_more"]) == (["number 2"], False)


@pytest.mark.parametrize("family", ["openai_responses", "openai_chat"])
def test_pieces_of_a_stream_are_padded_unless_nobody_wants_it(family):
    request = question(family, '!say One two three.\n!call look {"city": "Oslo"}', max_tokens=None)
    sent = make_outgoing(request)

    def answered(**more):
        body = json.loads(sent.body)
        options = {**body.get("stream_options", {}), **more}
        data = json.dumps({**body, "stream_options": options}).encode()
        asked = OutgoingRequest(method="POST", url=sent.url, headers=sent.headers, body=data)
        return asyncio.run(Simulator(profile="first-party").answer(asked))

    padded, bare = answered(), answered(include_obfuscation=False)
    assert padded.body.count(b'"obfuscation":"') >= 2
    assert b"obfuscation" not in bare.body.replace(b"include_obfuscation", b"")
    one, other = decode_answer(request, padded), decode_answer(request, bare)
    assert one.text == other.text == "One two three."
    assert [call.arguments for call in one.calls] == [call.arguments for call in other.calls]
