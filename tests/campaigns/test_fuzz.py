"""Mutated replies of every family decode to a reply or a declared failure, in time linear in their size.

Recorded replies (see `wire.py`) and the simulator's, whole and streamed, changed in their JSON, in their bytes, or in both.
Seeded; BRIDLE_CAMPAIGN multiplies the number of tries.  A failure names its seed and what was changed, and

    python -m tests.campaigns.run_campaign fuzz COUNT FROM_SEED [FAMILY …]

tries as many for each family, with seeds of its own, and says how far it is.
"""

import random
import sys
import time
from collections import Counter
from typing import Any

import pytest

from bridle.providers import load_codec
from bridle.providers.wire.eventstream import CONTENT_TYPE
from bridle.sim.simulator import Simulator
from bridle.values.base import Value
from bridle.values.errors import Failure, ProviderError
from bridle.values.message import Reply
from bridle.values.model import Endpoint, Model
from bridle.values.request import Request
from tests.campaigns.mutated_replies import mutate_beats, places_of, repeater
from tests.sim.sim_families import question, send_request
from tests.suite.campaign import list_seeds
from tests.suite.growth import assert_growth, measure_slowness
from tests.wire.wire import FALLBACK, UNRECORDED, corpus

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
          b'"type"', b"\\ud800", b"}", b"]", b'{"error":{"message":"x"}}', b"[DONE]", b"[" * 2_000]  # fmt: skip
PROMPTS = (
    "!say one two three",
    '!think hm\n!say so\n!call look {"city": "Oslo"}\n!call look {"city": "Rome"}',
    '!call look {"city": "Paris"}\n!truncate',
    "!say no\n!stop refused",
)
STEPS = (7, 61, 1_000, 1_000_000)
FEEDS_MAX = 300
"""Smaller slices of a longer reply show nothing more, and take long."""
SLICED_EVERY = 3
GROWN_EVERY = 400
GROWN_BYTES, GROWTH = 60_000, 4
RATIO_MAX = 9.0
"""Of two times, for bytes of which there are four times as many; a time that grows with the square is 16."""
SECONDS_GROWN_MIN = 0.02
SECONDS_MIN, SECONDS_PER_BYTE, SECONDS_PER_FEED = 0.002, 2e-6, 6e-5
"""What one reply may take, beyond which it is an outlier: several times what replies of its kind take."""


class Original(Value, kw_only=True):
    """A reply as it was, in pieces that can be changed."""

    id: str
    status: int
    headers: dict[str, str]
    beats: tuple[bytes, ...]
    places: list[int]


def originals(family: str) -> list[Original]:
    """The recorded replies that are not too long, and replies of the simulator."""
    found = [
        (r.id, r.status, r.headers, beats_of(r.body, r.headers)) for r in corpus(FILES[family]) if is_small(r)
    ]
    for prompt in PROMPTS:
        for stream in (True, False):
            timeline = send_request(Simulator(), question(family, prompt, stream=stream))
            headers = {name.lower(): value for name, value in timeline.headers}
            beats = [beat for beat in timeline.steps if isinstance(beat, bytes)]
            found.append((f"{prompt!r}, {stream=}", timeline.status, headers, beats))
    return [
        Original(id=id_, status=status, headers=headers, beats=tuple(beats), places=places_of(beats))
        for id_, status, headers, beats in found
    ]


def is_small(recording) -> bool:
    return 0 < len(recording.body) <= BODY_BYTES_MAX


def beats_of(body: bytes, headers: dict[str, str]) -> list[bytes]:
    """A body in its natural pieces: the events of a stream, or itself."""
    if headers.get("content-type", "").startswith(CONTENT_TYPE):
        beats, at = [], 0
        while at < len(body):
            length = int.from_bytes(body[at : at + 4]) or len(body)
            beats.append(body[at : at + length])
            at += length
        return beats
    if body.lstrip()[:1] in (b"{", b"["):
        return [body]
    end = b"\r\n\r\n" if b"\r\n\r\n" in body else b"\n\n"
    pieces = body.split(end)
    return [piece + end for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def damage_bytes(body: bytes, chance: random.Random) -> bytes:
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


def change_reply(original: Original, chance: random.Random, changes: list[str]) -> bytes:
    body: Any = original.beats
    kind = chance.random()
    if kind < 0.75:
        body = mutate_beats(body, original.places, chance, changes)
    if kind < 0.6:
        return b"".join(body)
    changes.append("bytes")
    return damage_bytes(b"".join(body), chance)


class Fuzzing:
    """Tries changed replies of one family, and counts what comes out."""

    def __init__(self, family: str) -> None:
        self._codec = load_codec(family)
        self._request = Request(model=Model(id="m", endpoint=Endpoint(name=family, family=family)))
        self._originals = originals(family)
        self.ends: Counter[str] = Counter()
        self.slowest = 0.0

    def decoded(self, original: Original, body: bytes, step: int) -> Reply | Failure:
        decoder = self._codec.new_decoder(self._request, original.status, original.headers)
        try:
            for at in range(0, len(body), step):
                list(decoder.feed(body[at : at + step]))
            decoder.partial_text.encode()
            assert decoder.partial_usage.total >= 0
            reply = decoder.close()
        except ProviderError as error:
            return error.failure
        assert isinstance(reply, Reply)
        return reply

    def timed(self, original: Original, body: bytes, step: int) -> tuple[float, Reply | Failure]:
        begun = time.thread_time()
        found = self.decoded(original, body, step)
        return time.thread_time() - begun, found

    def attempt(self, seed: int) -> None:
        chance = random.Random(seed)
        original = chance.choice(self._originals)
        changes: list[str] = []
        try:
            body = change_reply(original, chance, changes)
            steps = [step for step in STEPS if len(body) <= step * FEEDS_MAX]
            step = chance.choice(steps)
            seconds, found = self.timed(original, body, step)
            self.ends[type(found).__name__] += 1
            self._judge_time(original, body, step, seconds)
            if seed % SLICED_EVERY == 0:
                other = self.decoded(original, body, chance.choice(steps))
                assert outcome_of(other) == outcome_of(found), (
                    f"sliced otherwise it is {other!r}, and was {found!r}"
                )
            if seed % GROWN_EVERY == 0:
                self._judge_growth(original, chance, changes)
        except Exception as error:
            raise AssertionError(
                f"seed {seed}, {original.id}, changed: {changes}: {error!r:.2000}"
            ) from error

    def _judge_time(self, original: Original, body: bytes, step: int, seconds: float) -> None:
        allowed = SECONDS_MIN + SECONDS_PER_BYTE * len(body) + SECONDS_PER_FEED * (len(body) / step)
        if seconds > allowed:
            # The machine may be slow or busy: only what is slow each time, beside a plain loop, is slow.
            allowed *= measure_slowness()
            seconds = min(self.timed(original, body, step)[0] for _ in range(9))
        assert seconds <= allowed, f"{len(body):,} bytes took {seconds:.4f} s"
        self.slowest = max(self.slowest, seconds / allowed)

    def _judge_growth(self, original: Original, chance: random.Random, changes: list[str]) -> None:
        """One event, or one member of a list, many times: four times as many take four times as long."""
        grow = grower(original, chance, changes)
        step = chance.choice((1_000, 1_000_000))
        bodies = {times: grow(times) for times in (1, GROWTH)}
        if min(self.timed(original, bodies[GROWTH], step)[0] for _ in range(3)) > SECONDS_GROWN_MIN:
            changes.append(f"fed by {step}")
            assert_growth(
                lambda times: lambda: self.decoded(original, bodies[times], step), 1, GROWTH, RATIO_MAX
            )


def outcome_of(found: Reply | Failure) -> object:
    """What must not depend on slices: a reply; of a failure only its kind."""
    return found if isinstance(found, Reply) else found.kind


def grower(original: Original, chance: random.Random, changes: list[str]):
    """A function that gives the reply with one piece of it repeated to so many times GROWN_BYTES."""
    beats, places = original.beats, original.places
    if not places:
        return lambda times: b"".join(beats) * times
    at = chance.choice(places)
    if len(places) > 1 and chance.random() < 0.6:
        changes.append(f"event {at} many times")
        many = max(1, GROWN_BYTES // len(beats[at]))
        return lambda times: b"".join((*beats[:at], *beats[at : at + 1] * (many * times), *beats[at + 1 :]))
    repeat, path, size = repeater(beats[at], chance)
    changes.append(f"event {at}: {path} many times")
    many = max(1, GROWN_BYTES // size)
    return lambda times: b"".join((*beats[:at], repeat(many * times), *beats[at + 1 :]))


@pytest.mark.parametrize("family", list(FILES))
def test_changed_replies_never_raise_anything_else_and_take_no_longer(family):
    fuzzing = Fuzzing(family)
    for seed in list_seeds(TRIES):
        fuzzing.attempt(seed)
    assert min(fuzzing.ends["Reply"], fuzzing.ends["Failure"]) > 0, fuzzing.ends


def main(count: int, from_seed: int, families: list[str]) -> None:
    if UNRECORDED:
        print(FALLBACK, flush=True)
    for family in families or FILES:
        fuzzing, begun = Fuzzing(family), time.monotonic()
        for number in range(1, count + 1):
            fuzzing.attempt(from_seed + number - 1)
            if number % 10_000 == 0 or number == count:
                rate = number / (time.monotonic() - begun)
                print(f"{family}: {number:,} of {count:,}, {rate:,.0f}/s, {dict(fuzzing.ends)}, "
                      f"slowest {fuzzing.slowest:.2f} of what is allowed", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
