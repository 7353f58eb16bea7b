"""The recipes of the cookbook run against the simulator over HTTP, and so does the same agent with other libraries.

Programs with other libraries run where these are installed (`make oracles`).
"""

import importlib.util
import json
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "examples" / "programs"
PAGE = runpy.run_path(str(ROOT / "docs" / "generate_cookbook.py"))
EXPECTED = {
    "hello": "391",
    "typed_tools": "It is warmer in Tokyo: 24 °C",
    "structured_output": "City(name=",
    "context": "order_status returned: sent",
    "validators": "391",
    "hand_over": "book returned: booked seat 4",
    "hooks": "refunds above 500 are paid by hand",
    "sub_agents": "order_status returned: sent on Monday",
}
HERE = importlib.util.find_spec


@pytest.fixture(scope="module")
def environment():
    """`bridle sim`, and the variables that lead any client to it."""
    command = [sys.executable, "-m", "bridle.cli.main", "sim", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as server:
        exports = json.loads(server.stdout.readline())["exports"]
        yield {**os.environ, **exports, "PYTHONIOENCODING": "utf-8"}
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=10) == 0


def run(environment, folder, path, *words):
    done = subprocess.run(
        [sys.executable, str(path), *words], capture_output=True, text=True, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_a_program_prints_its_answer(environment, tmp_path, name):
    assert EXPECTED[name] in run(environment, tmp_path, PROGRAMS / f"{name}.py")


@pytest.mark.slow
def test_an_approval_is_answered_in_another_process(environment, tmp_path):
    program = PROGRAMS / "approvals.py"
    assert run(environment, tmp_path, program, "ask") == "waiting\n"
    assert "refunded order 4" in run(environment, tmp_path, program, "answer")


@pytest.mark.slow
def test_the_tests_pass(environment, tmp_path):
    program = PROGRAMS / "test_agent.py"
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "no:cacheprovider", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


NEEDS_FASTAPI = pytest.mark.skipif(
    not HERE("fastapi"), reason="FastAPI is not installed; `make oracles` installs it"
)


@pytest.mark.slow
@NEEDS_FASTAPI
def test_the_server_streams(environment, tmp_path):
    shown = ask_server(environment, tmp_path, "fastapi_stream", "/ask")
    assert shown.startswith("event: ") and "391" in shown and "event: final_answer" in shown


@pytest.mark.slow
@NEEDS_FASTAPI
def test_the_server_answers_with_a_result(environment, tmp_path):
    answer = json.loads(ask_server(environment, tmp_path, "fastapi_answer", "/answer"))
    assert (answer["stop"], "391" in answer["text"]) == ("done", True)


def ask_server(environment, tmp_path, name, path):
    """What the application of a recipe sends for a prompt."""
    program = f"""
import asyncio, runpy
app = runpy.run_path({str(PROGRAMS / f"{name}.py")!r})["app"]
async def main():
    gone = asyncio.Event()
    async def receive():
        await gone.wait()
        return {{"type": "http.disconnect"}}
    async def send(message):
        print(message.get("body", b"").decode(), end="")
    scope = {{"type": "http", "asgi": {{"version": "3.0"}}, "http_version": "1.1", "method": "GET", "path": {path!r},
             "raw_path": {path.encode()!r}, "query_string": b"prompt=What+is+17*23", "headers": [], "scheme": "http",
             "server": ("x", 80), "client": ("x", 1), "root_path": ""}}
    await app(scope, receive, send)
asyncio.run(main())
"""
    script = tmp_path / "drive.py"
    script.write_text(program)
    return run(environment, tmp_path, script)


@pytest.mark.slow
@pytest.mark.skipif(
    not all(map(HERE, ("nbclient", "ipykernel"))), reason="no notebook kernel; `make oracles` installs one"
)
def test_the_notebook_shows_the_answer(environment, tmp_path, monkeypatch):
    import nbclient
    import nbformat

    for name in environment.keys() - os.environ.keys():
        monkeypatch.setenv(name, environment[name])
    source = (PROGRAMS / "notebook.py").read_text()
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nbclient.NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output.data for output in book.cells[0].outputs if output.output_type == "display_data"]
    assert "391" in str(shown[-1])


# ── the same agent with other libraries ─────────────────────────────────────

MIGRATIONS = ROOT / "examples" / "migrating"
MODULES = {
    "bridle": "bridle",
    "pydantic_ai": "pydantic_ai",
    "openai_agents": "agents.run",
    "langgraph": "langchain.agents",
    "openai_sdk": "openai.types",
}
CONVERSIONS = {
    "pydantic_ai": "to_chat(made['second'].all_messages())",
    "openai_agents": "made['second'].to_input_list()",
    "langgraph": "convert_to_openai_messages(made['second']['messages'])",
    "openai_sdk": "made['messages']",
}
IMPORTS = """
import runpy, sys
made = runpy.run_path({path!r})
sys.path.insert(0, {folder!r})
from bridle.sessions import import_history
{extra}
history = import_history({vendor!r}, {conversion})
print([m.role for m in history.messages], [c.name for m in history.messages for c in m.calls])
print([r.text for m in history.messages for r in m.results], history.repairs, history.instructions)
"""


def find_module(name):
    try:
        return HERE(name) is not None
    except ModuleNotFoundError:
        return False


def skip_without(name):
    return pytest.mark.skipif(
        not find_module(MODULES[name]), reason=f"{name} is not installed; see `make oracles`"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=skip_without(name)) for name in MODULES])
def test_the_same_agent_runs_with_each_library(environment, tmp_path, name):
    quiet = {**environment, "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    first, second = run(quiet, tmp_path, MIGRATIONS / f"with_{name}.py").splitlines()
    assert "sent on Monday" in first and "391" in second


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=skip_without(name)) for name in CONVERSIONS])
def test_conversations_of_each_library_are_imported(environment, tmp_path, name):
    extra = {
        "pydantic_ai": "from import_pydantic_ai import to_chat",
        "langgraph": "from langchain_core.messages import convert_to_openai_messages",
    }
    script = tmp_path / "convert.py"
    script.write_text(
        IMPORTS.format(
            path=str(MIGRATIONS / f"with_{name}.py"),
            folder=str(MIGRATIONS),
            extra=extra.get(name, ""),
            vendor="openai" if name == "openai_agents" else "openai-chat",
            conversion=CONVERSIONS[name],
        )
    )
    quiet = {**environment, "OPENAI_AGENTS_DISABLE_TRACING": "1"}
    *_, calls, results = run(quiet, tmp_path, script).splitlines()
    assert "order_status" in calls and calls.startswith("['user', 'assistant', 'tool', 'assistant', 'user'")
    assert results.startswith("['sent on Monday'] ")
    # LangChain leaves reasoning items of OpenAI in the list; each is named.
    assert ("()" in results) is (name != "langgraph")
    assert ("'reasoning' in message 2" in results) is (name == "langgraph")
    assert ("You are a shop assistant." in results) is (name in ("pydantic_ai", "openai_sdk"))


def test_every_program_is_on_the_page():
    listed = {name for name, _, _ in PAGE["PROGRAMS"]}
    assert listed == {path.stem for path in PROGRAMS.glob("*.py")}
