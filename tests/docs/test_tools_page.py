"""Pages of code: the blocks of each are one program, and it runs."""

import re
import sys
import types
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("name", "blocks_least"),
    [
        ("tools.md", 11),
        ("output.md", 5),
        ("context.md", 6),
        ("catalogue.md", 3),
        ("caching.md", 4),
        ("memory.md", 5),
        ("compaction.md", 4),
        ("tutorial.md", 5),
        ("lint.md", 1),
        ("models.md", 1),
        ("wire.md", 1),
        ("lineage.md", 1),
        ("schemas.md", 1),
        ("code_mode.md", 1),
        ("reference/agent.md", 1),
    ],
)
def test_every_block_of_the_page_runs(name, blocks_least, monkeypatch):
    run_blocks(name, blocks_least, monkeypatch)


def test_the_page_that_replays_a_recording_runs(monkeypatch):
    run_blocks("testing.md", 5, monkeypatch)


def run_blocks(name, blocks_least, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)
    assert len(blocks) >= blocks_least
    page = types.ModuleType("a_page")
    monkeypatch.setitem(sys.modules, page.__name__, page)  # dataclasses look their module up
    for block in blocks:
        exec(compile(block, str(DOCS / name), "exec"), page.__dict__)
