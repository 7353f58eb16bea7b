"""Programs as tools.

    bridle run "Where do the notes speak of a library?" --tools examples/commands.py

The words of a command are fixed; a name in braces is filled in as one word, and no shell
reads it.  `--` keeps a word that begins with a dash from being taken for an option.
"""

from pathlib import Path

from bridle import tool
from bridle.tools import CommandTool, run_process

HERE = Path(__file__).parent

search = CommandTool(
    "search",
    "Search the notes for a word; gives file, line number and line.",
    ["grep", "-rin", "--", "{word}", "notes"],
    cwd=HERE,
    exits=(0, 1),  # 1: nothing was found
    effect="read",
    timeout=10,
)


@tool(effect="read", timeout=10, errors=[ValueError])
async def count_words(note: str) -> int:
    """Count the words of a note.

    Args:
        note: Its file name, e.g. "library.txt".
    """
    ended = await run_process(["wc", "-w", "--", Path(note).name], cwd=HERE / "notes", timeout=5)
    if not ended.ok:
        raise ValueError(ended.stderr.strip())
    return int(ended.stdout.split()[0])
