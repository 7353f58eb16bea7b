"""A session is named by the start of its id, and several commands use the latest one if none is named."""

import io
import json

import pytest

from bridle import Agent
from bridle.cli.main import main


@pytest.fixture(autouse=True)
def log(tmp_path, monkeypatch):
    """Two sessions; the first has the newer record of the two with a prompt by a person."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    for session in ("orders-tuesday", "orders-friday", "refunds"):
        Agent("sim:", store="log.db").run_sync(f"!say I am {session}", session=session)


def run(capsys, *words):
    code = main(words)
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    "words",
    [
        ("show", "orders-t", "--json"),
        ("show", "orders-t", "--as", "tree", "--json"),
        ("cost", "orders-t", "--json"),
        ("approvals", "orders-t", "--json"),
    ],
)
def test_a_unique_start_names_a_session(capsys, words):
    whole = [word.replace("orders-t", "orders-tuesday") for word in words]
    assert run(capsys, *words) == run(capsys, *whole)


def test_the_random_part_of_a_generated_id_is_enough(capsys):
    made = Agent("sim:", store="log.db").run_sync("hello").session
    code, out, _ = run(capsys, "show", made.partition("-")[2][:5], "--json")
    assert code == 0
    assert {json.loads(line)["session"] for line in out.splitlines()} == {made}


def test_a_start_of_several_ids_lists_them(capsys):
    code, out, err = run(capsys, "show", "orders")
    assert (code, out) == (2, "")
    assert "'orders' is the start of 2 session ids: orders-friday, orders-tuesday; type more" in err


def test_a_whole_id_is_not_taken_for_the_start_of_another(capsys):
    Agent("sim:", store="log.db").run_sync("hello", session="orders")
    code, out, _ = run(capsys, "show", "orders", "--json")
    assert code == 0
    assert '"session":"orders"' in out


def test_a_start_of_no_id_is_reported_as_before(capsys):
    code, _, err = run(capsys, "show", "nothing")
    assert code == 2
    assert "no session 'nothing' in this log" in err


def test_the_start_of_an_id_is_that_of_the_tenant(capsys):
    Agent("sim:", store="log.db").run_sync("hello", session="orders-acme", tenant="acme")
    code, out, _ = run(capsys, "show", "orders", "--tenant", "acme", "--json")
    assert code == 0
    assert '"session":"orders-acme"' in out


def test_a_prompt_continues_the_session_of_a_start(capsys):
    code, out, _ = run(capsys, "run", "again", "--session", "ref", "--json")
    assert code == 0
    assert json.loads(out)["session"] == "refunds"


def test_two_sessions_are_compared_by_their_starts(capsys):
    code, out, _ = run(capsys, "session", "diff", "orders-t", "ref", "--json")
    assert code == 0
    assert "orders-tuesday" in out and "refunds" in out


@pytest.mark.parametrize("words", [("show",), ("show", "--as", "timeline")])
def test_the_latest_session_is_shown_if_none_is_named(capsys, words):
    Agent("sim:", store="log.db").run_sync("again", session="orders-tuesday")
    code, out, err = run(capsys, *words)
    assert code == 0
    assert err == "latest session: orders-tuesday\n"
    assert "orders-tuesday" in out


def test_the_latest_session_of_a_tenant_is_shown(capsys):
    Agent("sim:", store="log.db").run_sync("hello", session="theirs", tenant="acme")
    Agent("sim:", store="log.db").run_sync("again", session="refunds")
    assert "latest session: theirs" in run(capsys, "show", "--tenant", "acme")[2]
    assert run(capsys, "show", "--tenant", "nobody")[0] == 2


def test_the_latest_session_is_resumed_if_none_is_named(capsys):
    code, out, err = run(capsys, "resume", "--json")
    assert code == 0
    assert json.loads(out)["session"] == "refunds"
    assert "latest session: refunds" in err


def test_all_sessions_are_resumed_without_a_latest_one(capsys):
    code, _, err = run(capsys, "resume", "--all")
    assert code == 0
    assert "latest session" not in err
    assert run(capsys, "resume", "refunds", "--all")[0] == 2


def test_a_chat_continues_the_latest_session(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("!say more\n"))
    code, out, err = run(capsys, "chat", "-c", "--json")
    assert code == 0
    assert "latest session: refunds" in err
    assert json.loads(out.splitlines()[-1])["session"] == "refunds"


def test_without_a_log_the_latest_session_is_missed_in_one_line(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "none.db"))
    code, out, err = run(capsys, "show")
    assert (code, out) == (2, "")
    assert err.startswith("bridle: no log at") and err.count("\n") == 1
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize("view", ["log", "raw", "cache", "cost", "audit"])
def test_a_view_shows_the_latest_session_too(capsys, view):
    code, out, err = run(capsys, "show", "--as", view, "--json")
    assert (code, err) == (0, "latest session: refunds\n")
    assert run(capsys, "show", "refunds", f"--as={view}", "--json") == (0, out, "")


def test_the_latest_session_is_verified_if_none_is_named(capsys):
    code, out, err = run(capsys, "session", "verify", "--json")
    assert (code, err) == (0, "latest session: refunds\n")
    assert [each["session"] for each in json.loads(out)["sessions"]] == ["refunds"]
    code, out, _ = run(capsys, "store", "verify", "--json")
    assert (code, len(json.loads(out)["sessions"])) == (0, 3)
