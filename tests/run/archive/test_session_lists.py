"""Lists of sessions by tenant and by the callers who prompted in them."""

import asyncio
import json

import pytest

from bridle import Agent
from bridle.cli.main import main
from bridle.run.archive.sessions import list_sessions_of

PROMPTS = [
    ("a", "acme", "ada"),
    ("b", "acme", "bob"),
    ("shared", "acme", "ada"),
    ("shared", "acme", "bob"),
    ("c", "globex", "ada"),
    ("d", "", ""),
]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.db"
    agent = Agent("sim:", store=path)
    for session, tenant, caller in PROMPTS:
        agent.run_sync("!say hello", session, tenant=tenant, caller=caller)
    asyncio.run(agent.store.close())
    return path


CASES = [
    ({"caller": "ada"}, {"a", "shared", "c"}),
    ({"caller": "bob"}, {"b", "shared"}),
    ({"caller": "bob", "tenant": "globex"}, set()),
    ({"tenant": "acme"}, {"a", "b", "shared"}),
    ({"caller": ""}, {"d"}),
    ({"tenant": ""}, {"d"}),
    ({}, {"a", "b", "c", "d", "shared"}),
]


@pytest.mark.parametrize(("given", "wanted"), CASES)
def test_sessions_are_listed_by_tenant_and_caller(log, given, wanted, capsys):
    agent = Agent("sim:", store=log)
    found = asyncio.run(list_sessions_of(agent.store, 10, **given))
    assert {info.id for info in found} == wanted
    asyncio.run(agent.store.close())
    options = [word for name, value in given.items() for word in (f"--{name}", value)]
    assert main(["sessions", "--json", *options, "--store", str(log)]) == 0
    rows = {row["session"]: (row["tenant"], row["callers"]) for row in json.loads(capsys.readouterr().out)}
    assert rows.keys() == wanted
    assert "shared" not in rows or rows["shared"] == ("acme", ["ada", "bob"])


def test_the_limit_counts_the_sessions_that_match(log, capsys):
    assert main(["sessions", "--json", "--limit", "1", "--caller", "ada", "--store", str(log)]) == 0
    assert [row["session"] for row in json.loads(capsys.readouterr().out)] == ["c"]
    assert main(["sessions", "--caller", "nobody", "--store", str(log)]) == 0
    assert capsys.readouterr().out == "no session matches\n"
