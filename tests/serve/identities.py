"""A server whose requests have identities: people of two tenants, with sessions of each."""

import asyncio
from contextlib import contextmanager

from bridle import Agent, tool
from bridle.serve.app import make_host_app
from bridle.serve.identity import RIGHTS, Identity
from bridle.stores.memory import MemoryStore
from tests.serve.raw_http import send
from tests.serve.served import serve_by_name

ALL = frozenset(RIGHTS)
PEOPLE = {
    "ann": Identity(caller="ann", tenant="acme", rights=ALL),
    "bob": Identity(caller="bob", tenant="acme", rights=ALL),
    "lead": Identity(caller="lead", tenant="acme", rights=ALL, sessions="tenant"),
    "eve": Identity(caller="eve", tenant="other", rights=ALL, sessions="tenant"),
    "nobody": Identity(caller="nobody", rights=ALL, sessions="tenant"),
    "root": Identity(caller="root", rights=ALL, sessions="all"),
}
"""By their tokens, which are their names."""
SESSIONS = {
    "of-ann": ("acme", "ann"),
    "of-bob": ("acme", "bob"),
    "of-eve": ("other", "eve"),
    "of-none": ("", ""),
}


@tool(effect="write", approve=True)
def pay(usd: int) -> str:
    """Pay, if a person agrees."""
    return f"paid {usd}"


def identify(request):
    return PEOPLE.get(request.headers.get("authorization", "").removeprefix("Bearer "))


def make_shop(store=None, *tools):
    return Agent("sim:", name="shop", tools=[pay, *tools], store=store)


async def fill(store):
    """A session of everyone that waits for an answer."""
    for session, (tenant, caller) in SESSIONS.items():
        await make_shop(store).run('!call pay {"usd": 5}', session, tenant=tenant, caller=caller)


class Door:
    """The server, and requests to it by one of the people."""

    def __init__(self, served, store):
        self.served, self.store = served, store

    def ask(self, who, method, path, body=None, **headers):
        bearer = {"authorization": f"Bearer {who}"} if who else {}
        return send(self.served.url + path, body, {**bearer, **headers}, method)

    def get(self, who, path):
        return self.ask(who, "GET", path)

    def post(self, who, path, body, **headers):
        return self.ask(who, "POST", path, body, **headers)

    def read(self, session, kind):
        """The events of one kind in a session."""
        records = asyncio.run(self.store.read(session))
        return [record.event for record in records if isinstance(record.event, kind)]


@contextmanager
def open_door(identify=identify, agents=None, **options):
    store = MemoryStore()
    asyncio.run(fill(store))
    agents = agents or {"shop": make_shop()}
    with serve_by_name(agents, store, make_host_app, identify=identify, **options) as served:
        yield Door(served, store)
