"""Project instructions: only files that the user names, read once per session, recorded, refused if wrong."""

import asyncio
import json
import os
from typing import Any

import pytest

from bridle import Agent, MisuseError, load_agent, toolkit
from bridle.cli.main import main
from bridle.events import InstructionWritten
from bridle.testing import scripted


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "AGENTS.md").write_text("Use tabs.\n")
    return tmp_path


def list_written_instructions(store, session):
    async def collect():
        agent = Agent("sim:", store=str(store))
        events = [record.event for record in await agent.store.read(session)]
        await agent.store.close()
        return [event.instructions for event in events if isinstance(event, InstructionWritten)]

    return asyncio.run(collect())


def test_a_file_is_read_once_per_session_and_recorded(project):
    instructions: Any = ["Be brief.", toolkit.project_instructions("AGENTS.md")]
    agent = Agent(scripted("a", "b", "c"), instructions=instructions, store=str(project / "log.db"))
    agent.run_sync("one", "first")
    (project / "AGENTS.md").write_text("Use spaces.")
    agent.run_sync("two", "first")
    agent.run_sync("three", "second")
    asyncio.run(agent.store.close())
    lead = "Instructions of this project, from AGENTS.md:\n\n"
    assert list_written_instructions(project / "log.db", "first") == [f"{lead}Use tabs."]
    assert list_written_instructions(project / "log.db", "second") == [f"{lead}Use spaces."]


def test_wrong_files_are_refused_at_once(project):
    with pytest.raises(MisuseError, match="name a file"):
        toolkit.project_instructions()
    for name, data, why in (
        ("empty.md", b" \n", "is empty"), ("large.md", b"x" * 70_000, "more than 65,536 bytes"), ("odd.md", b"a\xff", r"byte 1\)"),
    ):  # fmt: skip
        (project / name).write_bytes(data)
        with pytest.raises(MisuseError, match=why):
            toolkit.project_instructions("AGENTS.md", name)
    os.mkfifo(project / "pipe")
    for name, why in (("absent.md", "does not exist"), (".", "is a folder"), ("pipe", "is a named pipe")):
        with pytest.raises(MisuseError, match=why):
            toolkit.project_instructions(name)
    with pytest.raises(MisuseError, match="No such file"):
        toolkit.project_instructions("absent/AGENTS.md")


@pytest.mark.parametrize(
    "target", ["/proc/self/environ", "../outside.md", "/dev/zero", "absent.md", "loop.md"]
)
def test_a_link_that_leaves_the_folder_is_refused(project, target):
    project.parent.joinpath("outside.md").write_text("SECRET")
    (project / "inside.md").write_text("Use tabs.")
    (project / "loop.md").symlink_to(target)
    (project / "near.md").symlink_to("inside.md")
    assert toolkit.project_instructions("near.md")().endswith("Use tabs.")
    with pytest.raises(MisuseError, match="cannot read the project instructions"):
        toolkit.project_instructions("loop.md")


def test_a_file_that_becomes_a_link_is_refused_and_its_folder_is_kept(project):
    function = toolkit.project_instructions("AGENTS.md")
    first = function()
    moved = project.rename(project.with_name("moved"))
    project.symlink_to("/proc/self", target_is_directory=True)
    assert function() == first
    (moved / "AGENTS.md").unlink()
    (moved / "AGENTS.md").symlink_to("/proc/self/environ")
    with pytest.raises(MisuseError, match="outside of the workspace"):
        function()


@pytest.fixture
def run_command(project, capsys):
    """Runs `bridle run` and returns what was recorded as instructions of its session, and the session."""

    def run(*words):
        capsys.readouterr()
        assert main(["run", "--store", "log.db", "-m", "sim:", "--json", *words, "hello"]) == 0
        session = json.loads(capsys.readouterr().out)["session"]
        return list_written_instructions(project / "log.db", session), session

    return run


def test_no_file_is_read_unless_it_is_named(run_command):
    assert run_command()[0] == []


def test_the_command_line_reads_a_named_file_and_resumes_without_it(run_command, project, capsys):
    (text,), session = run_command("--project-instructions", "AGENTS.md")
    assert text.endswith("Use tabs.")
    (project / "AGENTS.md").unlink()
    assert run_command("--session", session) == ([text], session)
    assert main(["run", "--store", "log.db", "-m", "sim:", "--project-instructions", "AGENTS.md", "x"]) == 2
    assert "'AGENTS.md' does not exist" in capsys.readouterr().err


def test_settings_apply_to_new_sessions_and_are_shown(run_command, project, capsys):
    _, old = run_command()
    (project / "bridle.toml").write_text('project_instructions = ["AGENTS.md"]\n')
    assert run_command("--session", old) == ([], old)
    assert len(run_command()[0]) == 1
    assert main(["config", "project_instructions", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["settings"]
    assert row["value"] == [str(project / "AGENTS.md")] and row["where"].endswith("bridle.toml:1")
    assert run_command("--no-config")[0] == []


def test_agent_files_name_them(run_command, project):
    (project / "a.toml").write_text(
        'model = "sim:"\ninstructions = "Be brief."\nproject_instructions = ["AGENTS.md"]\n'
    )
    agent = load_agent("a.toml", store="log.db")
    agent.run_sync("hello", "s")
    assert (
        agent.settings.instructions == "Be brief."
        and len(list_written_instructions(project / "log.db", "s")) == 1
    )
    asyncio.run(agent.store.close())
    texts, session = run_command("-a", "a.toml")
    assert len(texts) == 1 and run_command("-a", "a.toml", "--session", session) == (texts, session)
    (project / "b.toml").write_text('model = "sim:"\nproject_instructions = ["NONE.md"]\n')
    with pytest.raises(MisuseError, match=r"b\.toml, line 2.*does not exist"):
        load_agent("b.toml")
