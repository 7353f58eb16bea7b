"""The first programs run, ours and the peers', against the simulator over HTTP; ours are not longer.

The peers' programs run where Pydantic AI is installed (`make oracles`).
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
COUNTS = runpy.run_path(str(ROOT / "docs" / "generate_programs.py"))
EXPECTED = {
    "hello": "391",
    "typed_tools": "It is warmer in Tokyo: 24 °C",
    "structured_output": "City(name=",
    "context": "order_status returned: sent",
}
HERE = importlib.util.find_spec
PEERS = [
    "",
    pytest.param("pydantic_ai", marks=pytest.mark.skipif(not HERE("pydantic_ai"), reason="no Pydantic AI")),
]


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


@pytest.mark.parametrize("peer", PEERS)
@pytest.mark.parametrize("name", EXPECTED)
def test_a_program_prints_its_answer(environment, tmp_path, name, peer):
    assert EXPECTED[name] in run(environment, tmp_path, PROGRAMS / peer / f"{name}.py")


@pytest.mark.parametrize("peer", PEERS)
def test_an_approval_is_answered_in_another_process(environment, tmp_path, peer):
    program = PROGRAMS / peer / "approvals.py"
    assert run(environment, tmp_path, program, "ask") == "waiting\n"
    assert "refunded order 4" in run(environment, tmp_path, program, "answer")


@pytest.mark.parametrize("peer", PEERS)
def test_the_tests_pass(environment, tmp_path, peer):
    program = PROGRAMS / peer / "test_agent.py"
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "-p", "no:cacheprovider", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.skipif(not HERE("fastapi"), reason="FastAPI is not installed; `make oracles` installs it")
@pytest.mark.parametrize("peer", PEERS)
def test_the_server_streams(environment, tmp_path, peer):
    program = f"""
import asyncio, runpy
app = runpy.run_path({str(PROGRAMS / peer / "fastapi_stream.py")!r})["app"]
async def main():
    gone = asyncio.Event()
    async def receive():
        await gone.wait()
        return {{"type": "http.disconnect"}}
    async def send(message):
        print(message.get("body", b"").decode(), end="")
    scope = {{"type": "http", "asgi": {{"version": "3.0"}}, "http_version": "1.1", "method": "GET", "path": "/ask",
             "raw_path": b"/ask", "query_string": b"prompt=What+is+17*23", "headers": [], "scheme": "http",
             "server": ("x", 80), "client": ("x", 1), "root_path": ""}}
    await app(scope, receive, send)
asyncio.run(main())
"""
    script = tmp_path / "drive.py"
    script.write_text(program)
    shown = run(environment, tmp_path, script)
    assert shown.startswith("event: ") and "391" in shown
    assert ("event: final_answer" in shown) is not peer.startswith("pydantic")


@pytest.mark.skipif(
    not all(map(HERE, ("nbclient", "ipykernel"))), reason="no notebook kernel; `make oracles` installs one"
)
@pytest.mark.parametrize("peer", PEERS)
def test_the_notebook_shows_the_answer(environment, tmp_path, monkeypatch, peer):
    import nbclient
    import nbformat

    for name in environment.keys() - os.environ.keys():
        monkeypatch.setenv(name, environment[name])
    source = (PROGRAMS / peer / "notebook.py").read_text()
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    nbclient.NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output.data for output in book.cells[0].outputs if output.output_type == "display_data"]
    assert "391" in str(shown[-1])


def test_our_programs_are_not_longer():
    for title, ours, theirs in COUNTS["list_counts"]():
        assert ours <= theirs, title


def test_every_program_is_on_the_page():
    listed = {name for name, _, _ in COUNTS["PROGRAMS"]}
    assert listed == {path.stem for path in PROGRAMS.glob("*.py")}
    assert listed == {path.stem for path in (PROGRAMS / "pydantic_ai").glob("*.py")}
