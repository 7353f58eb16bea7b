"""docs/tools.md: its blocks are one program, and it runs."""

import re
import sys
import types
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "tools.md"


def test_every_block_of_the_page_runs(monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) > 10
    page = types.ModuleType("tools_page")
    monkeypatch.setitem(sys.modules, page.__name__, page)  # dataclasses look their module up
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), page.__dict__)
