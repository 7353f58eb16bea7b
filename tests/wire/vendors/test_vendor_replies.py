"""Replies drawn from the vendors' response types are decoded, and the next request sends them back as they came.

Only `ProviderError` may be raised, whatever the types allow.  What goes back otherwise than it came is in `REASONS`.
"""

import json
import random
from collections import Counter

import pytest

from bridle.values.errors import ProviderError
from tests.suite.campaign import scale
from tests.wire.vendors.known_losses import REASONS, STREAMS, find_differing, find_nearest, is_only_said
from tests.wire.vendors.vendor_replies import (
    BETAS,
    ROOTS,
    decode_reply,
    draw_reply,
    drop_empty_members,
    echoed_in,
    events,
    said_in,
    sent_back,
)
from tests.wire.vendors.vendor_types import type_violations

REPLIES = scale(40, least=60)


def find_losses(family, body):
    """What of a reply does not go back as it came, and for no reason that is known."""
    request, reply = decode_reply(family, json.dumps(body).encode(), "application/json")
    _, following = sent_back(request, reply)
    said = [drop_empty_members(each) for each in said_in(family, body)]
    sent = [drop_empty_members(each) for each in echoed_in(family, following)]
    for each in said:
        if each and each not in sent:
            close = find_nearest(each, sent, said)
            if not any(reason(each, close, said) for reason in REASONS[family]):
                yield each, close


@pytest.mark.parametrize(("family", "root"), [*ROOTS.items(), *BETAS.items()])
def test_replies_by_the_types_go_back_as_they_came(family, root):
    ends = Counter()
    for seed in range(REPLIES):
        body = draw_reply(family, random.Random(f"{root} {seed}"), root)
        try:
            lost = list(find_losses(family, body))
        except ProviderError as error:
            ends[error.failure.kind] += 1
            continue
        assert lost == [], seed
        ends["ok"] += 1
    assert ends["ok"] > REPLIES * 0.9, ends


def test_output_only_members_inside_an_output_do_not_go_back():
    piece = {"outcome": {"type": "exit", "exit_code": 0}, "stdout": "a", "stderr": "", "created_by": "server"}
    ran = {
        "type": "shell_call_output",
        "id": "sho_1",
        "call_id": "c",
        "max_output_length": 9,
        "output": [piece],
    }
    body = {**draw_reply("openai_responses", random.Random(1)), "output": [{**ran, "status": "completed"}]}
    request, reply = decode_reply("openai_responses", json.dumps(body).encode(), "application/json")
    _, following = sent_back(request, reply)
    assert "created_by" not in json.dumps(following)
    assert not [
        wrong for wrong in type_violations("openai_responses", following) if wrong.kind == "unknown member"
    ]


def test_a_compaction_block_without_words_or_signature_is_left_out_where_nobody_asked_for_it():
    """Without the preview that makes such blocks, a request that carries one is refused."""
    words = {"type": "text", "text": "Rome."}
    body = {
        **draw_reply("anthropic", random.Random(1)),
        "content": [{"type": "compaction", "encrypted_content": "e"}, words],
    }
    request, reply = decode_reply("anthropic", json.dumps(body).encode(), "application/json")
    _, following = sent_back(request, reply)
    assert following["messages"][1]["content"] == [words]


def test_a_thought_at_the_end_is_no_loss_beside_one_that_goes_back_without_its_status():
    first = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": "a",
        "status": "completed",
    }
    last = {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "b"}
    body = {**draw_reply("openai_responses", random.Random(1)), "output": [first, CALLED, last]}
    assert not list(find_losses("openai_responses", body))
    _, following = sent_back(*decode_reply("openai_responses", json.dumps(body).encode(), "application/json"))
    assert [item.get("id") for item in following["input"][1:3]] == ["rs_1", "fc_1"]
    assert "rs_2" not in json.dumps(following)


CALLED = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"}
DECLINED = [{"type": "refusal", "refusal": "I will not do the rest."}]
WORDS = [{"type": "output_text", "text": "Half of it:", "annotations": []}]


@pytest.mark.parametrize("content", [DECLINED, [*WORDS, *DECLINED], [*DECLINED, *WORDS]])
@pytest.mark.parametrize("others", [[], [{**CALLED, "status": "completed"}]])
@pytest.mark.parametrize("cut", ["", "max_output_tokens", "content_filter"])
def test_text_of_a_refusal_goes_back_as_a_refusal_beside_any_part(content, others, cut):
    """Also where the reply ends otherwise than as a refusal: in calls, or cut."""
    message = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }
    ended = (
        {"status": "incomplete", "incomplete_details": {"reason": cut}} if cut else {"status": "completed"}
    )
    body = {**draw_reply("openai_responses", random.Random(1)), **ended, "output": [message, *others]}
    request, reply = decode_reply("openai_responses", json.dumps(body).encode(), "application/json")
    _, following = sent_back(request, reply)
    (sent,) = [item for item in following["input"] if item.get("id") == "msg_1"]
    assert sent["content"] == content


@pytest.mark.parametrize("family", ROOTS)
def test_stream_events_in_any_order_raise_nothing_but_provider_errors(family):
    ends = Counter()
    for seed in range(REPLIES):
        try:
            decode_reply(family, events(family, random.Random(seed)), STREAMS[family])
        except ProviderError:
            ends["refused"] += 1
        else:
            ends["read"] += 1
    assert ends["read"] and ends["refused"]


@pytest.mark.parametrize("family", ROOTS)
def test_a_member_that_is_lost_is_found(family):
    """The comparison can fail: what the next request lacks is a loss."""
    found = 0
    for seed in range(40):
        body = draw_reply(family, random.Random(f"{family} {seed}"))
        request, reply = decode_reply(family, json.dumps(body).encode(), "application/json")
        _, following = sent_back(request, reply)
        sent = [drop_empty_members(each) for each in echoed_in(family, following)]
        said = [drop_empty_members(each) for each in said_in(family, body)]
        planted = [{**each, "planted": 1} for each in said if each and each in sent]
        found += len(planted)
        for each in planted:
            close = find_nearest(each, sent, said)
            assert close is not None and "planted" in find_differing(each, close)
            unknown = [reason for reason in REASONS[family] if reason is not is_only_said]
            assert not any(reason(each, close, said) for reason in unknown)
    assert found
