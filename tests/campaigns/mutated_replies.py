"""Replies that are valid but for one thing: a value, a part, an event, an id; and a provider that gives them.

`MutatedProvider.mutate` is how many of the next replies are changed; requests are judged by the strict simulator.
"""

import json
import random
from base64 import b64decode, b64encode

from msgspec.structs import replace

from bridle.providers import load_codec
from bridle.providers.wire.eventstream import EventStreamReader, encode_event
from bridle.run.model_connection import ModelConnection, find_model_by_name
from bridle.sim.simulator import Simulator
from bridle.transports.inprocess import InProcessTransport
from bridle.values.errors import ProviderError

VALUES = (
    None, 0, -1, 7, 1.5, 10**12, True, "", "x", " ", "\x00", "7", "c1_0", [], {}, [None], [{}], {"type": "junk"}, ["x"],
    {"x": 1}, "💥", "\ud83d", "a b/c:d", "x" * 300, "@deep@",
)  # fmt: skip
DEEP = b"[" * 5_000 + b"]" * 5_000
"""Written where a text says so: deeper than what Python's own writer goes."""
PARTS = (
    {"type": "text", "text": "and then"}, {"type": "junk", "junk": {"a": 1}}, {"text": "and then"}, {"junk": 1},
    {"functionResponse": {"name": "look", "response": {"x": 1}}}, {"type": "output_text", "text": 7},
    {"type": "message", "role": "assistant", "id": "", "content": [{"type": "output_text", "text": "more"}]},
    {"type": "compaction", "id": 7, "encrypted_content": 7}, {"type": "compaction", "content": 7}, {"type": "reasoning", "id": ""},
    {"type": "reasoning", "id": "r", "summary": None}, {"type": "thinking", "thinking": None}, {"text": 7},
    {"reasoningContent": None}, {"toolUse": None}, {"functionCall": None}, None, 7, "x",
)  # fmt: skip
WRAPPED = b'"bytes":'
"""An event of another family's stream, in base64, within an event of this cloud's stream."""


class MutatedProvider:
    def __init__(self, model: str, seed: int, clock=None) -> None:
        self.model, self.chance, self.mutate = find_model_by_name(model), random.Random(seed), 0
        self.simulator = Simulator(clock=clock)
        self.changes: list[str] = []
        self._clock = clock

    def line(self) -> ModelConnection:
        codec = load_codec(self.model.endpoint.family)
        transport = InProcessTransport(self.answer, clock=self._clock)
        return ModelConnection(model=self.model, codec=codec, transport=transport)

    async def answer(self, outgoing):
        timeline = await self.simulator.answer(outgoing)
        if self.mutate <= 0 or timeline.status != 200:
            return timeline
        self.mutate -= 1
        beats = [beat for beat in timeline.steps if isinstance(beat, bytes)]
        return replace(timeline, steps=tuple(self._changed(beats)))

    def _changed(self, beats: list[bytes]) -> list[bytes]:
        return mutate_beats(beats, places_of(beats), self.chance, self.changes)


def places_of(beats) -> list[int]:
    """The beats that hold JSON, which can be changed."""
    return [at for at, beat in enumerate(beats) if read_beat(beat) is not None]


def mutate_beats(beats, places: list[int], chance: random.Random, changes: list[str]) -> list[bytes]:
    """The beats of a reply with one to three things changed; `changes` is told what."""
    beats = list(beats)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        if not places:
            return beats
        at = chance.choice(places)
        if len(places) > 1 and chance.random() < 0.1:
            beats[at : at + 1] = [beats[at]] * chance.choice((0, 2))
            changes.append(f"event {at} dropped or doubled")
            return beats
        tree = read_beat(beats[at])
        if tree is None:
            return beats
        beats[at] = write_beat(beats[at], _damage(tree, chance, changes))
    return beats


def read_beat(beat: bytes):
    """The JSON of one beat; None where there is none to change."""
    if DEEP in beat:
        return None
    try:
        if b"data: " in beat[:200]:
            return json.loads(beat[beat.index(b"data: ") + 6 :])
        if beat[:1] in b"{[":
            return json.loads(beat)
        ((_, data),) = EventStreamReader().feed(beat)
        tree = json.loads(data)
        return json.loads(b64decode(tree["bytes"])) if WRAPPED in data else tree
    except (ValueError, IndexError, ProviderError, RecursionError):
        return None


def write_beat(beat: bytes, tree) -> bytes:
    data = json.dumps(tree).encode().replace(b'"@deep@"', DEEP)
    if b"data: " in beat[:200]:
        return beat[: beat.index(b"data: ") + 6] + data + b"\n\n"
    if beat[:1] in b"{[":
        return data
    ((name, old),) = EventStreamReader().feed(beat)
    if WRAPPED in old:
        data = json.dumps({"bytes": b64encode(data).decode()}).encode()
    return encode_event(name.decode(), data)


def _damage(tree, chance: random.Random, changes: list[str]):
    nodes = list(_nodes(tree, ""))
    if not nodes:
        return chance.choice(VALUES)
    holder, key, path = chance.choice(nodes)
    lists = list(_lists(tree, ""))
    if lists and chance.random() < 0.3:
        found, path = chance.choice(lists)
        new = chance.choice((*PARTS, *found))
        found.insert(chance.randrange(len(found) + 1), new)
        changes.append(f"{path} got {new!r:.80}")
    elif chance.random() < 0.2:
        del holder[key]
        changes.append(f"{path} deleted")
    else:
        holder[key] = chance.choice(VALUES)
        changes.append(f"{path} = {holder[key]!r:.60}")
    return tree


def repeater(beat: bytes, chance: random.Random):
    """One member of a list, or one text, is chosen: a function that repeats it, its path, and its size."""
    nodes = list(_nodes(read_beat(beat), ""))
    chosen = [
        at
        for at, (holder, key, _) in enumerate(nodes)
        if isinstance(holder, list) or isinstance(holder[key], str)
    ]
    if not chosen:
        return lambda times: beat * times, "all of it", len(beat)
    at = chance.choice(chosen)

    def repeat(times: int) -> bytes:
        tree = read_beat(beat)
        holder, key, _ = list(_nodes(tree, ""))[at]
        if isinstance(holder, list):
            holder[key : key + 1] = [holder[key]] * times
        else:
            holder[key] = (holder[key] or "x") * times
        return write_beat(beat, tree)

    holder, key, path = nodes[at]
    return repeat, path, len(json.dumps(holder[key]))


def _nodes(tree, path):
    """Every place in a tree: its holder, its key, and its path in words."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield tree, key, f"{path}.{key}"
        yield from _nodes(value, f"{path}.{key}")


def _lists(tree, path):
    if isinstance(tree, list):
        yield tree, path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from _lists(value, f"{path}.{key}")
