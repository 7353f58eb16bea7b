"""`bridle check lock`: an unintended change of the stable prompt prefix fails."""

import json
import os
import subprocess
import sys

import pytest

from bridle.cli.main import main

APP = '''
from bridle import Agent, tool

print("loading")

@tool(effect="read")
def look(at: int, why: str = "") -> str:
    """Look at one place."""
    return str(at)

@tool(effect="read")
def weigh(at: int) -> int:
    """Weigh one place."""
    return at

agent = Agent("sim:", tools=[{tools}], instructions="""{words}""")
'''


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def app(home, tools="look, weigh", words="Be kind.\nBe brief."):
    (home / "app.py").write_text(APP.format(tools=tools, words=words))


def test_what_is_locked_passes_the_check(home, capsys):
    app(home)
    assert main(["check", "lock", "app.py", "--write"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("app.py:agent  ")
    assert out.endswith("  new\n")
    locked = json.loads((home / "bridle.lock").read_text())["agents"]["app.py:agent"]
    assert "  Be brief." in locked["lines"]
    assert "tool look:" in locked["lines"]
    assert main(["check", "lock", "app.py"]) == 0
    assert "1 agent unchanged since bridle.lock was written" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "shown"),
    [
        ({"words": "Be kind.\nBe quick."}, ["-  Be brief.", "+  Be quick."]),
        ({"tools": "weigh, look"}, ["+tool weigh:", "-tool weigh:"]),
        ({"tools": "look"}, ["-tool weigh:", "-  Weigh one place."]),
    ],
)
def test_a_change_fails_the_check_and_is_shown_until_it_is_accepted(home, capsys, change, shown):
    app(home)
    main(["check", "lock", "app.py", "--write"])
    app(home, **change)
    capsys.readouterr()
    before = (home / "bridle.lock").read_bytes()
    assert main(["check", "lock", "app.py"]) == 1
    out, err = capsys.readouterr()
    assert set(shown) <= set(out.splitlines())
    assert "accept it with `bridle check lock FILE --write`" in err
    assert (home / "bridle.lock").read_bytes() == before
    assert main(["check", "lock", "app.py", "--write"]) == 0
    assert capsys.readouterr().out.endswith("  changed\n")
    assert main(["check", "lock", "app.py"]) == 0


def test_another_hash_seed_locks_the_same(home):
    app(home)
    written = set()
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-m", "bridle.cli.main", "check", "lock", "app.py", "--write"],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
        )
        written.add((home / "bridle.lock").read_bytes())
    assert len(written) == 1


def test_an_agent_that_is_gone_or_not_locked_fails_the_check(home, capsys):
    app(home)
    main(["check", "lock", "app.py", "--write"])
    (home / "other.py").write_text('from bridle import Agent\nbot = Agent("sim:", instructions="Hi.")\n')
    assert main(["check", "lock", "app.py", "other.py"]) == 1
    assert "+  Hi." in capsys.readouterr().out
    assert main(["check", "lock", "other.py"]) == 1


def test_wrong_things_are_one_line(home, capsys):
    (home / "empty.py").write_text("")
    app(home)
    assert main(["check", "lock", "app.py"]) == 2
    assert "there is no bridle.lock" in capsys.readouterr().err
    assert main(["check", "lock", "empty.py", "--write"]) == 2
    assert "has no agents" in capsys.readouterr().err
    (home / "bridle.lock").write_text("{")
    assert main(["check", "lock", "app.py"]) == 2
    assert "cannot be read" in capsys.readouterr().err
    main(["check", "lock", "app.py", "--file", "mine.lock", "--write"])
    text = (home / "mine.lock").read_text()
    (home / "mine.lock").write_text(text.replace("Be brief.", "Be long."))
    capsys.readouterr()
    assert main(["check", "lock", "app.py", "--file", "mine.lock"]) == 2
    assert "edited by hand" in capsys.readouterr().err


def test_locking_one_file_keeps_the_entries_of_another(home, capsys):
    app(home)
    (home / "other.py").write_text(APP.format(tools="look", words="Be short."))
    assert main(["check", "lock", "app.py", "--write"]) == 0
    assert main(["check", "lock", "other.py", "--write"]) == 0
    assert [*json.loads((home / "bridle.lock").read_text())["agents"]] == ["app.py:agent", "other.py:agent"]
    assert main(["check", "lock", "app.py"]) == 0
    assert main(["check", "lock", "./other.py"]) == 0
    app(home, words="Be long.")
    assert main(["check", "lock", "other.py"]) == 0, "another file's agents are not judged"
    assert main(["check", "lock", "app.py"]) == 1


@pytest.mark.parametrize("version", [0, 2])
def test_a_lock_file_of_another_version_is_refused_and_stays(home, capsys, version):
    app(home)
    assert main(["check", "lock", "app.py", "--write"]) == 0
    lock = home / "bridle.lock"
    text = lock.read_text()
    assert json.loads(text)["version"] == 1
    lock.write_text(other := text.replace('"version": 1', f'"version": {version}'))
    for command in (["check", "lock", "app.py"], ["check", "lock", "app.py", "--write"]):
        capsys.readouterr()
        assert main(command) == 2
        assert (
            f"has version {version}, this Bridle reads version 1; upgrade Bridle" in capsys.readouterr().err
        )
        assert lock.read_text() == other
