"""`bridle chat --toolkit` and `bridle run --toolkit` in an empty folder."""

import json
import os
import sys
from pathlib import Path

import pytest

from bridle.sandbox.local import MECHANISMS, find_problem
from tests.suite.command import bridle
from tests.suite.terminal import open_terminal

needs_sandbox = pytest.mark.skipif(
    all(find_problem(each) for each in MECHANISMS), reason="no sandbox works here"
)


@pytest.fixture
def place(tmp_path):
    for name in ("home", "work"):
        (tmp_path / name).mkdir()
    return tmp_path


def variables(place):
    return {
        "HOME": str(place / "home"),
        "BRIDLE_STORE": str(place / "home" / "log.db"),
        "TERM": "dumb",
        "PATH": os.environ["PATH"],
    }


def call(name, **arguments):
    return f"!call {name} {json.dumps(arguments)}"


@needs_sandbox
def test_a_person_approves_a_diff_and_a_command_and_the_work_is_done(place):
    with open_terminal(
        "chat", "--toolkit", "-m", "sim:", cwd=place / "work", env=variables(place)
    ) as terminal:
        terminal.wait_for("> ")
        terminal.type(call("write_file", path="hello.py", content="print('hello')\n") + "\r")
        terminal.wait_for("+print('hello')")
        terminal.wait_for("leave it open and stop here: ")
        assert not (place / "work" / "hello.py").exists()
        terminal.type("y\r")
        terminal.wait_for("cached")
        terminal.wait_for("> ")
        terminal.type(call("shell", command="python hello.py; ls -a $HOME") + "\r")
        terminal.wait_for("leave it open and stop here: ")
        terminal.type("y\r")
        terminal.wait_for("cached")
        terminal.wait_for("> ")
        terminal.type(call("read_file", path="hello.py") + "\r")  # reading needs no approval
        terminal.wait_for("cached")
        terminal.wait_for("> ")
        terminal.type("/exit\r")
        assert terminal.wait_for_end() == 0
    assert (place / "work" / "hello.py").read_text() == "print('hello')\n"


@needs_sandbox
def test_a_program_allows_what_it_names_and_resumes_with_the_same_tools(place):
    work, env = place / "work", variables(place)
    prompt = call("write_file", path="a.txt", content="a\n")
    denied = bridle("run", "--toolkit", "-m", "sim:", prompt, cwd=work, **env)
    assert denied.code == 0 and not (work / "a.txt").exists()
    done = bridle("run", "--toolkit", "--yes", "--json", "-m", "sim:", prompt, cwd=work, **env)
    assert done.code == 0 and (work / "a.txt").read_text() == "a\n"
    session = json.loads(done.out)["session"]
    other = bridle(
        "run",
        "--toolkit",
        "--workspace",
        str(work),
        "--yes",
        "-m",
        "sim:",
        call("shell", command="ls; id -u"),
        cwd="/",
        **env,
    )
    assert other.code == 0
    undone = bridle("session", "compensate", session, "--toolkit", "--yes", cwd=work, **env)
    assert undone.code == 0 and not (work / "a.txt").exists()


def test_options_of_the_toolkit_need_it_and_a_bad_place_is_refused(place):
    env = variables(place)
    for words in (["--allow-host", "x.org"], ["--no-sandbox"], ["--workspace", "."]):
        assert f"{words[0]} needs --toolkit" in bridle("run", "hi", "-m", "sim:", *words, **env).err
    words = ("run", "--toolkit", "--no-sandbox", "hi", "-m", "sim:")  # type: ignore[assignment]
    assert "holds your home folder" in bridle(*words, cwd=place / "home", **env).err
    inside = bridle(*words, "--store", "log.db", cwd=place / "work", **env)
    assert inside.code == 2 and "choose a store outside of" in inside.err
    assert bridle(*words, cwd=place / "work", **env).code == 0


def test_without_a_sandbox_nothing_starts_unless_the_user_says_so(place):
    """No mechanism on the path, and a system without namespaces: simulated by an interpreter that cannot unshare."""
    script = (
        "import sys; from bridle.sandbox import local; from bridle.cli.main import main;"
        "local._problems.update(bubblewrap='bwrap is not installed', namespaces='no Landlock');"
        "sys.exit(main(sys.argv[1:]))"
    )
    Path(place / "run.py").write_text(script)
    for words, code, shown in (
        ((), 2, "apt-get install bubblewrap"),
        (("--no-sandbox", "--yes"), 0, ""),
    ):
        with open_terminal(
            "run", "--toolkit", *words, "-m", "sim:", call("shell", command="id"),
            cwd=place / "work", env=variables(place), program=[sys.executable, str(place / "run.py")], columns=400,
        ) as terminal:  # fmt: skip
            assert terminal.wait_for_end() == code
            assert shown in terminal.seen
