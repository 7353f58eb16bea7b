"""Recorded exchanges with Bedrock Converse: what only this family has (the rest: `test_recorded_traffic.py`)."""

import json

from bridle.providers.bedrock.parts import decode_part, encode_part
from bridle.values.message import ToolCall, ToolResult
from tests.wire.traffic import BEDROCK, drop_defaults


def test_every_recorded_block_is_written_as_it_was_read():
    """Value for value, whatever our parts show of it."""
    checked = 0
    for recording in BEDROCK.recordings:
        turns = json.loads(recording.request.body).get("messages", []) if recording.request else []
        if recording.body[:1] == b"{" and recording.status == 200:
            turns = [*turns, json.loads(recording.body)["output"]["message"]]
        for turn in turns:
            for block in turn["content"]:
                part = decode_part(block, of_model=turn["role"] == "assistant")
                sent_id = part.wire_id if isinstance(part, ToolCall) else ""
                sent_id = part.call_id if isinstance(part, ToolResult) else sent_id
                again = json.loads(
                    json.dumps(encode_part(part, own=True, sent_id=sent_id, blank=True), default=load_raw)
                )
                assert drop_defaults(again) == drop_defaults(block), recording.id
                checked += 1
    assert checked > BEDROCK.require(900, simulated=200)


def load_raw(value):
    return json.loads(bytes(value))
