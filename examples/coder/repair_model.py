"""The offline model: it repairs a program by changing one operator at a time until its tests pass.

It knows nothing of programming. Its edits, commands and diffs are as real as those of any other model.
"""

from collections.abc import Iterator

from bridle import Reply
from bridle.testing import ConversationFacts, call_reply

TESTS = "python -m unittest 2>&1 | tail -15"
SWAPS = (
    (" - 1", " + 1"),
    (" + 1", " - 1"),
    (" < ", " <= "),
    (" <= ", " < "),
    (" == ", " != "),
    (" and ", " or "),
)
Edit = tuple[str, str, str]


def repair(facts: ConversationFacts) -> str | Reply:
    """Run the tests, read the program, and try one change after the other."""
    runs = [each for each in facts.exchanges if each.name == "shell"]
    if not runs:
        return call_reply(("shell", {"command": TESTS}), text="I run the tests first.")
    if runs[-1].is_error:
        return f"The tests cannot be run: {runs[-1].text}"
    tried = [each for each in facts.exchanges if each.name == "edit_file" and not each.is_error]
    if "\nOK" in runs[-1].text:
        if not tried:
            return "The tests pass; there is nothing to fix."
        path, old, new = (str(tried[-1].arguments[name]).strip() for name in ("path", "old_text", "new_text"))
        return f"Fixed {path}: `{old}` is now `{new}`. The tests pass."
    found = next((each for each in facts.exchanges if each.name == "glob"), None)
    if found is None:
        return call_reply(("glob", {"pattern": "*.py"}))
    files = [each for each in facts.exchanges if each.name == "read_file"]
    if not files:
        names = [name for name in found.text.split() if name.endswith(".py") and not name.startswith("test")]
        return call_reply(*(("read_file", {"path": name}) for name in names))
    sources = {str(each.arguments["path"]): strip_numbers(each.text) for each in files}
    candidates = list(list_edits(sources))
    attempt = len(runs) - 1
    if attempt >= len(candidates):
        return "I did not find the fault."
    undo = [] if attempt == 0 else [make_edit(reverse(candidates[attempt - 1]))]
    return call_reply(*undo, make_edit(candidates[attempt]), ("shell", {"command": TESTS}))


def strip_numbers(text: str) -> str:
    """The text of a file without the line numbers that `read_file` shows."""
    return "\n".join(line.partition("\t")[2] for line in text.splitlines())


def list_edits(sources: dict[str, str]) -> Iterator[Edit]:
    """Every change of one operator in a line that occurs once: path, old line, new line."""
    for path, text in sources.items():
        lines = [line for line in text.splitlines() if text.count(line) == 1]
        for line in lines:
            yield from ((path, line, line.replace(old, new, 1)) for old, new in SWAPS if old in line)


def make_edit(edit: Edit) -> tuple[str, dict[str, object]]:
    path, old, new = edit
    return "edit_file", {"path": path, "old_text": old, "new_text": new}


def reverse(edit: Edit) -> Edit:
    path, old, new = edit
    return path, new, old
