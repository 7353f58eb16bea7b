"""The tools of a workspace: read, write, edit, list, find and search files.

A change returns a receipt: one line that names the file and the hash of its new content, and a diff without
context.  The receipt is in the log, and is all that undoing the change needs; undoing refuses if the file is no longer
what the change wrote.

A change of a file from which programs run something without being told to (sandbox/launcher/startup_files.py) needs the
approval of a person; one of a repository is refused.
"""

import re
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Unpack

from bridle.ports.tool import ANY_ERROR, Tool
from bridle.tools.function.function_tool import FunctionTool
from bridle.tools.function.options import ToolOptions
from bridle.tools.process.run_process import run_process

from .search_files import FOUND_MAX, SKIPPED_FOLDERS, find_files
from .text_diff import make_diff, reverse_diff
from .workspace import Entry, FileState, PathMissing, Workspace

LINES_DEFAULT = 2_000
# not from outside: our own text, shown to a person or a model
LINE_CHARACTERS_MAX = 2_000
PREVIEW_CONTEXT_LINES = 3
HASH_LENGTH = 16
SEARCH_SECONDS = 20.0
# not from outside: our own text, shown to a person or a model
SEARCH_BYTES_MAX = 64 * 1024
_RECEIPT = re.compile(r"(created|changed) .* \(sha256 ([0-9a-f]+)\)")


class FileTools:
    """The functions that a model calls, for one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def read_file(self, path: str, start_line: int = 1, line_count: int = LINES_DEFAULT) -> str:
        """Read a text file, or part of a long one. Lines are numbered; the number and the tab after it are not
        part of the file.

        Args:
            path: Path of the file, relative to the workspace.
            start_line: First line to read, from 1.
            line_count: Number of lines to read.
        """
        if start_line < 1 or line_count < 1:
            raise ValueError("start_line and line_count must be 1 or more")
        text = self._workspace.read_text(path).text
        lines = text.removesuffix("\n").split("\n") if text else []
        if not lines:
            return f"[{path} is empty]"
        shown = lines[start_line - 1 : start_line - 1 + line_count]
        if not shown:
            raise ValueError(f"{path!r} has {len(lines):,} lines; there is no line {start_line:,}")
        numbered = [f"{at}\t{_cut_line(line)}" for at, line in enumerate(shown, start_line)]
        last = start_line + len(shown) - 1
        if last < len(lines):
            numbered.append(
                f"[lines {start_line}-{last} of {len(lines)}; continue with start_line={last + 1}]"
            )
        return "\n".join(numbered)

    def write_file(self, path: str, content: str) -> str:
        """Create a text file, or replace all of its content. Folders of the path are created. To change part of a
        file, use edit_file.

        Args:
            path: Path of the file, relative to the workspace.
            content: The complete content.
        """
        before = self._find_file(path)
        return self._change_file(path, before, content)

    def edit_file(self, path: str, old_text: str, new_text: str, replace_all: bool = False) -> str:  # noqa: FBT001, FBT002
        """Replace a text in a file by another. The old text must occur exactly once, or replace_all be true: include
        enough lines around it to make it unique, and copy spaces exactly.

        Args:
            path: Path of the file, relative to the workspace.
            old_text: Text to replace, exactly as in the file, without line numbers.
            new_text: Text to put in its place.
            replace_all: Replace every occurrence.
        """
        before = self._workspace.read_text(path)
        return self._change_file(
            path, before, _replace_text(path, before.text, old_text, new_text, replace_all)
        )

    def list_folder(self, path: str = ".") -> str:
        """List a folder: names, sizes in bytes, folders with a slash at the end.

        Args:
            path: Path of the folder, relative to the workspace.
        """
        entries = self._workspace.list_folder(path)
        if not entries:
            return f"[{path} is empty]"
        shown = [_format_entry(entry) for entry in entries[:FOUND_MAX]]
        if len(entries) > FOUND_MAX:
            shown.append(f"[{len(entries) - FOUND_MAX:,} more entries; use glob]")
        return "\n".join(shown)

    def glob(self, pattern: str, path: str = ".") -> str:
        """Find files by name. `*` and `?` match within a name, `**` matches any number of folders, as in
        `src/**/*.py`. Folders with dependencies and caches are skipped unless `path` is inside them.

        Args:
            pattern: Pattern for paths below `path`.
            path: Folder to search in, relative to the workspace.
        """
        found = find_files(self._workspace, pattern, path)
        if not found:
            return f"[no file matches; not searched: {', '.join(sorted(SKIPPED_FOLDERS))}]"
        shown = found[:FOUND_MAX]
        return "\n".join(
            [*shown, f"[more than {FOUND_MAX} files match]"] if len(found) > FOUND_MAX else shown
        )

    async def grep(self, pattern: str, path: str = ".", glob: str = "**", ignore_case: bool = False) -> str:  # noqa: FBT001, FBT002
        """Search the text of files with a regular expression (Python syntax). Returns lines as path:line:text.

        Args:
            pattern: Regular expression, matched within one line.
            path: File or folder to search in, relative to the workspace.
            glob: Pattern of the paths to search, such as `**/*.py`.
            ignore_case: Match letters of either case.
        """
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"{pattern!r} is not a regular expression: {error}") from None
        # A process of its own: some patterns take for ever, and would block every thread of this one.
        words = [
            "-m",
            "bridle.toolkit.search_files",
            str(self._workspace.root),
            self._workspace.identity,
            path,
            glob,
            "i" if ignore_case else "",
        ]
        ended = await run_process(
            [sys.executable, "-I", *words],
            stdin=pattern,
            timeout=SEARCH_SECONDS,
            output_bytes_max=SEARCH_BYTES_MAX,
        )
        if ended.timed_out:
            raise TimeoutError(
                f"the search was stopped after {SEARCH_SECONDS:g} s; use a simpler pattern or a smaller folder"
            )
        if not ended.ok:
            raise ValueError(
                ended.stderr.strip().rpartition("\n")[2] or f"the search failed with {ended.exit_code}"
            )
        return ended.stdout or "[no match]"

    def preview_write(self, path: str, content: str) -> str:
        """The diff that a person sees before `write_file` runs."""
        before = self._find_file(path)
        diff = make_diff(path, before.text if before else "", content, context=PREVIEW_CONTEXT_LINES)
        return self._describe_startup(path) + diff

    def preview_edit(self, path: str, old_text: str, new_text: str, replace_all: bool) -> str:  # noqa: FBT001
        """The diff that a person sees before `edit_file` runs."""
        text = self._workspace.read_text(path).text
        after = _replace_text(path, text, old_text, new_text, replace_all)
        return self._describe_startup(path) + make_diff(path, text, after, context=PREVIEW_CONTEXT_LINES)

    def runs_at_startup(self, path: str) -> bool:
        """True if a program runs what the file names without being told to: a person must approve the change."""
        return bool(self._workspace.find_startup_program(path))

    def _describe_startup(self, path: str) -> str:
        program = self._workspace.find_startup_program(path)
        return f"{program} runs what this file names, outside of the sandbox\n" if program else ""

    def undo_file_change(self, path: str, receipt: str) -> str:
        """Restore the content that a file had before a change, if it is still what the change wrote."""
        head, _, diff = receipt.partition("\n")
        found = _RECEIPT.match(head)
        if found is None:
            if head.startswith("unchanged"):
                return f"{path} had not been changed"
            raise ValueError(f"the receipt of the change of {path!r} cannot be read; nothing was undone")
        now = self._workspace.read_text(path)
        if _hash_text(now.text) != found[2]:
            raise ValueError(f"{path!r} is no longer what the change wrote; nothing was undone")
        if found[1] == "created":
            self._workspace.remove(path, now)
            return f"removed {path}"
        self._workspace.write_text(path, reverse_diff(diff, now.text), now)
        return f"restored {path}"

    def claim_file(self, path: str) -> str:
        """The resource of a call: calls on one file run in order."""
        return f"file:{self._workspace.root}/{self._workspace.name_path(path)}"

    def _find_file(self, path: str) -> FileState | None:
        try:
            return self._workspace.read_text(path)
        except PathMissing:
            return None

    def _change_file(self, path: str, before: FileState | None, after: str) -> str:
        if before is not None and before.text == after:
            return f"unchanged {path}: it has this content already"
        self._workspace.write_text(path, after, before)
        done = "created" if before is None else "changed"
        head = f"{done} {path} (sha256 {_hash_text(after)})"
        return head if before is None else f"{head}\n{make_diff(path, before.text, after)}"


class WorkspaceFunction(FunctionTool[..., object, object]):
    """A function whose calls can write the files of a folder."""

    def __init__(
        self, workspace: Path, function: Callable[..., object], **options: Unpack[ToolOptions]
    ) -> None:
        options["errors"] = ANY_ERROR
        super().__init__(function, **options)
        # guard: file-tools-workspace
        self.workspace = workspace


def make_file_tools(workspace: Workspace, *, read_only: bool = False) -> list[Tool]:
    """The file tools as an agent takes them."""
    made = FileTools(workspace)

    def make(function: Callable[..., object], **options: Unpack[ToolOptions]) -> Tool:
        return WorkspaceFunction(workspace.root, function, **options)

    claim, undo = made.claim_file, made.undo_file_change
    tools = [
        make(made.read_file, effect="read", resource=claim),
        make(made.list_folder, effect="read"),
        make(made.glob, effect="read"),
        make(made.grep, effect="read"),
    ]
    if not read_only:
        for change, preview in (
            (made.write_file, made.preview_write),
            (made.edit_file, made.preview_edit),
        ):
            tools.append(
                make(
                    change,
                    effect="write",
                    resource=claim,
                    approve=made.runs_at_startup,
                    compensate=undo,
                    preview=preview,
                )
            )
    return tools


def _replace_text(path: str, text: str, old: str, new: str, replace_all: bool) -> str:  # noqa: FBT001
    """The edited text; raises ValueError, with what to do next, unless the old text is found as often as expected."""
    if not old:
        raise ValueError("old_text is empty; use write_file for a new file")
    if old == new:
        raise ValueError("old_text and new_text are equal; nothing would change")
    count = text.count(old)
    if count == 0:
        hint = ""
        if "\r\n" in text and "\n" in old and "\r\n" not in old:
            hint = " (the lines of the file end in \\r\\n)"
        elif " ".join(old.split()) in " ".join(text.split()):
            hint = " (it occurs with other spaces or line ends)"
        raise ValueError(
            f"old_text does not occur in {path!r}{hint}; read the file and copy the text exactly"
        )
    if count > 1 and not replace_all:
        lines = [text.count("\n", 0, at) + 1 for at in _find_places(text, old)]
        raise ValueError(
            f"old_text occurs {count} times in {path!r}, at lines {', '.join(map(str, lines[:10]))};"
            " add lines around it to make it unique, or set replace_all"
        )
    return text.replace(old, new)


def _find_places(text: str, part: str) -> list[int]:
    found, at = list[int](), text.find(part)
    while at >= 0:
        found.append(at)
        at = text.find(part, at + len(part))
    return found


def _hash_text(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:HASH_LENGTH]


def _cut_line(line: str) -> str:
    cut = len(line) - LINE_CHARACTERS_MAX
    return line if cut <= 0 else f"{line[:LINE_CHARACTERS_MAX]} [… {cut:,} more characters]"


def _format_entry(entry: Entry) -> str:
    if entry.special:
        return f"{entry.name}  [{entry.special}]"
    return f"{entry.name}/" if entry.is_folder else f"{entry.name}  {entry.size:,}"
