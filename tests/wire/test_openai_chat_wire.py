"""Recorded exchanges on Chat Completions: what only this family has (the rest: `test_recorded_traffic.py`)."""

import json

from msgspec.structs import replace

from bridle.ports.codec import HttpRequest
from bridle.testing.wire.check_recording import judge_recording
from tests.wire.traffic import CHAT


def test_what_is_changed_on_purpose_is_told_from_a_loss():
    calls = [{"id": name, "type": "function", "function": {"name": "f", "arguments": given}} for name, given in (
        ("a", "{}"), ("b", '{"x": 1}'))]  # fmt: skip
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    answer = {"role": "tool", "tool_call_id": "a", "content": "one"}
    lines = {
        "a call that is not answered": [asked, answer],
        "a result that names no call": [asked, {"role": "tool", "content": "one"}],
        "a result nobody asked for": [
            asked,
            answer,
            {**answer, "tool_call_id": "b"},
            {**answer, "tool_call_id": "c"},
        ],
        "two results of one call": [asked, answer, answer, {**answer, "tool_call_id": "b"}],
        "half the arguments": [
            {**asked, "tool_calls": [{**calls[0], "function": {"name": "f", "arguments": '{"x'}}]},
            answer,
        ],
    }
    recording = CHAT.recordings[0]
    for name, messages in lines.items():
        body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}, *messages]}).encode()
        request = HttpRequest(path="/v1/chat/completions", body=body)
        found = judge_recording(CHAT.codec, replace(recording, request=request), slices=())
        assert found.request, name
        assert found.reason, (name, found.request)
