"""The scripts of `bridle completion`, each in its shell: bash and zsh on a terminal, by pressing Tab."""

import os
import shutil
import subprocess
import sys

import pytest

from bridle import Agent
from tests.suite.command import bridle
from tests.suite.terminal import open_terminal

COMPLETIONS = {
    "bridle ru": "bridle run",
    "bridle --vers": "bridle --version",
    "bridle help doc": "bridle help doctor",
    "bridle run --eff": "bridle run --effort",
    "bridle sessions --lim": "bridle sessions --limit",
    "bridle show run --as ti": "bridle show run --as timeline",
    "bridle models --sort pr": "bridle models --sort price",
    "bridle models --sort=pr": "bridle models --sort=price",
    "bridle completion fi": "bridle completion fish",
    "bridle memory rem": "bridle memory remove",
    "bridle run -m sim: --tool-c": "bridle run -m sim: --tool-calls",
    "bridle run -m mine:on": "bridle run -m mine:only-model",
    "bridle chat --fallback mine:": "bridle chat --fallback mine:only-model",
    "bridle show tue": "bridle show tuesday",
    "bridle run --session tue": "bridle run --session tuesday",
    "bridle session diff a tue": "bridle session diff a tuesday",
    "bridle session ex": "bridle session export",
    "bridle session export tue": "bridle session export tuesday",
    "bridle session fork tue --last": "bridle session fork tue --last-good",
    "bridle show tue --as raw --cur": "bridle show tue --as raw --curl",
    "bridle approvals rej": "bridle approvals reject",
    "bridle run --tools own_t": "bridle run --tools own_tools.py",
    "bridle run --nothing-like-thi": "bridle run --nothing-like-thi",
}
BASH_SETTINGS = """
PS1='ready> '
source completion.bash
show_line() { printf '<%s>\\n' "${READLINE_LINE% }"; }
bind -x '"\\C-t": show_line'
"""
ZSH_SETTINGS = """
PS1='ready> '
autoload -Uz compinit
{load}
show_line() {{ print -r -- "<${{BUFFER% }}>" }}
zle -N show_line
bindkey '^T' show_line
"""
ZSH_LOADS = {
    "function": "fpath=($PWD/functions $fpath); compinit -u -D",
    "sourced": "compinit -u -D; source functions/_bridle",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A project with two sessions and a model; the id of one session is a command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [*os.environ]:
        if name.startswith("BRIDLE_"):
            monkeypatch.delenv(name)
    (tmp_path / "own_tools.py").write_text("")
    (tmp_path / "own.toml").write_text(
        '[endpoints.mine]\nfamily = "openai_chat"\nbase_url = "http://127.0.0.1:9"\nmodels = ["mine"]\n'
        "[models.mine.ids.only-model]\ncontext_tokens = 9000\n"
    )
    (tmp_path / "bridle.toml").write_text('store = "log.db"\nmodels = "own.toml"\n')
    for session in ("tuesday", "$(touch pwned)"):
        Agent("sim:", store="log.db").run_sync("hello", session=session)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "bridle").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m bridle.cli.main "$@"\n')
    (programs / "bridle").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TERM", "xterm")
    return tmp_path


def find_shell(name):
    return shutil.which(name) or pytest.skip(f"{name} is not installed")


def write_script(shell, path):
    code, script, err = bridle("completion", shell)
    assert (code, err) == (0, "")
    path.parent.mkdir(exist_ok=True)
    path.write_text(script)


def press_tab(terminal, line):
    """The line after Tab; `\\x14` shows it and `\\x15` removes it."""
    terminal.type(f"{line}\t\x14")
    terminal.wait_for("<")
    completed = terminal.wait_for(">").removesuffix(">")
    terminal.type("\x15")
    return completed


def check_on_terminal(folder, program):
    with open_terminal(program=program, cwd=folder, env=os.environ, columns=200) as terminal:
        terminal.wait_for("ready> ")
        assert {line: press_tab(terminal, line) for line in COMPLETIONS} == COMPLETIONS
        press_tab(terminal, "bridle show ")
        assert "$(touch pwned)" not in terminal.seen
        (folder / "bridle.toml").write_text("nonsense = 1\n")
        assert press_tab(terminal, "bridle show tue") == "bridle show tue"
        assert "bridle:" not in terminal.seen and "nonsense" not in terminal.seen
    assert not (folder / "pwned").exists()


@pytest.mark.slow
def test_bash_completes(folder):
    program = find_shell("bash")
    write_script("bash", folder / "completion.bash")
    (folder / "settings").write_text(BASH_SETTINGS)
    check_on_terminal(folder, (program, "--noprofile", "--rcfile", "settings", "-i"))


@pytest.mark.parametrize("load", ZSH_LOADS)
def test_zsh_completes(folder, monkeypatch, load):
    program = find_shell("zsh")
    write_script("zsh", folder / "functions" / "_bridle")
    (folder / ".zshrc").write_text(ZSH_SETTINGS.format(load=ZSH_LOADS[load]))
    monkeypatch.setenv("ZDOTDIR", str(folder))
    check_on_terminal(folder, (program, "-d", "-i"))


def test_fish_completes(folder):
    program = find_shell("fish")
    write_script("fish", folder / "completion.fish")

    def list_offers(line):
        asked = ["--no-config", "-c", "source completion.fish; complete -C $argv[1]", line]
        done = subprocess.run([program, *asked], capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return [offer.split("\t")[0] for offer in done.stdout.splitlines()]

    for line, completed in COMPLETIONS.items():
        assert list_offers(line) == ([completed.split()[-1]] if completed != line else []), line
    assert list_offers("bridle show ") == ["tuesday"]
    assert list_offers("bridle models --sort ") == ["context", "name", "price", "table"]
    (folder / "bridle.toml").write_text("nonsense = 1\n")
    assert list_offers("bridle show tue") == []
    assert not (folder / "pwned").exists()


def test_candidates_are_words_that_no_shell_expands(folder):
    assert bridle("candidates", "sessions") == (0, "tuesday\n", "")
    assert "mine:only-model" in bridle("candidates", "models").out.split()
    assert "candidates" not in bridle("help", "--all").out
