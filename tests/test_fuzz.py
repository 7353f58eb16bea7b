"""Recorded replies of every family, damaged: a reply or a failure comes out, never anything else.

Seeded; BRIDLE_CAMPAIGN multiplies the number of tries, and the seed of a failure is in its message.
"""

import os
import random

import pytest

from bridle.providers import load
from bridle.testing.wire import Recording
from bridle.values.errors import ProviderError
from bridle.values.message import Reply
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request
from wire import corpus

CAMPAIGN = int(os.environ.get("BRIDLE_CAMPAIGN", "1"))
TRIES = 600
FILES = {
    "anthropic": "anthropic",
    "openai_responses": "openai-responses",
    "openai_chat": "openai-chat",
    "gemini": "gemini",
    "bedrock_converse": "bedrock-converse",
}
BODY_BYTES_MAX = 20_000
TOKENS = [b"null", b"{}", b"[]", b'""', b"-1", b"1e999", b"true", b"\x00", b"\xff\xfe", b"\n\n", b"\r\n", b"data: ", b"event: error\n",
          b'"type"', b"\\ud800", b"}", b"]", b'{"error":{"message":"x"}}', b"[DONE]"]  # fmt: skip


def damaged(body: bytes, chance: random.Random) -> bytes:
    data = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        more = chance.randrange(1, 40)
        match chance.randrange(6):
            case 0:
                del data[at : at + more]
            case 1:
                data[at:at] = chance.choice(TOKENS)
            case 2:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 3:
                data[at:at] = data[at : at + more * 4]
            case 4:
                data[at : at + more] = chance.choice(TOKENS)
            case 5:
                del data[at:]
    return bytes(data)


@pytest.mark.parametrize("family", list(FILES))
def test_damaged_replies_never_raise_anything_else(family):
    codec = load(family)
    recordings: list[Recording] = [r for r in corpus(FILES[family]) if 0 < len(r.body) <= BODY_BYTES_MAX]
    request = Request(model=Model(id="m", endpoint=Endpoint(name=family, family=family)))
    ends = {"reply": 0, "failure": 0}
    for seed in range(TRIES * CAMPAIGN):
        chance = random.Random(seed)
        recording = chance.choice(recordings)
        body = damaged(recording.body, chance)
        decoder = codec.decoder(request, recording.status, recording.headers)
        step = chance.choice((7, 100, 5_000))
        try:
            for at in range(0, len(body), step):
                list(decoder.feed(body[at : at + step]))
            decoder.partial.encode()
            assert decoder.counted.total >= 0
            assert isinstance(decoder.close(), Reply)
            ends["reply"] += 1
        except ProviderError:
            ends["failure"] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}, {recording.id}: {error!r}") from error
    assert min(ends.values()) > 0, ends
