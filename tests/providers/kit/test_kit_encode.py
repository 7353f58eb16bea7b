"""Requests on every wire: what is written, in which order, under which ids and names."""

import json
import re
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from bridle.ports.codec import HttpRequest
from bridle.providers import load_codec
from bridle.values.errors import BadTool, MisuseError, ProviderError
from bridle.values.message import Text
from bridle.values.request import Extra, Sampling, Thinking, ToolChoice, ToolSpec
from tests.providers.anthropic.anthropic_requests import ENCODE as ANTHROPIC
from tests.providers.bedrock.bedrock_requests import ENCODE as BEDROCK
from tests.providers.gemini.gemini_requests import ENCODE as GEMINI
from tests.providers.kit.encode_kit import FOREIGN, answer, call, make_line, results, user
from tests.providers.kit.wire_kit import list_rows
from tests.providers.openai_chat.openai_chat_requests import ENCODE as OPENAI_CHAT
from tests.providers.openai_responses.openai_responses_requests import ENCODE as OPENAI_RESPONSES

CASES: dict[str, Any] = {
    each.talk.own.family: each for each in (ANTHROPIC, BEDROCK, GEMINI, OPENAI_CHAT, OPENAI_RESPONSES)
}
for_families = pytest.mark.parametrize("cases", CASES.values(), ids=CASES)
LOOK = ToolSpec(name="look")


# Body and headers


@for_families
def test_what_changes_stands_behind_the_messages(cases):
    body = cases.talk.sent(cases.full)
    count = len(cases.head)
    assert list(body)[:count] == list(cases.head)
    for name, value in cases.head.items():
        assert value is None or body[name] == value
    assert {name: body[name] for name in list(body)[count:]} == cases.tail


@for_families
def test_how_a_reply_is_delivered_is_no_part_of_what_was_asked(cases):
    codec = cases.talk.codec
    streamed, whole = codec.encode(cases.full), codec.encode(replace(cases.full, stream=False))
    assert streamed.digest == whole.digest
    assert streamed.digest != codec.encode(replace(cases.full, max_tokens=99)).digest
    other = replace(cases.full, model=replace(cases.talk.model, id="another"))
    assert streamed.digest != codec.encode(other).digest
    assert "stream" not in json.loads(whole.body)


@for_families
def test_headers_come_from_the_endpoint_and_hold_no_key(cases):
    endpoint = replace(cases.talk.model.endpoint, headers=(("X-Mine", "1"),))
    request = cases.talk.ask(user("hi"), model=replace(cases.talk.model, endpoint=endpoint))
    headers = dict(cases.talk.codec.encode(request).headers)
    assert headers == {"content-type": "application/json", "x-mine": "1", **cases.headers}


@for_families
def test_sampling_is_not_sent_to_a_model_that_refuses_it(cases):
    model = cases.talk.model
    refusing = replace(model, abilities=replace(model.abilities, sampling=False))
    asked = Sampling(temperature=1.0, top_p=0.9, top_k=3, stop_sequences=("x",))
    body = cases.talk.sent(cases.talk.ask(user("hi"), model=refusing, sampling=asked))
    assert body == cases.talk.sent(cases.talk.ask(user("hi"), sampling=Sampling(stop_sequences=("x",))))


@for_families
def test_tools_ours_and_theirs(cases):
    tools = (
        ToolSpec(name="look", description="Looks.", parameters='{"type":  "object", "properties": {}}'),
        ToolSpec(name="web", native=cases.native),
    )
    body = cases.talk.codec.encode(cases.talk.ask(user("hi"), tools=tools)).body
    assert b'{"type":  "object", "properties": {}}' in body
    assert cases.native.encode() in body
    for broken in (ToolSpec(name="look", parameters="{"), ToolSpec(name="look", native="[]")):
        with pytest.raises(BadTool, match="'look'"):
            cases.talk.sent(cases.talk.ask(user("hi"), tools=(broken,)))


@pytest.mark.parametrize(("cases", "choice", "expected"), list_rows(CASES, "choices"))
def test_choices(cases, choice, expected):
    tools = (LOOK, ToolSpec(name="web", native=cases.native))
    assert (
        cases.read_choice(cases.talk.sent(cases.talk.ask(user("hi"), tools=tools, tool_choice=choice)))
        == expected
    )
    assert cases.read_choice(cases.talk.sent(cases.talk.ask(user("hi"), tool_choice=choice))) is None


@pytest.mark.parametrize(
    ("cases", "extra"), list_rows(CASES, lambda each: (*each.extras, Extra(name="metadata", json="{")))
)
def test_extras_add_and_never_replace(cases, extra):
    with pytest.raises(MisuseError, match=extra.name):
        cases.talk.sent(cases.talk.ask(user("hi"), max_tokens=20, extras=(extra,)))


def list_members(value, path=()):
    """Every member of the objects in a body that is no object itself, by its path."""
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield from list_members(inner, (*path, name))
        else:
            yield (*path, name), inner


def nest(path, value):
    return nest(path[:-1], {path[-1]: value}) if path else value


@for_families
def test_a_member_of_an_extra_is_sent_or_refused_by_its_name(cases):
    """An extra that differs from the request is neither sent instead nor left out in silence."""
    talk, found = cases.talk, 0
    options = {
        "max_tokens": 20,
        "thinking": Thinking(effort="high"),
        "tools": (LOOK,),
        "tool_choice": ToolChoice(parallel=False),
    }
    plain = talk.sent(talk.ask(user("hi"), **options))
    reserved = load_codec(talk.own.family).reserved_fields
    for path, value in list_members(plain):
        name, *inner = path
        if not inner or name in reserved or name == "stream_options":  # what an extra says of it is sent
            continue
        found += 1

        def send(changed, name=name, inner=tuple(inner)):
            added = Extra(name=name, json=json.dumps(nest(inner, changed)))
            return talk.sent(talk.ask(user("hi"), **options, extras=(added,)))

        with pytest.raises(MisuseError, match=re.escape(".".join(path))):
            send("other")
        assert send(value) == plain
        added = Extra(name=name, json=json.dumps(nest((*inner[:-1], "more"), 1)))
        both = talk.sent(talk.ask(user("hi"), **options, extras=(added,)))
        assert dict(list_members(both)) == {**dict(list_members(plain)), (*path[:-1], "more"): 1}
    assert found or talk.own.family == "openai_chat", "nothing is tested"


@for_families
def test_a_foreign_memory_of_messages_is_refused(cases):
    other = "gemini" if cases.talk.own.family == "anthropic" else "anthropic"
    for memory in (object(), load_codec(other).new_history()):
        with pytest.raises(MisuseError, match="another codec"):
            cases.talk.codec.encode(cases.talk.ask(user("hi")), memory)


# Messages


@for_families
def test_blank_words_and_torn_characters_never_go_out(cases):
    talk = cases.talk
    calls = talk.assistant(call("c1", "t1"))
    odd = (
        user("hi", " \n"),
        talk.assistant("", "\t"),
        user("a\ud83db \ud83d\ude00"),
        calls,
        results(answer("c1", "\udfff")),
    )
    plain = (user("hi"), user("a\ufffdb 😀"), calls, results(answer("c1", "\ufffd")))
    assert talk.written(*odd) == talk.written(*plain)
    torn = talk.assistant(call("c1", "t1", arguments='{"x": "\\ud83d"}'), origin=FOREIGN)
    ((_, _, arguments),) = cases.read_calls(talk.sent(talk.ask(user("x"), torn)))
    assert arguments == {"x": "\ufffd"}


@for_families
def test_arguments_go_out_as_they_came(cases):
    spelled = '{"b": 1.50,  "a": [ ]}'
    body = cases.talk.codec.encode(
        cases.talk.ask(user("x"), cases.talk.assistant(call("c1", "t1", arguments=spelled)))
    ).body
    assert spelled.encode() in body or json.dumps(spelled).encode() in body


@for_families
@pytest.mark.parametrize("broken", ['{"city": "Tok', "[1]", "nonsense"])
def test_arguments_that_are_no_object_are_wrapped_elsewhere_and_read_back(cases, broken):
    talk = cases.talk
    made = call("c1", "t1", arguments=broken)
    for origin, is_wrapped in ((talk.own, cases.is_wrapped), (FOREIGN, True)):
        request = talk.ask(user("x"), talk.assistant(made, origin=origin))
        ((_, _, arguments),) = cases.read_calls(talk.sent(request))
        assert arguments == ({"INVALID_JSON": broken} if is_wrapped else broken)
        if is_wrapped == cases.is_wrapped:
            read = talk.codec.decode_request(talk.codec.encode(request))
            assert read.messages[1].calls[0].arguments == broken


@for_families
def test_ids_are_the_providers_where_they_are_legal_and_new(cases):
    talk = cases.talk
    body = talk.sent(
        talk.ask(
            user("go"),
            talk.assistant(
                call("c1", "call_1"),
                call("c2", "call_1"),
                call("c3", ""),
                call("c4", "no way"),
                call("c5", "x" * 65),
            ),
            results(*(answer(f"c{n}", str(n)) for n in (1, 2, 3, 4, 5))),
            talk.assistant(call("c6", "c3"), call("c7", "call_7"), origin=FOREIGN),
            results(answer("c6", "6"), answer("c7", "7"), answer("or phan", "8")),
        )
    )
    called = [call_id for call_id, _, _ in cases.read_calls(body)]
    assert called == list(cases.ids)
    assert cases.read_results(body) == list(zip(called, "1234567", strict=True))


@for_families
def test_names_the_wire_does_not_allow_are_changed_alike_everywhere(cases):
    talk = cases.talk
    names = ["look", "größe", "grosse", "a b", "a_b", "a.b/c", "x" * 300, "x" * 301, ""]
    calls = [call(f"c{at}", f"t{at}", name=name) for at, name in enumerate(names)]
    tools = tuple(ToolSpec(name=name) for name in names)
    line = (user("q"), talk.assistant(*calls), results(*(answer(each.id, "x") for each in calls)))
    body = talk.sent(talk.ask(*line, tools=tools))
    written = [name for _, name, _ in cases.read_calls(body)]
    assert written[0] == "look"
    assert len(set(written)) == len(names)
    assert all(re.fullmatch(cases.legal_name, name) for name in written)
    declared = json.dumps(body, ensure_ascii=False)
    assert all(declared.count(f'"{name}"') >= 2 for name in written), "declared as they are called"
    forced = talk.ask(user("q"), tools=tools, tool_choice=ToolChoice(mode="tool", name="größe"))
    assert written[1] in json.dumps(cases.read_choice(talk.sent(forced)))


@pytest.mark.parametrize(("cases", "policy", "origin", "parts", "kept"), list_rows(CASES, "reasoning"))
def test_reasoning_goes_back_only_where_it_can_be_read(cases, policy, origin, parts, kept):
    talk = cases.talk
    model = replace(talk.model, endpoint=replace(talk.model.endpoint, reasoning=policy))
    line = (user("x"), talk.assistant(*parts, Text(text="so"), origin=origin))
    turn = cases.read_turn(talk.written(*line, model=model))
    assert turn == list(kept)


@pytest.mark.parametrize(("cases", "media", "block"), list_rows(CASES, "media"))
def test_media_go_out_as_far_as_the_wire_can_carry_them(cases, media, block):
    found = cases.read_media(cases.talk.written(user("See:", media)))[1]
    assert block in found["text"] if isinstance(block, str) else found == block


@pytest.mark.parametrize(("cases", "result", "text"), list_rows(CASES, "outcomes"))
def test_what_came_of_a_call_is_told_in_words(cases, result, text):
    line = (user("x"), cases.talk.assistant(call("c1", "t1")), results(result))
    request = cases.talk.ask(*line)
    ((_, told),) = cases.read_results(cases.talk.sent(request))
    assert told == text
    if cases.are_outcomes_read:
        (read,) = cases.talk.codec.decode_request(cases.talk.codec.encode(request)).messages[2].results
        assert (read.outcome, read.text) == (result.outcome, result.text)


@for_families
def test_whatever_the_line_it_is_legal_and_what_is_kept_changes_nothing(cases):
    """Seeded: the number of a failing try is enough to see it again."""
    talk = cases.talk
    for number in range(800):
        random = Random(number)
        line = make_line(random, talk.own)
        policy = random.choice(("signed", "may_echo", "must_echo", "strip"))
        model = replace(talk.model, endpoint=replace(talk.model.endpoint, reasoning=policy))
        kept = talk.codec.new_history()
        for count in range(len(line) + 1):
            request = talk.ask(*line[:count], model=model)
            encoded = talk.codec.encode(request, kept)
            assert encoded == talk.codec.encode(request), number
            assert list(cases.complain(json.loads(encoded.body))) == [], number


# As a server reads it


@for_families
def test_what_is_no_request_is_refused_as_the_provider_would(cases):
    nested = b'{"messages":[],"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    for path, body, expected in (
        *((path, b"{}", ("not_found", 404)) for path in cases.other_paths),
        *((cases.path, body, ("invalid", 400)) for body in (b"{", b"[]", nested, *cases.no_requests)),
    ):
        with pytest.raises(ProviderError) as refused:
            cases.talk.codec.decode_request(HttpRequest(path=path, body=body))
        failure = refused.value.failure
        assert (failure.kind, failure.status) == expected, (path, body[:99])
