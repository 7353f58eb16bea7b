"""Python runs in a sandbox whatever the path is that it was started by, and a program that did not run is an error."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bridle import MisuseError, RunContext
from bridle.sandbox.launcher import main as launcher
from bridle.sandbox.local import MECHANISMS, NOT_RUN, LocalSandbox, find_problem, find_program, find_python
from bridle.tools.process.command_tool import CommandTool

PROGRAM = """
import asyncio, json, sys
from bridle import Agent, CodeMode, RunContext, toolkit
from bridle.sandbox.local import LocalSandbox
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply

async def main(workspace, mechanism):
    box = LocalSandbox(workspace, mechanism=mechanism)
    tool = toolkit.python(workspace, sandbox=box)
    shown = await tool.run({"code": "import sys, json; print(sys.prefix)"}, RunContext(context=None))
    agent = Agent(scripted(call_reply(("run_code", {"code": "print(6 * 7)"})), "done"), code_mode=CodeMode(sandbox=box))
    result = await agent.run("go")
    texts = [each.text for message in result.messages for each in message.results]
    print(json.dumps({"started": sys.executable, "prefix": sys.prefix, "tool": shown[0].text, "code": texts}))

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(params=MECHANISMS)
def mechanism(request):
    if find_problem(request.param):
        pytest.skip(find_problem(request.param))
    return request.param


def make_venv(tmp_path):
    """An environment with the packages of this one, in a folder with a space and a letter that is not ASCII."""
    place = tmp_path / "a venv é"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    return place


def by_a_relative_path(tmp_path):
    """Python 3.11 and later keep the dots of a relative path only."""
    return os.path.relpath(sys.executable, tmp_path)


def by_dots(tmp_path):
    here = Path(sys.executable)
    return f"{here.parent}/../{here.parent.name}/{here.name}"


def by_dots_to_the_base(tmp_path):
    here = Path(os.path.realpath(sys.executable))
    return f"{here.parent}/../{here.parent.name}/{here.name}"


def by_dots_through_another_folder(tmp_path):
    (tmp_path / "side").mkdir()
    ups = "/".join([".."] * len((tmp_path / "side").parts[1:]))
    return f"{tmp_path}/side/{ups}{os.path.realpath(sys.executable)}"


def by_a_linked_folder(tmp_path):
    (tmp_path / "linked").symlink_to(Path(sys.executable).parents[1])
    return str(tmp_path / "linked" / "bin" / Path(sys.executable).name)


def by_a_link_elsewhere(tmp_path):
    """A link to the base interpreter, outside of its folders."""
    (tmp_path / "python-link").symlink_to(os.path.realpath(sys.executable))
    return str(tmp_path / "python-link")


def by_a_venv(tmp_path):
    return str(make_venv(tmp_path) / "bin" / "python")


def by_a_venv_of_a_link(tmp_path):
    """An environment whose program is a link to a link in a folder that no sandbox shows."""
    place = make_venv(tmp_path)
    python = place / "bin" / "python"
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "python3").symlink_to(os.path.realpath(python))
    python.unlink()
    python.symlink_to(tmp_path / "hidden" / "python3")
    return str(python)


WAYS = (
    by_a_relative_path,
    by_dots,
    by_dots_to_the_base,
    by_dots_through_another_folder,
    by_a_linked_folder,
    by_a_link_elsewhere,
    by_a_venv,
    by_a_venv_of_a_link,
)


@pytest.mark.sampled
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_python_runs_in_a_sandbox_however_it_was_started(tmp_path, mechanism, way):
    (tmp_path / "work").mkdir()
    packages = os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))
    source = str(Path(launcher.__file__).parents[3])
    done = subprocess.run(
        [way(tmp_path), "-c", PROGRAM, tmp_path / "work", mechanism],
        env={**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{packages}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert os.path.realpath(found["tool"].strip()) == os.path.realpath(found["prefix"]), found
    assert len(found["code"]) == 1 and "42" in found["code"][0], found


def test_the_path_of_a_program_has_no_dots(tmp_path, monkeypatch):
    (tmp_path / "x").mkdir()
    assert find_program(f"{tmp_path}/x/../x/tool") == f"{tmp_path.resolve()}/x/tool"
    assert find_program("tool") == "tool" and find_program("./a/../tool") == "./a/../tool"
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(MisuseError, match="does not know its own program"):
        find_python()


def test_a_program_that_was_not_run_is_an_error_whatever_exit_codes_are_results(tmp_path, mechanism):
    box = LocalSandbox(tmp_path, mechanism=mechanism)
    tool = CommandTool("x", "x", ["/absent/python3"], exits=range(256), sandbox=box)
    with pytest.raises(ChildProcessError, match="could not run `/absent/python3`"):
        asyncio.run(tool.run({}, RunContext(context=None)))
    ended = CommandTool("y", "y", ["sh", "-c", "exit 127"], exits=range(256), sandbox=box)
    (part,) = asyncio.run(ended.run({}, RunContext(context=None)))
    assert part.text == "[exit code 127, no output]"
    assert NOT_RUN == launcher.NOT_RUN
