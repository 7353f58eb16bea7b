"""`bridle run` with files, standard input and an output schema."""

import io
import json

import pytest

from bridle.cli.main import main

PICTURE = b"\x89PNG\r\n\x1a\n" + bytes(16)
SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *arguments):
    code = main(["run", "-m", "sim:", "--json", *arguments])
    shown = capsys.readouterr()
    return code, json.loads(shown.out) if code == 0 else shown.err


def test_files_go_in_front_of_the_prompt_in_order(capsys, place):
    (place / "notes.txt").write_text("buy milk")
    (place / "photo.png").write_bytes(PICTURE)
    code, result = run(capsys, "-f", "notes.txt", "-f", "photo.png", "!say seen")
    assert (code, result["text"]) == (0, "seen")
    text, picture, prompt = result["messages"][0]["parts"]
    assert text["text"] == "File notes.txt:\n\nbuy milk"
    assert picture["media_type"] == "image/png"
    assert prompt["text"] == "!say seen"


def test_standard_input_is_the_prompt_or_a_file(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("!say piped"))
    assert run(capsys)[1]["text"] == "piped"
    monkeypatch.setattr("sys.stdin", io.StringIO("a change"))
    _, result = run(capsys, "!say read", "-f", "-")
    assert result["messages"][0]["parts"][0]["text"] == "File standard input:\n\na change"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("-", "-f", "-"), "standard input can be read once"),
        (("x", "-f", "missing.txt"), "missing.txt"),
        (("x", "-f", "noise.bin"), "neither text in UTF-8 nor an image"),
        (("x", "--output", "noise.bin"), "is not a JSON Schema"),
        (("x", "--output", "missing.json"), "cannot read 'missing.json'"),
    ],
)
def test_what_cannot_be_sent_is_one_clear_line(capsys, place, arguments, expected):
    (place / "noise.bin").write_bytes(b"\xfe\x00\xff\x01")
    code, error = run(capsys, *arguments)
    assert code == 2
    assert expected in error
    assert len(error.splitlines()) == 1


def test_the_answer_matches_the_schema_of_a_file(capsys, place):
    (place / "answer.json").write_text(json.dumps(SCHEMA))
    code, result = run(capsys, "--output", "answer.json", '!say {"n": 3}')
    assert (code, result["output"]) == (0, {"n": 3})


def test_effort_and_max_tokens_are_sent_and_recorded(capsys):
    _, result = run(capsys, "--effort", "low", "--max-tokens", "77", "!say ok")
    main(["show", result["session"], "--json"])
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (settings,) = [each["event"]["settings"] for each in events if each["event"]["type"] == "configured"]
    assert settings["thinking"]["effort"] == "low"
    assert settings["max_tokens"] == 77
