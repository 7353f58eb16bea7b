"""Limits of runs that the command resumes: an option raises the run's own, those of tenants and sessions stay."""

import json

import pytest

from bridle.cli.main import main

AGENT = """
model = "sim:"
name = "clerk"

[budget]
steps = 1

[budget.tenant]
steps = {tenant}

[budget.session]
steps = {session}
"""
PROMPT = "".join(f'!call missing {{"number": {number}}}\n!then\n' for number in range(3)) + "!say Done"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRIDLE_STORE", str(tmp_path / "log.db"))
    return tmp_path


def write_agent(home, tenant=50, session=50):
    (home / "clerk.toml").write_text(AGENT.format(tenant=tenant, session=session))


def run(capsys, *arguments):
    capsys.readouterr()
    main([*arguments, "--json"])
    printed = capsys.readouterr()
    assert printed.out, printed.err
    result = json.loads(printed.out.splitlines()[-1])
    return result["stop"], result["reason"], result["session"]


def start(capsys, home, tenant=50, session=50):
    write_agent(home, tenant, session)
    stop, _, session = run(capsys, "run", PROMPT, "-a", "clerk.toml", "--tenant", "acme")
    assert stop == "steps"
    return session


def test_an_option_raises_the_limit_of_the_run(capsys, home):
    own = start(capsys, home)
    assert run(capsys, "resume", own, "-a", "clerk.toml", "--steps", "2")[0] == "steps"
    assert run(capsys, "resume", own, "-a", "clerk.toml", "--steps", "9")[0] == "done"


@pytest.mark.parametrize("file", [[], ["-a", "clerk.toml"]])
def test_a_run_that_is_resumed_without_a_limit_keeps_its_own(capsys, home, file):
    own = start(capsys, home)
    assert run(capsys, "resume", own, *file) == ("steps", "1 of 1 steps taken", own)
    assert run(capsys, "resume", own, *file, "--usd", "5") == ("steps", "1 of 1 steps taken", own)


@pytest.mark.parametrize("file", [[], ["-a", "clerk.toml"]])
@pytest.mark.parametrize(("tenant", "session", "stop"), [(2, 50, "budget"), (50, 2, "steps")])
def test_an_option_does_not_raise_the_limit_of_the_tenant_or_the_session(
    capsys, home, file, tenant, session, stop
):
    own = start(capsys, home, tenant, session)
    assert run(capsys, "resume", own, *file, "--steps", "9")[0] == stop
    write_agent(home)
    assert run(capsys, "resume", own, "-a", "clerk.toml")[0] == "done"
