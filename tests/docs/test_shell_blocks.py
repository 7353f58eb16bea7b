"""Every `bridle …` and `python …` line of the documentation runs, page by page, in a folder with the files it names; every block
of TOML and JSON is read by the loader of its kind.

Models of vendors are answered by the simulator over HTTP. UNRUN lists the lines that are parsed only, with the reason.
"""

import io
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridle.cli.main import main, make_parser, split_command
from bridle.config.agent_file import read_agent_file
from bridle.config.configuration import load_configuration
from bridle.evals import load_suite
from bridle.run.agent_settings import read_policy
from bridle.sandbox import find_sandbox
from bridle.serve.gateway.settings import read_gateway_file
from bridle.tools.mcp.config_file import load_servers
from tests.suite.command_lines import ENDLESS, NEEDING_A_RUN, TOOLS, split_line, write_named_files

ROOT = Path(__file__).parents[2]
PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.name != "cli.md"  # its lines are those of the help: tests/cli/test_help.py
}
UNRUN = {
    **dict.fromkeys(ENDLESS, "it ends with Ctrl-C only"),
    **dict.fromkeys(NEEDING_A_RUN, "it needs a run in another process; tests/run/control executes it"),
    "bridle eval evals -m": "the simulator does not know what this suite expects of a real model",
    "bridle eval evals --matrix": "the same task with four models; tests/evals runs a matrix",
    "bridle eval evals --harness": "it needs another version; tests/evals/test_eval_versions.py has one",
    "bridle resume --all -a clinic.py": "it needs a file of the reader; tests/run/control/test_made_contexts.py has one",
    "python -m venv": "it installs packages",
    "python bench/foreign": "it needs the programs of others: make foreign",
}
UNRUN_PAGES = {"docs/postgres.md": "its lines need a PostgreSQL server; tests/stores has one"}
PROGRAMS = {
    "docs/budgets.md": """
import os
from bridle import Agent, Budget, Limits
agent = Agent("sim:", store=os.environ["BRIDLE_STORE"], budget=Budget(tenant=Limits(usd=50)))
agent.run_sync("Hello!", tenant="acme")
""",
    "docs/first_agent.md": """
from bridle import Agent
Agent("sim:", store="shop.db").run_sync("Hello!", "ann")
""",
    "docs/tutorial.md": """
from bridle import Agent
Agent("sim:", store="shop.db").run_sync("Hello!", "tuesday")
""",
}
"""Programs that stand for those of the page before its lines; tests/docs/test_code_blocks.py runs the real ones."""
BEFORE = {
    "bridle eval compare": ["bridle eval evals --trials 5 --save-baseline evals/baseline.json"],
    "bridle eval evals --baseline baseline.json": ["bridle eval evals --save-baseline baseline.json"],
}
"""Lines that a reader has run before, on another page or in the text."""
QUESTIONS = ("ID", "3f9a1c")
"""Words that stand for the id of an open question."""
SKILL = "---\nname: refunds\ndescription: Pay money back.\n---\nAsk for the receipt.\n"
CHAT_INPUT = "Hello.\n/quit\n"


def list_blocks(text):
    """The blocks of a page: language, text."""
    language, lines = None, []
    for line in text.splitlines():
        if line.startswith("```") and language is None:
            language, lines = line[3:].strip(), []
        elif line.startswith("```"):
            yield language, "\n".join(lines) + "\n"
            language = None
        elif language is not None:
            lines.append(line)


def list_lines(text):
    """The commands in the blocks without a language, or of a shell; a quoted text may have several lines."""
    for language, block in list_blocks(text):
        lines = iter(block.splitlines() if language in ("", "sh") else ())
        for given in lines:
            line = given.removeprefix("$ ")
            if not line.startswith(("bridle ", "python ")):
                continue
            while not is_complete(line):
                line = f"{line}\n{next(lines)}"
            yield line


def is_complete(line):
    try:
        shlex.split(line, comments=True)
    except ValueError:
        return False
    return True


LINES = {page: lines for page, text in PAGES.items() if (lines := list(list_lines(text)))}


def find_reason(page, line):
    return UNRUN_PAGES.get(page) or next((why for start, why in UNRUN.items() if line.startswith(start)), "")


def test_exceptions_are_used():
    unused = [
        start
        for start in (*UNRUN, *BEFORE)
        if start not in (*ENDLESS, *NEEDING_A_RUN)
        and not any(line.startswith(start) for lines in LINES.values() for line in lines)
    ]
    assert unused == [] and set(UNRUN_PAGES) <= set(LINES)
    assert sum(len(lines) for lines in LINES.values()) > 35


@pytest.fixture(scope="module")
def exports():
    """Variables that lead every client to `bridle sim`."""
    command = [sys.executable, "-m", "bridle.cli.main", "sim", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        yield json.loads(server.stdout.readline())["exports"]
        server.terminate()


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    # test_readme.py runs the lines of the README one after the other
    [pytest.param(page, marks=pytest.mark.full) if page == "README.md" else page for page in LINES],
)
def test_lines_of_the_page_run(page, exports, tmp_path, monkeypatch, capsys):
    if any("--toolkit" in line for line in LINES[page]):
        try:
            find_sandbox(tmp_path)
        except Exception as refused:
            pytest.skip(str(refused))
    home, project = tmp_path / "home", tmp_path / "project"
    for folder in (home, project / "skills/refunds"):
        folder.mkdir(parents=True)
    (project / "skills/refunds/SKILL.md").write_text(SKILL)
    for name, value in {**exports, "HOME": str(home), "BRIDLE_STORE": str(tmp_path / "log.db")}.items():
        monkeypatch.setenv(name, value)
    write_named_files(project)
    for folder in (project, project / "starter"):
        (folder / "examples").symlink_to(ROOT / "examples")
    names, call = {}, '!call refund {"order": 4411, "usd": 60}'
    if page == "docs/approvals.md":  # the tool of this page
        (project / "tools.py").write_text(
            TOOLS.replace("order: int, usd: int", "order: str, amount: int, usd: int = 1")
        )
        call = '!call refund {"order": "17", "amount": 60}'
    monkeypatch.chdir(project)

    def run(line):
        words, given = split_line(line)
        monkeypatch.setattr("sys.stdin", io.StringIO(CHAT_INPUT if words[0] == "chat" else given))
        if words[0] == "init":
            monkeypatch.chdir(project / "starter")
        code = main([names.get(word, word) for word in words])
        out, err = capsys.readouterr()
        assert code == 0, f"{line}: {code}: {out}{err}"
        assert out or err, line
        return out

    def perform(line):
        if line.startswith("cd "):
            monkeypatch.chdir(line.removeprefix("cd "))
        elif line.startswith("python "):
            subprocess.run([sys.executable, *shlex.split(line, comments=True)[1:]], check=True)
        else:
            if any(word in line for word in QUESTIONS):
                main(["run", call, "-a", "support.toml"])
                capsys.readouterr()
                names.update(dict.fromkeys(QUESTIONS, json.loads(run("bridle approvals --json"))[0]["id"]))
            run(line)

    answer = run(f"bridle run '{call}' --tools tools.py --yes --json")
    names["SESSION"] = names["desk"] = json.loads(answer)["session"]
    names["12"] = find_result(run("bridle session tail SESSION --since 0 --json"))
    subprocess.run([sys.executable, "-c", PROGRAMS.get(page, "")], check=True)
    for line in LINES[page]:
        if find_reason(page, line):
            if line.startswith("bridle"):
                command, words = split_command(split_line(line)[0])
                make_parser(command).parse_args(words)
            continue
        for before in next((lines for start, lines in BEFORE.items() if line.startswith(start)), ()):
            perform(before)
        for part in line.split(" && "):
            perform(part)


def find_result(records):
    """Number of the record with the result of the tool."""
    return str(next(at for at, line in enumerate(records.splitlines(), 1) if '"tool_finished"' in line))


def read_task(path):
    folder = path.parent / "evals"
    folder.mkdir()
    path.rename(folder / "eval_task.toml")
    (folder / "tools.py").write_text(TOOLS)
    return load_suite(folder)


def read_suite(path):
    folder = path.parent / "evals"
    folder.mkdir()
    path.rename(folder / "suite.toml")
    (folder / "eval_one.toml").write_text('prompt = "Hello."\n[agent]\nmodel = "sim:"\n')
    return load_suite(folder)


def read_models(path):
    """Only the table of the user is read: $BRIDLE_MODELS."""
    code = "from bridle import Agent; print(Agent('gateway:our-tune').settings.model.name)"
    environment = {"BRIDLE_MODELS": str(path), "GATEWAY_KEY": "k"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout, done.stderr


READERS: dict[str, Any] = {
    "docs/approvals.md": [read_policy],
    "docs/configuration.md": [lambda path: load_configuration({"BRIDLE_CONFIG": str(path)}), read_agent_file],
    "docs/evals.md": [read_task, read_suite, read_task, read_task, read_suite],
    "docs/gateway.md": [read_gateway_file],
    "docs/hosted.md": [read_agent_file],
    "docs/mcp.md": [lambda path: load_servers(path, {"DOCS_TOKEN": "t"}), read_policy],
    "docs/models.md": [read_models],
}
"""Loaders of the TOML and JSON blocks of each page, in their order."""
FILE_BLOCKS = {
    page: found
    for page, text in PAGES.items()
    if (found := [(kind, block) for kind, block in list_blocks(text) if kind in ("toml", "json")])
}


def test_every_page_with_toml_or_json_has_loaders():
    assert {page: len(found) for page, found in FILE_BLOCKS.items()} == {
        page: len(readers) for page, readers in READERS.items()
    }


@pytest.mark.parametrize(
    ("page", "index"), [(page, index) for page, found in FILE_BLOCKS.items() for index in range(len(found))]
)
def test_blocks_are_read_by_their_loader(page, index, tmp_path, monkeypatch):
    write_named_files(tmp_path)
    for name in ("support.md", "policy.toml"):
        (tmp_path / name).write_text("")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop/orders.py").write_text(TOOLS)
    if page == "docs/configuration.md":
        (tmp_path / "tools.py").write_text(TOOLS.replace("def refund", "def find"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRM_TOKEN", "t")
    kind, block = FILE_BLOCKS[page][index]
    path = tmp_path / f"block.{kind}"
    path.write_text(block)
    READERS[page][index](path)
