"""`bridle worker`: what it refuses, each in one line, before it connects."""

import pytest

from bridle.cli.main import main
from tests.suite.campaign import IS_WHOLE
from tests.suite.command import bridle

pytest.importorskip("temporalio")

AGENT = "from bridle import Agent, tool\n\n\n@tool(effect='read')\ndef render() -> str:\n    'Render.'\n    return ''\n\n\nclerk = Agent('sim:', tools=[render])\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "app.py").write_text(AGENT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--store", "log.db"), "a SQLite file is shared by the processes of one machine only"),
        (("--store", ":memory:"), "this one is in memory"),
        (("--store", "log.db", "--single-machine", "--temporal", "127.0.0.1:1"), "cannot reach Temporal at 127.0.0.1:1: "),
        (("--store", "log.db", "--single-machine", "--temporal", "here"), "is HOST:PORT, such as 127.0.0.1:7233, not 'here'"),
        (("--store", "log.db", "--single-machine", "--namespace", " "), "the namespace of the Temporal server has no name"),
        (("--place", "render"), "--place takes TOOL=VALUE, not 'render'"),
        (("--at-once", "render=two"), "the limit is a number"),
        (("--at-once", "render=²"), "the limit is a number"),
        (("--at-once", "dig=2"), "name tools that no agent here has: dig; they have: render"),
        (("--place", "dig=gpu"), "name tools that no agent here has: dig; they have: render"),
        (("--tool-queue", ""), "--tool-queue takes the name of a queue"),
        (("--deployment", "blue"), "--deployment needs the version of this code: --build-id ID"),
        (("--store", "log.db", "--single-machine", "--tls-cert", "c.pem"), "belong together: --tls-cert FILE --tls-key FILE"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_said_in_one_line(folder, capsys, options, words):
    code, shown = main(["worker", "app.py", *options]), capsys.readouterr().err
    assert code == 2, shown
    assert words in shown and len(shown.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_namespace_that_does_not_exist_is_said_in_one_line(folder, temporal):
    """Several times: a thread of the SDK that still ran as the interpreter ended aborted the process, now and then."""
    given = ("--store", "log.db", "--single-machine", "--temporal", temporal.host)
    times = 6 if IS_WHOLE else 1
    ended = [bridle("worker", "app.py", *given, "--namespace", "nowhere") for _ in range(times)]
    shown = [(done.code, done.err.strip().splitlines()) for done in ended]
    line = f"bridle: Temporal at {temporal.host} has no namespace 'nowhere'; create it: temporal operator namespace create nowhere"
    assert shown == [(2, [line])] * times
