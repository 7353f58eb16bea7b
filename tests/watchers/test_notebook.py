"""Runs shown in a notebook: outputs that are updated in place, and the same in a real kernel if there is one."""

import asyncio
import importlib.util
import json
import sys
import textwrap
import types

import pytest

from bridle import Agent, MisuseError, TextDelta, tool
from bridle.watchers import NotebookView
from bridle.watchers.notebook import PartialReply
from tests.suite.wire_models import MODELS


class Cell:
    """`display` of IPython as far as the view uses it; keeps every state of every output."""

    def __init__(self):
        self.outputs = []

    def display(self, data, *, raw, display_id):
        assert raw and display_id
        states = [data]
        self.outputs.append(states)

        def update(data, *, raw):
            assert raw
            states.append(data)

        return types.SimpleNamespace(update=update)

    def last_texts(self):
        return [states[-1]["text/plain"] for states in self.outputs]


@pytest.fixture
def cell(monkeypatch):
    found = Cell()
    module = types.ModuleType("IPython.display")
    module.display = found.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", types.ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    return found


@tool(effect="read")
def look(where: str) -> str:
    """Look."""
    return f"seen <b>{where}</b>"


@tool(effect="write", approve=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


PROMPT = '!call look {"where": "here"}\n!then\n!say ' + "It is here, as far as one can see. " * 20


async def watch(agent, prompt):
    return [item async for item in agent.stream(prompt)]


@pytest.mark.parametrize("model", MODELS)
def test_a_streamed_run_is_shown_in_place(cell, model):
    agent = Agent(model, tools=[look], watchers=[NotebookView()])
    shown = asyncio.run(watch(agent, PROMPT))
    prompt, calls, result, answer = cell.outputs
    assert len(prompt) == len(calls) == 1
    assert result[0]["text/plain"].startswith("running look(") and "seen" in result[-1]["text/plain"]
    assert "&lt;b&gt;here&lt;/b&gt;" in result[-1]["text/html"]
    assert len(answer) > 3
    growing = [len(state["text/plain"]) for state in answer]
    assert growing == sorted(growing)
    assert answer[-1]["text/plain"] == f"assistant: {shown[-1].result.text}"


@pytest.mark.parametrize("how", ["run_sync", "run"])
def test_a_run_without_deltas_is_shown_too(cell, how):
    agent = Agent("sim:", tools=[look], watchers=[NotebookView()])
    agent.run_sync(PROMPT) if how == "run_sync" else asyncio.run(agent.run(PROMPT))
    assert len(cell.outputs) == 4
    assert cell.last_texts()[-1].startswith("assistant: It is here")


def test_the_end_of_a_run_that_failed_is_shown(cell):
    agent = Agent("sim:", tools=[pay], watchers=[NotebookView()])
    waiting = agent.run_sync('!call pay {"amount": 7}\n!then\n!say done')
    assert waiting.stop == "waiting"
    assert any(text.startswith("approval needed: pay(") for text in cell.last_texts())
    assert cell.last_texts()[-1].startswith("waiting: ")


def test_a_reply_that_is_asked_for_again_starts_a_new_output(cell):
    from bridle.testing import FakeClock, simulator

    async def main():
        clock = FakeClock()
        async with simulator(
            "All is well, as far as anyone can see.", clock=clock, faults=["stall-midway"]
        ) as sim:
            return await watch(Agent(sim.model(), clock=clock, watchers=[NotebookView()]), "Hello?")

    asyncio.run(main())
    assert cell.last_texts()[-1] == "assistant: All is well, as far as anyone can see."


def test_updates_of_a_long_reply_stay_proportional_to_it():
    reply, shown = PartialReply(), 0
    for _ in range(100_000):
        if reply.add(TextDelta(text="ab")):
            shown += len(reply.message.text)
    assert shown < 40 * 200_000


def test_without_a_notebook_it_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with pytest.raises(MisuseError, match="pip install ipython"):
        NotebookView()


# ── in a real kernel: `make oracles` installs it ────────────────────────────

NOTEBOOK = (
    """
    from bridle import Agent, Transcript, tool
    from bridle.watchers import NotebookView

    @tool(effect="read")
    def look(where: str) -> str:
        "Look."
        return f"seen <script>{where}</script>"

    agent = Agent("sim:", tools=[look], watchers=[NotebookView()])
    prompt = '!call look {"where": "here"}\\n!then\\n!say ' + "It is here, as far as one can see. " * 20
    """,
    "result = agent.run_sync(prompt)",
    "async for event in agent.stream(prompt): pass",
    "result",
    "Transcript(messages=result.messages)",
)


@pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("nbclient", "ipykernel"))),
    reason="nbclient and ipykernel are not installed; `make oracles` installs them",
)
def test_a_real_kernel_shows_it(tmp_path):
    import nbclient
    import nbformat

    cells = [nbformat.v4.new_code_cell(textwrap.dedent(source)) for source in NOTEBOOK]
    book = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(book, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell in book.cells[1:3]:
        outputs = [output for output in cell.outputs if output.output_type == "display_data"]
        assert len(outputs) == 4, json.dumps(cell.outputs)[:2000]
        assert "It is here" in outputs[-1].data["text/html"]
        assert "&lt;script&gt;here" in outputs[2].data["text/html"]
        assert "running look" not in outputs[2].data["text/html"]
    for cell in book.cells[3:]:
        (output,) = cell.outputs
        html = output.data["text/html"]
        assert "&lt;script&gt;here" in html and "<script" not in html
