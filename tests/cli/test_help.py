"""The help of the command: complete, narrow enough, with examples that work as they stand."""

import io
import json
import re
import shutil
import subprocess
import sys

import pytest

from bridle.cli.command_table import (
    COMMANDS,
    DEFAULT_SUBCOMMANDS,
    FIRST_COMMANDS,
    GROUPS,
    REPLACED_COMMANDS,
    SUBCOMMANDS,
    list_command_names,
)
from bridle.cli.help_texts import HELP_WIDTH, list_exit_codes, load_help, make_epilog
from bridle.cli.main import main, make_parser, split_command
from tests.suite.command_lines import ENDLESS, NEEDING_A_RUN, split_line, write_named_files

GROUPED = [name for names in GROUPS.values() for name in names]
NAMES = list_command_names()
EXAMPLES = [(name, line) for name in NAMES for line, _ in load_help().examples[name]]


def test_every_command_is_in_one_group_and_has_examples():
    assert sorted(GROUPED) == sorted(COMMANDS)
    assert {name for name, rows in load_help().examples.items() if rows} == {*NAMES}
    assert load_help().exit_codes_of.keys() <= {*NAMES}


@pytest.mark.parametrize("columns", [HELP_WIDTH, 200])
@pytest.mark.parametrize("name", NAMES)
def test_the_help_fits_80_columns_and_ends_with_examples_and_exit_codes(name, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as ended:
        main(["help", *name.split()])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if len(line) > HELP_WIDTH] == []
    assert shown.endswith(make_epilog(name) + "\n")
    for line, _ in load_help().examples[name]:
        assert f"\n  {line}\n" in shown
    for code, meaning in list_exit_codes(name).items():
        assert f"{code} {meaning}" in " ".join(shown.split())


def test_the_help_of_a_subcommand_is_wrapped(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(HELP_WIDTH))
    with pytest.raises(SystemExit):
        main(["check", "wire", "--help"])
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if len(line) > HELP_WIDTH] == []
    assert "examples:" in shown


@pytest.mark.parametrize("words", [[], ["help"], ["--help"], ["-h"]])
def test_bridle_alone_lists_eight_commands_on_one_screen(words, capsys):
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) < 24
    assert [line for line in shown.splitlines() if len(line) > HELP_WIDTH] == []
    assert re.findall(r"^  (\w+) {2,}\S", shown, re.MULTILINE) == list(FIRST_COMMANDS)
    assert len(FIRST_COMMANDS) == 8
    assert "bridle help --all" in shown


def test_help_all_lists_every_command_by_task(capsys):
    assert main(["help", "--all"]) == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if len(line) > HELP_WIDTH] == []
    rows = [
        each for name in GROUPED for each in (name, *(f"{name} {word}" for word in SUBCOMMANDS.get(name, ())))
    ]
    assert re.findall(r"^  (\w+(?: \w+)?) {2,}\S", shown, re.MULTILINE) == rows
    assert 20 <= len(GROUPED) <= 26
    assert re.findall(r"^([a-z ]+):$", shown, re.MULTILINE) == list(GROUPS)


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_an_example_can_be_parsed(name, line):
    command, words = split_command(split_line(line)[0])
    assert command == name
    make_parser(name).parse_args(words)


@pytest.mark.parametrize("group", SUBCOMMANDS)
def test_a_group_lists_its_commands(group, capsys):
    assert main([group, "--help"]) == 0
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if len(line) > HELP_WIDTH] == []
    assert re.findall(rf"^  {group} (\w+) {{2,}}\S", shown, re.MULTILINE) == [*SUBCOMMANDS[group]]
    if group not in DEFAULT_SUBCOMMANDS:
        assert main([group]) == 2
        assert capsys.readouterr().out == shown


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["session", "frok", "s"], "did you mean `bridle session fork`?"),
        (["store", "xyz"], "choose one of: verify, backup, restore, gc, erase"),
        (["check", "app.py"], "choose one of: waiting, prompts, lock, wire"),
    ],
)
def test_a_wrong_second_word_is_refused_with_the_right_one(words, hint, capsys):
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert hint in err


@pytest.mark.parametrize("name", REPLACED_COMMANDS)
def test_an_earlier_name_answers_with_the_new_one(name, capsys):
    assert main([name, "something"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"bridle: `bridle {name}` is now `bridle {REPLACED_COMMANDS[name]}`\n")
    assert split_command(REPLACED_COMMANDS[name].split(",")[0].split())[0] in NAMES


@pytest.fixture
def simulator(tmp_path):
    """Variables that point every vendor's models to a simulator, which records its requests."""
    recording = str(tmp_path / "requests.jsonl")
    command = [sys.executable, "-m", "bridle.cli.main", "sim", "--port", "0", "--json", "--log", recording]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        yield json.loads(running.stdout.readline())["exports"]
        running.terminate()


@pytest.mark.slow
def test_the_examples_work_in_a_folder_with_the_files_they_name(tmp_path, monkeypatch, capsys, simulator):
    for name, value in {**simulator, "HOME": str(tmp_path), "BRIDLE_STORE": str(tmp_path / "log.db")}.items():
        monkeypatch.setenv(name, value)
    write_named_files(tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(words, given=""):
        monkeypatch.setattr("sys.stdin", io.StringIO(given))
        code = main(words)
        out, err = capsys.readouterr()
        return code, out, err

    code, answer, _ = run(["run", "Hello.", "--json"])
    assert code == 0
    session = json.loads(answer)["session"]
    shutil.copy("requests.jsonl", "recordings")
    questions = sum("ID" in split_line(line)[0] for _, line in EXAMPLES)
    for _ in range(questions):
        assert run(["run", '!call refund {"order": 4411, "usd": 60}', "-a", "support.toml"])[0] == 1
    for _, line in EXAMPLES:
        if line.startswith((*ENDLESS, *NEEDING_A_RUN)):
            continue
        words, given = split_line(line)
        asked = [each["id"] for each in json.loads(run(["approvals", "--json"])[1])]
        words = [{"SESSION": session, "ID": asked[0] if asked else ""}.get(word, word) for word in words]
        monkeypatch.chdir(tmp_path / "starter" if words[0] == "init" else tmp_path)
        code, out, err = run(words, given)
        assert code == 0, f"{line}: {code}: {out}{err}"
        assert out or err, line
    assert json.loads(run(["approvals", "--json"])[1]) == []
