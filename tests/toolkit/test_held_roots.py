"""Every tool keeps the folder that it was made for, whatever a sandboxed command puts at the path of it."""

import asyncio
import os
import subprocess
import sys
from functools import partial

import pytest

from bridle import Agent, MisuseError, RunContext, toolkit
from bridle.mcp import server
from bridle.sandbox.local import MECHANISMS, LocalSandbox, find_problem
from bridle.tools import CommandTool
from bridle.tools.process.run_process import run_process

SKILL = "---\nname: work\ndescription: Does {0}.\n---\n{0} text\n"
READ = {"path": "a.txt"}
CALLS = {
    "read_file": READ,
    "list_folder": {},
    "glob": {"pattern": "**"},
    "grep": {"pattern": "text"},
    "write_file": {"path": "new.txt", "content": "new"},
    "edit_file": {"path": "a.txt", "old_text": "OWN", "new_text": "OTHER"},
    "shell": {"command": "cat a.txt; ls -R /"},
    "python": {"code": "import os; print(open('a.txt').read(), os.listdir('.'))"},
    "read_skill": {"name": "work"},
}
"""Every tool with a root, and a call of it."""
HAVE_NO_ROOT = {"fetch_page", "update_plan"}


def fill(folder, word):
    (folder / "project").mkdir(parents=True)
    (folder / "project" / "a.txt").write_text(f"{word} text\n")
    (folder / "skills" / "work").mkdir(parents=True)
    (folder / "skills" / "work" / "SKILL.md").write_text(SKILL.format(word))
    (folder / "project" / "AGENTS.md").write_text(f"{word} text")


@pytest.fixture(params=MECHANISMS)
def mechanism(request):
    if find_problem(request.param):
        pytest.skip(find_problem(request.param))
    return request.param


@pytest.fixture
def places(tmp_path):
    """A workspace with a folder that a command moves, and a folder outside with the same names."""
    outside = tmp_path / "outside"
    fill(tmp_path / "wide" / "above", "OWN")
    fill(outside, "SECRET")
    return tmp_path / "wide", outside


def attack(wide, outside, mechanism):
    """Move the folder above the roots with a sandboxed command, and put a link to another one in its place."""
    box = LocalSandbox(wide, mechanism=mechanism)
    done = asyncio.run(run_process(["sh", "-c", f"mv above moved && ln -s {outside} above"], sandbox=box))
    assert done.ok, done.stderr
    assert os.path.realpath(wide / "above" / "project") == str(outside / "project")


def call(tool, arguments):
    async def main():
        return "".join(part.text for part in await tool.run(arguments, RunContext(context=None)))

    try:
        return asyncio.run(main())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_no_tool_follows_a_folder_that_a_command_moved(places, mechanism):
    wide, outside = places
    root, skills = wide / "above" / "project", wide / "above" / "skills"
    box = LocalSandbox(root, mechanism=mechanism, readable=[skills])
    made = {tool.spec.name: tool for tool in toolkit.tools(root, sandbox=box, skills=skills)}
    assert set(made) == set(CALLS) | HAVE_NO_ROOT  # a new tool says here whether it has a root
    instructions = toolkit.project_instructions(root / "AGENTS.md")
    attack(wide, outside, mechanism)
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    results = {name: call(made[name], arguments) for name, arguments in CALLS.items()}
    results["project_instructions"] = instructions()
    assert not any("SECRET" in result for result in results.values()), results
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before
    for name in ("read_file", "read_skill", "project_instructions"):
        assert "OWN text" in results[name]
    assert (wide / "moved" / "project" / "new.txt").read_text() == "new"
    for name in ("shell", "python", "grep"):
        assert "was moved or replaced" in results[name]


def test_a_skill_that_was_moved_is_still_not_written(places, mechanism):
    wide, outside = places
    tools = toolkit.tools(wide, sandbox=None, skills=wide / "above" / "skills")
    made = {tool.spec.name: tool for tool in tools}
    attack(wide, outside, mechanism)
    text = SKILL.format("MODEL")
    for path in ("moved/skills/work/SKILL.md", "moved/skills/other/SKILL.md", "above/skills/work/SKILL.md"):
        assert "PathRefused" in call(made["write_file"], {"path": path, "content": text})
    assert "MODEL" not in call(made["read_skill"], {"name": "work"})


@pytest.mark.parametrize("swapped", ["project", "skills", "project/.git"])
def test_what_is_swapped_after_the_command_was_made_is_not_shown(places, mechanism, swapped):
    wide, outside = places
    root, skills = wide / "above" / "project", wide / "above" / "skills"
    for folder in (root, outside / "project"):
        (folder / ".git").mkdir()
        (folder / ".git" / "config").write_text(folder.parent.name)
    box = LocalSandbox(root, mechanism=mechanism, readable=[skills])
    shown = ["sh", "-c", f"cat {root}/* {skills}/work/SKILL.md {root}/.git/config"]
    run = partial(subprocess.run, capture_output=True, text=True, check=False)
    made = box.wrap(shown, cwd=None, environment={"PATH": os.environ["PATH"]})
    assert "OWN" in run(made.argv, env=dict(made.environment)).stdout
    place = wide / "above" / swapped
    place.rename(place.with_name("aside"))
    place.symlink_to(outside / swapped)
    done = run(made.argv, env=dict(made.environment))
    assert "SECRET" not in done.stdout and "outside" not in done.stdout
    assert "bridle sandbox: the command was not run" in done.stderr and done.returncode
    if swapped != "project/.git":
        with pytest.raises(MisuseError, match="was moved or replaced"):
            box.wrap(["true"], cwd=None, environment={})


def make_command(root):
    return CommandTool("show", "Show.", ["cat", "a.txt"], cwd=root)


def make_link_command(root):
    """A path through a link is that of the folder which it led to."""
    link = root.parent.parent.parent / "link"
    link.symlink_to(root.parent)
    return CommandTool("show", "Show.", ["cat", "a.txt"], cwd=link / "project")


def make_shell(root):
    return toolkit.shell(root, sandbox=None)


def make_python(root):
    return toolkit.python(root, sandbox=None)


@pytest.mark.parametrize("make", [make_command, make_link_command, make_shell, make_python])
def test_no_program_outside_of_a_sandbox_follows_a_folder_that_was_moved(places, mechanism, make):
    wide, outside = places
    made = make(wide / "above" / "project")
    arguments = CALLS.get(made.spec.name, {})
    if made.spec.name == "shell":
        arguments = {"command": "cat a.txt"}
    assert "OWN text" in call(made, arguments)
    attack(wide, outside, mechanism)
    result = call(made, arguments)
    assert "SECRET" not in result and "was moved or replaced" in result
    (wide / "above").unlink()
    (wide / "moved").rename(wide / "above")
    assert "OWN text" in call(made, arguments), "it was put back"


def test_an_mcp_server_is_not_started_in_a_folder_that_was_moved(places, mechanism):
    pytest.importorskip("mcp")
    wide, outside = places
    root, mark = wide / "above" / "project", wide.parent / "mark"
    for folder, word in ((root, "own"), (outside / "project", "other")):
        (folder / "serve.py").write_text(f"open({str(mark)!r}, 'a').write('{word} ')")
    source = server([sys.executable, "serve.py"], name="s", cwd=root, connect_timeout=20)

    async def ask():
        try:
            return await Agent("sim:", tools=[source]).run("!say ok")
        finally:
            await source.close()

    asyncio.run(ask())
    assert mark.read_text() == "own "
    attack(wide, outside, mechanism)
    asyncio.run(ask())
    assert mark.read_text() == "own "


def test_the_folder_of_a_command_may_be_made_later(tmp_path):
    made = make_command(tmp_path / "later")
    assert "Error" in call(made, {})
    fill(tmp_path / "one", "OWN")
    (tmp_path / "one" / "project").rename(tmp_path / "later")
    assert "OWN text" in call(made, {})


def test_changes_anywhere_in_a_skill_are_told(tmp_path):
    fill(tmp_path, "OWN")
    for folder in (".git/hooks", "node_modules/x", "__pycache__", ".venv/bin"):
        place = tmp_path / "skills" / "work" / folder
        place.mkdir(parents=True)
        (place / "file").write_text("one")
        tool = toolkit.skills(tmp_path / "skills")
        assert "changed" not in call(tool, {"name": "work"})
        (place / "file").write_text("two")
        for file in ("SKILL.md", f"{folder}/file"):
            assert "changed after the list of skills was made" in call(tool, {"name": "work", "file": file})
        (place / "file").unlink()
        assert "changed after the list of skills was made" in call(tool, {"name": "work"})
