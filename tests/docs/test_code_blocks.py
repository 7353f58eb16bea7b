"""Every block of Python in the documentation runs, page by page, as one program.

Models of vendors are answered by the simulator over HTTP. A page may rely on objects that its text names but does not define:
BEFORE defines them. Blocks may await at the top level, as in a notebook.
"""

import ast
import asyncio
import inspect
import json
import os
import re
import subprocess
import sys
import types
from importlib.util import find_spec
from pathlib import Path

import pytest

from bridle import Agent
from bridle.sandbox import find_sandbox
from tests.serve.served import serve_by_name

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)
PAGES = {
    path.relative_to(DOCS).as_posix(): blocks
    for path in sorted(DOCS.rglob("*.md"))
    if (blocks := PYTHON.findall(path.read_text(encoding="utf-8")))
}
ELSEWHERE = {
    "migrating.md": "tests/docs/test_programs.py runs the files that these blocks come from",
    "cookbook.md": "tests/docs/test_programs.py runs the files that these blocks come from",
}
NEEDED = {
    "from fastapi": "fastapi",
    "from openai": "openai",
    "NotebookView": "IPython",
    "from temporalio": "temporalio",
}
"""Packages that single blocks use; `make oracles` installs them. Without its package a block is only compiled."""
ADDRESS = "http://127.0.0.1:8420"
"""Where the pages expect `bridle serve`; the server of the test has a free port."""
SESSION = """
from bridle import Agent
Agent("sim:", store="log.db").run_sync("Hello!", "SESSION")
"""
SHOP = """
from bridle import Agent
agent = Agent("sim:")
"""
BEFORE = {
    "audit.md": SESSION,
    "control.md": """
import asyncio, threading
from bridle import Agent, tool
started = threading.Event()
@tool(effect="read")
async def wait() -> str:
    started.set()
    await asyncio.Event().wait()
agent = Agent("sim:", tools=[wait], store="log.db")
threading.Thread(target=agent.run_sync, args=("!call wait {}", "SESSION")).start()
assert started.wait(60)
""",
    "hosted.md": "token = 'a-token'\nasync def perform(action): ...\ndef screenshot(): return b''",
    "mcp.md": "token = 'a-token'",
    "serve.md": SHOP
    + """
from pathlib import Path
shop = agent
Path("tokens.toml").write_text(f'[tokens.alice]\\nid = "{"0" * 16}"\\nhash = "{"0" * 64}"')
""",
    "temporal.md": """
from bridle import tool
@tool(effect="write")
def refund(order: str) -> str: return "refunded"
""",
    "stores.md": SHOP
    + """
from bridle.stores.memory import MemoryStore
store, session = MemoryStore(), "s"
agent = Agent("sim:", store=store)
agent.run_sync("Hello!", session)
def MyStore(*_): return MemoryStore()
""",
    "streaming.md": """
from bridle import Agent, tool
from bridle.stores.memory import MemoryStore
@tool(effect="read")
def get_weather(city: str) -> str: return "24 °C"
agent = Agent("sim:", tools=[get_weather], store=MemoryStore())
prompt = "Is it warmer in Tokyo or New York?"
""",
}
FILES = {
    "mcp.md": {"examples/mcp_notes.py": (ROOT / "examples" / "mcp_notes.py").read_text(encoding="utf-8")},
    "approvals.md": {
        "policy.toml": re.search(r"```toml\n(.*?)```", (DOCS / "approvals.md").read_text(), re.DOTALL)[1]
    },
    "configuration.md": {"support.toml": 'instructions = "Be brief."\nmodel = "sim:"\n'},
    "skills.md": {
        "skills/refunds/SKILL.md": "---\nname: refunds\ndescription: Pay money back.\n---\nAsk for the receipt.\n",
        "AGENTS.md": "Be kind.\n",
    },
}


def test_pages_that_other_tests_run_exist():
    assert set(ELSEWHERE) | set(BEFORE) | set(FILES) <= set(PAGES)


@pytest.fixture(scope="module")
def exports():
    """Variables that lead every client to `bridle sim`."""
    command = [sys.executable, "-m", "bridle.cli.main", "sim", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        yield json.loads(server.stdout.readline())["exports"]
        server.terminate()


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ELSEWHERE and page != "testing.md"])
def test_every_block_of_the_page_runs(page, exports, monkeypatch, tmp_path):
    run_page(page, exports, monkeypatch, tmp_path)


def test_the_page_that_replays_a_recording_runs(exports, monkeypatch, tmp_path):
    run_page("testing.md", exports, monkeypatch, tmp_path)


def run_page(page, exports, monkeypatch, tmp_path):
    if "find_sandbox" in "".join(PAGES[page]):
        try:
            find_sandbox(tmp_path)
        except Exception as refused:
            pytest.skip(str(refused))
    for name, value in exports.items():
        monkeypatch.setenv(name, value)
    project = tmp_path / "project"
    for name, text in {"empty": "", **FILES.get(page, {})}.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(project)
    module = types.ModuleType("a_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)  # dataclasses look their module up
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    with asyncio.Runner() as runner, serve_by_name({"shop": Agent("sim:")}) as served:
        for block in (BEFORE.get(page, ""), *PAGES[page]):
            run_block(block.replace(ADDRESS, served.url), page, module.__dict__, runner)


def run_block(block, page, names, runner):
    missing = [package for word, package in NEEDED.items() if word in block and not find_spec(package)]
    code = compile(block, str(DOCS / page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if missing:
        return
    if code.co_flags & inspect.CO_COROUTINE:
        runner.run(eval(code, names))
    else:
        exec(code, names)
