"""The tables of `bridle cost` and `bridle show --as cache` fit the screen and keep what tells their rows apart."""

import asyncio
import os
import re

import pytest

from bridle import Agent, tool
from bridle.cli.main import main
from tests.suite.terminal import open_terminal

MODEL = "sim:anthropic/claude-sonnet-5-5"


@tool(effect="read")
def look(city: str) -> str:
    """Look at a city."""
    return f"{city} is fine"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A log with a run inside a tool, whose session has a long name."""
    path = str(tmp_path_factory.mktemp("costs") / "log.db")
    inner = Agent(MODEL, tools=[look], name="weather")
    outer = Agent(MODEL, tools=[inner.as_tool(name="ask_about_weather", description="Ask.")], store=path)
    call = '{"prompt": "!call look {\\"city\\": \\"Oslo\\"}\\n!then\\n!say Fine."}'

    async def fill():
        await outer.run(f"!call ask_about_weather {call}\n!then\n!say ok", session="s")
        await outer.store.close()

    asyncio.run(fill())
    return path


def lines(capsys, *words):
    assert main([*words]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize(
    "words",
    [
        ["cost"],
        ["cost", "s"],
        ["cost", "--by", "tool"],
        ["cost", "--cache"],
        ["cost", "--cache", "--by", "model"],
    ],
    ids=" ".join,
)
def test_tables_fit_the_screen(monkeypatch, capsys, path, words, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    assert max(map(len, lines(capsys, *words, "--store", path))) <= columns


def test_the_number_of_a_call_is_never_cut(monkeypatch, capsys, path):
    monkeypatch.setenv("COLUMNS", "80")
    rows = lines(capsys, "cost", "s", "--store", path)[1:-2]
    assert [re.search(r"(\d\.\d#\d) +1 ", row)[1] for row in rows] == ["1.1#1", "1.2#1", "1.1#1", "1.2#1"]
    assert all("… " in row for row in rows[2:])
    monkeypatch.setenv("COLUMNS", "120")
    assert not any("…" in row for row in lines(capsys, "cost", "s", "--store", path)), "there is room for all"


def test_tools_have_shares_of_the_total(capsys, path):
    head, *rows, total, simulated = lines(capsys, "cost", "--by", "tool", "--store", path)
    assert simulated == "simulated: no real model was asked, nothing was paid"
    assert head.split() == ["calls", "tokens", "dollars", "share"]
    assert {row.split()[0] for row in rows} == {"(conversation)", "ask_about_weather", "look"}
    shares = [int(row.rsplit(maxsplit=1)[1].rstrip("%")) for row in rows]
    assert abs(sum(shares) - 100) <= len(rows)
    assert total.split()[0] == "total"
    assert total.endswith("100%")


def test_errors_are_wrapped_between_words_on_a_terminal(tmp_path):
    (tmp_path / "log.db").write_text("this is no database")
    env = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "xterm"}
    with open_terminal("cost", "--store", "log.db", cwd=tmp_path, env=env, columns=60) as terminal:
        assert terminal.wait_for_end() == 2
        shown = [line for line in terminal.screen() if line]
    assert max(len(line) for line in shown if "/" not in line) <= 60  # a path is one word
    assert "it is not a database, or its start is damaged; choose another path" in " ".join(shown)


def test_the_cache_takes_the_keys_that_it_has(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    Agent("sim:", store="log.db").run_sync("hello")
    assert main(["cost", "--cache", "--by", "day"]) == 2
    assert "session, agent, tenant, model; not by day" in capsys.readouterr().err
    assert main(["cost", "--cache", "--csv"]) == 2
    assert "not --csv" in capsys.readouterr().err
    assert main(["cost", "--cache", "--by", "agent", "--json"]) == 0
    assert "hit_rate" in capsys.readouterr().out
