"""A provider whose replies are valid but for one thing: a value, a part, an event, an id.

`MutatedProvider.mutate` is how many of the next replies are changed; requests are judged by the strict simulator.
"""

import json
import random

from msgspec.structs import replace

from bridle.providers import load
from bridle.providers._eventstream import EventStreamReader, framed_event
from bridle.run.line import Line, locate
from bridle.sim.simulator import Simulator
from bridle.transports.inprocess import InProcessTransport

VALUES = (
    None, 0, -1, 7, 1.5, 10**12, True, "", "x", " ", "\x00", "7", "c1_0", [], {}, [None], [{}], {"type": "junk"}, ["x"],
    {"x": 1}, "💥", "\ud83d", "a b/c:d", "x" * 300,
)  # fmt: skip
PARTS = (
    {"type": "text", "text": "and then"}, {"type": "junk", "junk": {"a": 1}}, {"text": "and then"}, {"junk": 1},
    {"functionResponse": {"name": "look", "response": {"x": 1}}}, {"type": "output_text", "text": 7},
    {"type": "message", "role": "assistant", "id": "", "content": [{"type": "output_text", "text": "more"}]},
    {"type": "compaction", "id": 7, "encrypted_content": 7}, {"type": "compaction", "content": 7}, {"type": "reasoning", "id": ""},
    {"type": "reasoning", "id": "r", "summary": None}, {"type": "thinking", "thinking": None}, {"text": 7},
    {"reasoningContent": None}, {"toolUse": None}, {"functionCall": None}, None, 7, "x",
)  # fmt: skip


class MutatedProvider:
    def __init__(self, model: str, seed: int, clock=None) -> None:
        self.model, self.chance, self.mutate = locate(model), random.Random(seed), 0
        self.simulator = Simulator(clock=clock)
        self.changes: list[str] = []
        self._clock = clock

    def line(self) -> Line:
        codec = load(self.model.endpoint.family)
        transport = InProcessTransport(self.answer, clock=self._clock)
        return Line(model=self.model, codec=codec, transport=transport)

    async def answer(self, outgoing):
        timeline = await self.simulator.answer(outgoing)
        if self.mutate <= 0 or timeline.status != 200:
            return timeline
        self.mutate -= 1
        beats = [beat for beat in timeline.beats if isinstance(beat, bytes)]
        return replace(timeline, beats=tuple(self._changed(beats)))

    def _changed(self, beats: list[bytes]) -> list[bytes]:
        places = [at for at, beat in enumerate(beats) if self._read(beat) is not None]
        for _ in range(self.chance.choice((1, 1, 1, 2, 3))):
            if not places:
                return beats
            at = self.chance.choice(places)
            if len(places) > 1 and self.chance.random() < 0.1:
                beats = [*beats[:at], *([beats[at]] * self.chance.choice((0, 2))), *beats[at + 1 :]]
                self.changes.append(f"event {at} dropped or doubled")
                return beats
            tree = self._read(beats[at])
            beats[at] = self._write(beats[at], self._damage(tree))
        return beats

    def _read(self, beat: bytes):
        """The JSON of one beat; None where there is none to change."""
        try:
            if b"data: " in beat[:200]:
                return json.loads(beat[beat.index(b"data: ") + 6 :])
            if beat[:1] in b"{[":
                return json.loads(beat)
            ((_, data),) = EventStreamReader().feed(beat)
            return json.loads(data)
        except (ValueError, IndexError):
            return None

    def _write(self, beat: bytes, tree) -> bytes:
        data = json.dumps(tree).encode()
        if b"data: " in beat[:200]:
            return beat[: beat.index(b"data: ") + 6] + data + b"\n\n"
        if beat[:1] in b"{[":
            return data
        ((name, _),) = EventStreamReader().feed(beat)
        return framed_event(name.decode(), data)

    def _damage(self, tree):
        chance, nodes = self.chance, list(_nodes(tree, ""))
        if not nodes:
            return chance.choice(VALUES)
        holder, key, path = chance.choice(nodes)
        lists = [(value, path) for value, path in _lists(tree, "")]
        if lists and chance.random() < 0.3:
            found, path = chance.choice(lists)
            new = chance.choice((*PARTS, *found))
            found.insert(chance.randrange(len(found) + 1), new)
            self.changes.append(f"{path} got {new!r:.80}")
        elif chance.random() < 0.2:
            del holder[key]
            self.changes.append(f"{path} deleted")
        else:
            holder[key] = chance.choice(VALUES)
            self.changes.append(f"{path} = {holder[key]!r:.60}")
        return tree


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
