"""`bridle raw`: what was sent, without any credential."""

import json
import subprocess

import pytest
from patience import PATIENCE_SECONDS

from bridle.cli.main import main
from bridle.testing import ProviderSim

KEY = "sk-ant-very-secret-0123456789abcdef"


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("BRIDLE_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)


def run(capsys, *words):
    code = main([*words])
    out, err = capsys.readouterr()
    return code, out, err


def record(capsys, *words):
    code, out, err = run(capsys, "run", "!say well", "--json", *words)
    assert code == 0, err
    return json.loads(out)["session"]


def test_calls_are_listed_and_shown(capsys):
    session = record(capsys, "-i", "Be kind.")
    record(capsys, "--session", session)
    code, out, _ = run(capsys, "raw", session)
    assert code == 0
    assert out.count("proven") == 3
    assert "2 model calls, 2 proven by digest" in out
    code, out, _ = run(capsys, "raw", session, "last")
    assert code == 0
    for words in (
        "POST ",
        "Be kind.",
        "difference to call 1: history",
        "reply: model_replied",
        '"type": "model_replied"',
    ):
        assert words in out
    code, out, _ = run(capsys, "raw", session, "2", "--json")
    shown = json.loads(out)
    assert (code, shown["is_proven"], shown["body"]["system"][0]["text"]) == (0, True, "Be kind.")
    assert shown["event"]["type"] == "model_replied"
    lines = [json.loads(line) for line in run(capsys, "raw", session, "--json")[1].splitlines()]
    assert [line["number"] for line in lines] == [1, 2]
    assert "+++ now" in run(capsys, "raw", session, "2", "--diff")[1]


def test_wrong_calls_are_refused_in_one_line(capsys):
    session = record(capsys)
    for words, told in (
        (["9"], "no model call 9"),
        (["x"], "number of a model call"),
        (["--curl"], "needs the number"),
        (["1", "--reply"], "not kept"),
        (["1", "--curl"], "no address"),
    ):
        code, _, err = run(capsys, "raw", session, *words)
        assert code == 2
        assert told in err


def test_a_curl_command_sends_the_request_and_never_shows_the_key(capsys, monkeypatch):
    with ProviderSim() as provider:
        for name, value in provider.environ.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        session = record(capsys, "-m", "anthropic:claude-sonnet-5-5")
        seen = [
            run(capsys, "raw", session, *words) for words in (["1"], ["1", "--json"], ["1", "--curl"], [])
        ]
        assert all(code == 0 and KEY not in out + err for code, out, err in seen)
        command = seen[2][1]
        assert '-H "authorization: Bearer $ANTHROPIC_API_KEY"' in command
        sent = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
        )
        assert "well" in sent.stdout, sent.stderr
