"""Replays every session that a test leaves in its stores, and reports the differences."""

from bridle.core.lineage.replay import LogReplay
from bridle.run.agent import Agent
from bridle.run.replay.log_wire import LogWire
from bridle.stores.memory import MemoryStore
from bridle.values.budget import BUDGET_LOG_PREFIX
from bridle.values.memory import NOTES_PREFIX


def watch_stores(monkeypatch):
    """Lists that grow with every store in memory and with every agent that is made."""
    stores, agents = [], []
    for kind, made in ((MemoryStore, stores), (Agent, agents)):
        monkeypatch.setattr(kind, "__init__", note_made(kind.__init__, made))
    return stores, agents


def note_made(make, made):
    def init(self, *given, **named):
        make(self, *given, **named)
        made.append(self)

    init.__annotations__ = make.__annotations__  # an agent looks at those of its options
    return init


def replay_records(records, agents=()):
    """The replay of a log, and its difference; the agents have the values that a log does not hold."""
    parts = [agent.parts for agent in agents]
    connections = {key: each for own in parts for key, each in own.model_chain.given_connections.items()}
    replay = LogReplay(LogWire(connections, [own.private_extras for own in parts]))
    for record in records:
        difference = replay.apply_record(record)
        if difference is not None:
            return replay, difference
    return replay, None


async def replay_store(store, agents=()):
    """Replay every session of a store: the number of sessions and records, and the differences."""
    sessions = count = 0
    differences = []
    for info in await store.sessions(limit=10_000):
        if info.id.startswith((BUDGET_LOG_PREFIX, NOTES_PREFIX)):
            continue
        records = await store.read(info.id)
        replay, difference = replay_records(records, agents)
        sessions, count = sessions + 1, count + len(records)
        if difference is not None or (records and replay.head != records[-1].hash) or replay.unchecked:
            differences.append((info.id, difference, replay.unchecked))
    return sessions, count, differences
