"""Every recorded exchange, put to the codec of its wire family: the same checks for all of them. See `wire.py`."""

import json
import re
from random import Random

import pytest
from msgspec.structs import replace

from bridle.sim.families import find_family
from bridle.testing.conformance.codec import decode_slices
from bridle.testing.wire.canonical_requests import CANONICAL_FORMS
from bridle.testing.wire.check_recording import decode_recording, judge_recording
from bridle.values.errors import Failure, MisuseError, ProviderError
from bridle.values.message import Reply, ToolCall
from tests.suite.campaign import scale
from tests.wire.traffic import TRAFFIC, damage_bytes, damage_json, list_changes

DAMAGED_REPLIES, DAMAGED_REQUESTS = scale(2_000), scale(1_500)
CHANGED_SHARE_MAX = 0.01


@pytest.fixture(params=TRAFFIC)
def traffic(request):
    return TRAFFIC[request.param]


@pytest.mark.slow
def test_every_reply_agrees_with_the_reference_decoder_and_nearly_every_request_survives(traffic):
    """In any slices.  A request is changed only for a reason, such as a call that was never answered."""
    recordings = {recording.id: recording for recording in traffic.recordings}
    verdicts = [judge_recording(traffic.codec, recording) for recording in recordings.values()]
    problems = [(found.id, each.description) for found in verdicts for each in found.reply if not each.reason]
    assert [found for found in problems if recordings[found[0]].is_judged] == []
    assert not any("at a time" in problem for _, problem in problems)
    changed = [found for found in verdicts if found.request]
    assert [(found.id, found.request) for found in changed if not found.reason] == []
    assert len(changed) <= CHANGED_SHARE_MAX * len(verdicts), changed
    assert sum(found.was_compared for found in verdicts) > traffic.require(traffic.replies_min, simulated=100)


def test_ids_and_the_reason_of_a_stop_are_the_providers(traffic):
    """They stand in the recorded bytes, and the ids of calls in the order of the calls."""
    compared = 0
    for recording, reply in traffic.replies:
        if b'"bytes":"' in recording.body or not recording.is_judged:
            continue  # events in base64, and examples written by hand
        body = recording.body.decode("utf-8", "replace")
        headers = " ".join(recording.headers.values())
        assert reply.id in body or reply.id in headers, recording.id
        stop_words = reply.stop_detail.partition(":")[0].split()
        if not re.search(r'"finishReason": ?\d', body):  # an old client wrote the number of the reason
            assert all(word.strip("()") in body for word in stop_words), (recording.id, reply.stop_detail)
        places = [body.index(call.wire_id) for call in reply.calls if call.wire_id]
        assert places == sorted(places), recording.id
        compared += 1
    assert compared > 0.9 * traffic.require(traffic.replies_min, simulated=100)


@pytest.mark.parametrize("family", [each for each in TRAFFIC if TRAFFIC[each].is_told_again])
def test_recorded_replies_survive_being_told_again(family):
    """A recorded reply, encoded by the simulated server whole and in pieces, is decoded as the same reply."""
    server, traffic = find_family(family), TRAFFIC[family]
    for recording, reply in traffic.replies:
        for stream in (False, True) if recording.is_judged else ():
            encoded = server.encode_reply(reply, stream=stream)
            again = decode_slices(traffic.codec, reply, encoded, list(encoded.frames))
            assert isinstance(again, Reply), recording.id
            assert drop_invented(again) == drop_invented(reply), (recording.id, stream)


def drop_invented(reply):
    """Without what does not come from the reply: ids and a reason to stop that the provider did not give are made up when it is
    encoded, and why the cache was missed is told by the simulated cache."""
    parts = tuple(replace(part, wire_id="") if isinstance(part, ToolCall) else part for part in reply.parts)
    return replace(reply, id="", stop_detail="", cache_miss_reason="", parts=parts)


def test_recorded_replies_survive_being_sent_back(traffic):
    """A reply, applied and sent again, holds what the provider gave: signatures, ids and all."""
    checked = 0
    for recording, reply in traffic.replies:
        given = traffic.read_given(recording, reply)
        if given is not None:
            assert traffic.send_back(reply) == given, recording.id
            checked += 1
    assert checked > traffic.require(traffic.given_min, simulated=30)


def test_only_what_the_provider_takes_for_equal_goes_unnoticed(traffic):
    """Each member of real requests is taken away, each value changed: the comparison must see it."""
    read_canonical, tried, unnoticed = CANONICAL_FORMS[traffic.family], 0, set()
    for recording in traffic.recordings[:: traffic.every]:
        if recording.request is None or len(recording.request.body) > traffic.request_bytes_max:
            continue
        if not re.search(traffic.path, recording.request.path):
            continue
        body = traffic.prepare_body(json.loads(recording.request.body))
        if body is None:
            continue
        meant = read_canonical(replace(recording.request, body=json.dumps(body).encode()))
        for said, changed in list_changes(body, traffic.prefixed):
            tried += 1
            try:
                form = read_canonical(replace(recording.request, body=json.dumps(changed).encode()))
            except (KeyError, AttributeError, TypeError):
                continue
            if form == meant:
                unnoticed.add(said)
    assert tried > traffic.require(3_000, simulated=1_000)
    assert {said for said in unnoticed - traffic.equal if not traffic.is_equal(said)} == set()


def test_damaged_replies_give_a_reply_or_a_failure(traffic):
    """Seeded: the number of a failing try is enough to repeat it.  What was decoded can be sent and told."""
    recordings = [each for each in traffic.recordings if 0 < len(each.body) < 30_000]
    server, kinds = find_family(traffic.family), set()
    for number in range(DAMAGED_REPLIES):
        random = Random(number)
        recording = random.choice(recordings)
        damaged = replace(recording, body=damage_bytes(recording.body, random))
        found = decode_recording(
            traffic.codec, traffic.asked, damaged, random.choice((None, 7, 61, 300, 1_000))
        )
        assert isinstance(found, Reply | Failure), number
        kinds.add(found.kind if isinstance(found, Failure) else "reply")
        if isinstance(found, Reply):
            traffic.encode_next(found)
            if traffic.is_told_again:
                server.encode_reply(found, stream=number % 2 == 0)
    assert {"reply", "cut", "garbled"} <= kinds


def test_damaged_requests_are_refused_or_can_be_written(traffic):
    """Where a wire allows it, what is read of them means the same when it is written and read once more."""
    asked = [each.request for each in traffic.recordings if each.request is not None]
    asked = [request for request in asked if len(request.body) < 20_000]
    read_canonical, written, refused = CANONICAL_FORMS[traffic.family], 0, 0
    for number in range(DAMAGED_REQUESTS):
        random = Random(number)
        request = random.choice(asked)
        body = json.loads(request.body)
        for _ in range(random.randint(1, 3)):
            body = damage_json(body, random)
        try:
            again = traffic.codec.encode(
                traffic.codec.decode_request(replace(request, body=json.dumps(body).encode()))
            )
        except (ProviderError, MisuseError):  # by the provider's rules, or by ours
            refused += 1
            continue
        written += 1
        if traffic.is_read_again:
            meant = read_canonical(again)
            assert read_canonical(traffic.codec.encode(traffic.codec.decode_request(again))) == meant, number
    assert min(written, refused) > DAMAGED_REQUESTS / 20, (written, refused)
