"""Recorded exchanges on the Responses wire: what only this family has (the rest: `test_recorded_traffic.py`)."""

from msgspec.structs import replace

from bridle.testing.wire.check_recording import decode_recording
from bridle.values.errors import ProviderError
from bridle.values.message import Reasoning, Reply
from tests.wire.traffic import RESPONSES
from tests.wire.wire import UNRECORDED

SHORTENED = {"resp-vercel-01c39166c2-00"}
"""Streams whose deltas were shortened by hand after recording."""


def test_what_was_shown_is_what_was_said():
    for recording in RESPONSES.recordings:
        if recording.body[:1] == b"{" or recording.status != 200:
            continue
        decoder = RESPONSES.codec.new_decoder(RESPONSES.asked, 200, recording.headers)
        try:
            shown = "".join(delta.text for delta in decoder.feed(recording.body))
        except ProviderError:
            continue
        assert decoder.partial_text == shown, recording.id
        reply = decode_recording(RESPONSES.codec, RESPONSES.asked, recording)
        # A stream taken up again in its middle shows only the rest.
        if (
            isinstance(reply, Reply)
            and b"response.created" in recording.body
            and recording.id not in SHORTENED
        ):
            assert shown == reply.text, recording.id


def test_where_proof_is_asked_for_a_turn_goes_back_whole_or_without_ids():
    """The provider's four complaints about replayed items, turned into checks over all recorded replies."""
    strict = replace(
        RESPONSES.asked.model, endpoint=replace(RESPONSES.asked.model.endpoint, reasoning="signed")
    )
    whole = bare = 0
    for recording, reply in RESPONSES.replies:
        items = RESPONSES.send_back(reply, strict)
        thoughts = [place for place, item in enumerate(items) if item["type"] == "reasoning"]
        assert all(items[place].get("encrypted_content") for place in thoughts), recording.id
        assert not items or items[-1]["type"] != "reasoning", recording.id
        if any(isinstance(part, Reasoning) for part in reply.parts[:-1]):
            whole += bool(thoughts)
            bare += not thoughts
            named = [item for item in items if "id" in item and item["type"] != "mcp_approval_request"]
            assert thoughts or not named, recording.id
    assert whole > RESPONSES.require(100, simulated=20)
    assert bare > 100 or UNRECORDED
