"""File tools stay in their folder, whatever the paths, the links and other threads do."""

import asyncio
import ctypes
import os
import socket
import stat
import threading
from contextlib import chdir, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridle import MisuseError
from bridle.toolkit.file_tools import FileTools
from bridle.toolkit.search_files import match_path
from bridle.toolkit.text_diff import make_diff, reverse_diff
from bridle.toolkit.workspace import FILE_BYTES_MAX, PathRefused, Workspace
from tests.suite.campaign import scale

AT_FDCWD, RENAME_EXCHANGE = -100, 2
RENAME = ctypes.CDLL(None).renameat2


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text("SECRET")
    return folder


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "work"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("one\ntwo\nthree\n")
    return folder


@pytest.fixture
def tools(root):
    return FileTools(Workspace(root))


def test_lines_are_numbered_and_long_files_are_read_in_parts(tools, root):
    assert tools.read_file("a.txt") == "1\tone\n2\ttwo\n3\tthree"
    assert tools.read_file("a.txt", 2, 1) == "2\ttwo\n[lines 2-2 of 3; continue with start_line=3]"
    with pytest.raises(ValueError, match="has 3 lines"):
        tools.read_file("a.txt", 4)
    (root / "long.txt").write_text("x" * 5_000)
    assert tools.read_file("long.txt").endswith("[… 3,000 more characters]")
    (root / "empty.txt").write_text("")
    assert tools.read_file("empty.txt") == "[empty.txt is empty]"


TO_SECRET = (
    "../outside/secret.txt",
    "sub/../../outside/secret.txt",
    "to_file",
    "to_folder/secret.txt",
    "sub/up/outside/secret.txt",
    "absolute",
    "chain1",
)
OTHERS = (
    "/etc/passwd",
    "sub/../../../../../../etc/passwd",
    "//etc/passwd",
    "a.txt/../../outside/secret.txt",
    "loop",
    "a\0b",
    "fifo",
    "socket",
    "device",
    "sub",
    "sub/sub2/../" * 3_000 + "absent",
)


@pytest.fixture
def traps(root, outside):
    """Links that leave the workspace, and files that are not regular."""
    (root / "to_file").symlink_to("../outside/secret.txt")
    (root / "to_folder").symlink_to("../outside")
    (root / "sub" / "up").symlink_to("../..")
    (root / "absolute").symlink_to(outside / "secret.txt")
    (root / "chain1").symlink_to("sub/chain2")
    (root / "sub" / "chain2").symlink_to("../to_folder/secret.txt")
    (root / "loop").symlink_to("loop")
    (root / "device").symlink_to("/dev/zero")
    os.mkfifo(root / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    with chdir(root):  # the path of a socket must be short
        listener.bind("socket")
    listener.close()


@pytest.mark.usefixtures("traps")
@pytest.mark.parametrize("path", [*TO_SECRET, *OTHERS])
def test_what_is_not_a_file_of_the_workspace_is_refused(tools, outside, path):
    for attempt in (
        lambda: tools.read_file(path),
        lambda: tools.write_file(path, "x"),
        lambda: tools.edit_file(path, "S", "x"),
    ):
        with pytest.raises((PathRefused, OSError)):
            attempt()
    assert (outside / "secret.txt").read_text() == "SECRET"
    assert sorted(item.name for item in outside.iterdir()) == ["secret.txt"]


@pytest.mark.usefixtures("traps")
@pytest.mark.parametrize("path", TO_SECRET)
def test_the_same_paths_lead_outside_without_the_workspace(root, outside, path):
    """The list proves something: plain functions of Python read and write the file outside."""
    assert (root / path).read_text() == "SECRET"
    (root / path).write_text("x")
    assert (outside / "secret.txt").read_text() == "x"


@pytest.mark.usefixtures("traps")
def test_special_files_are_opened_without_the_workspace(root):
    assert (root / "/etc/passwd").read_text()
    with (root / "device").open("rb") as endless:
        assert endless.read(3) == bytes(3)
    with os.fdopen(os.open(root / "fifo", os.O_RDWR), "w+b", buffering=0) as pipe:
        pipe.write(b"S")
        assert pipe.read(1) == b"S"


def test_links_inside_are_followed_and_keep_being_links(tools, root):
    (root / "link.txt").symlink_to("a.txt")
    (root / "folder").symlink_to("sub")
    (root / "sub" / "b.txt").write_text("b\n")
    (root / "absolute").symlink_to(root / "sub" / "b.txt")
    (root / "sub" / "back").symlink_to("../a.txt")
    assert tools.read_file("link.txt").startswith("1\tone")
    assert tools.read_file("folder/b.txt") == tools.read_file("absolute") == "1\tb"
    assert tools.read_file("folder/back").startswith("1\tone")
    tools.edit_file("link.txt", "two", "2")
    assert (root / "link.txt").is_symlink() and "2\n" in (root / "a.txt").read_text()
    assert (
        tools.claim_file("folder/../link.txt")
        == tools.claim_file("./a.txt")
        == tools.claim_file("sub/../a.txt")
    )


def exchange(one, other):
    """Exchange two names atomically."""
    RENAME(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)


@contextmanager
def swap_names(one, other):
    """Exchange two names without end, in a thread."""
    done = threading.Event()

    def swap():
        while not done.is_set():
            exchange(one, other)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("path", ["swap/secret.txt", "swap"])
def test_what_becomes_a_link_just_before_it_is_opened_is_refused(tools, root, outside, monkeypatch, path):
    """The moment between a check and the opening, which a thread seldom meets."""
    place, link, real = root / "swap", root / "link", os.open
    if path == "swap":
        place.write_text("S")
        link.symlink_to("../outside/secret.txt")
    else:
        place.mkdir()
        (root / path).write_text("S")
        link.symlink_to("../outside")

    def swap_and_open(name, *rest, **options):
        if name == "swap" and link.is_symlink():
            exchange(place, link)
        return real(name, *rest, **options)

    monkeypatch.setattr(os, "open", swap_and_open)
    for attempt in (
        tools.read_file,
        lambda path: tools.write_file(path, "x"),
        lambda path: tools.edit_file(path, "S", "x"),
    ):
        with pytest.raises(PathRefused):
            attempt(path)
        assert place.is_symlink()
        exchange(place, link)
    assert (outside / "secret.txt").read_text() == "SECRET"


def test_a_thread_that_swaps_a_folder_and_a_link_gets_nothing_out(tools, root, outside):
    (root / "swap").mkdir()
    (root / "swap" / "secret.txt").write_text("inside")
    (root / "link").symlink_to(outside)
    seen, refused = set(), 0
    with swap_names(root / "swap", root / "link"):
        for at in range(100_000):
            try:
                seen.add(tools.read_file("swap/secret.txt"))
                tools.write_file("swap/new.txt", f"written {at}")
            except PathRefused:
                refused += 1
            if refused > 200 and seen:
                break
    assert seen == {"1\tinside"} and refused
    assert [item.name for item in outside.iterdir()] == ["secret.txt"]


@pytest.mark.slow
def test_a_file_swapped_for_a_link_is_replaced_and_never_followed(tools, root, outside):
    (root / "t.txt").write_text("inside\n")
    (root / "link").symlink_to(outside / "secret.txt")
    refused = 0
    with swap_names(root / "t.txt", root / "link"):
        for at in range(scale(2_000, least=500)):
            try:
                assert "SECRET" not in tools.read_file("t.txt")
                tools.write_file("t.txt", f"inside {at}\n")
            except PathRefused:
                refused += 1
            if refused > 20 and at > scale(300, least=60):
                break
    assert refused
    assert (outside / "secret.txt").read_text() == "SECRET"


def test_a_write_keeps_the_mode_breaks_hard_links_and_leaves_no_other_file(tools, root, outside):
    os.link(outside / "secret.txt", root / "hard.txt")
    (root / "hard.txt").chmod(0o4750)
    tools.write_file("hard.txt", "new")
    assert (outside / "secret.txt").read_text() == "SECRET"
    assert stat.S_IMODE((root / "hard.txt").stat().st_mode) == 0o750
    tools.write_file("deep/er/new.txt", "x")
    assert (root / "deep" / "er" / "new.txt").read_text() == "x"
    assert sorted(item.name for item in root.iterdir()) == ["a.txt", "deep", "hard.txt", "sub"]


def test_binary_and_large_files_are_said_to_be_that(tools, root):
    (root / "b.bin").write_bytes(b"\x7fELF\0\0")
    (root / "latin.txt").write_bytes("é".encode("latin-1"))
    with (root / "large.txt").open("wb") as file:
        file.truncate(FILE_BYTES_MAX + 1)
    for path, why in (
        ("b.bin", "is a binary file of 6 bytes"),
        ("latin.txt", "is not UTF-8 text"),
        ("large.txt", "has more than"),
    ):
        for attempt in (tools.read_file, lambda name: tools.write_file(name, "x")):
            with pytest.raises(PathRefused, match=why):
                attempt(path)
    with pytest.raises(PathRefused, match="at most"):
        tools.write_file("new.txt", "x" * (FILE_BYTES_MAX + 1))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("four", "4", "does not occur"),
        ("e", "E", r"occurs 3 times in 'a.txt', at lines 1, 3, 3;"),
        ("one  two", "x", "other spaces"),
        ("", "x", "old_text is empty"),
        ("one", "one", "are equal"),
    ],
)
def test_an_edit_needs_exactly_one_place(tools, root, old, new, why):
    with pytest.raises(ValueError, match=why):
        tools.edit_file("a.txt", old, new)
    assert (root / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_every_place_is_replaced_if_asked_for(tools, root):
    tools.edit_file("a.txt", "e", "E", replace_all=True)
    assert (root / "a.txt").read_text() == "onE\ntwo\nthrEE\n"
    (root / "dos.txt").write_bytes(b"a\r\nb\r\n")
    with pytest.raises(ValueError, match=r"end in \\r\\n"):
        tools.edit_file("dos.txt", "a\nb", "c")
    tools.edit_file("dos.txt", "a", "c")
    assert (root / "dos.txt").read_bytes() == b"c\r\nb\r\n"


def test_git_is_read_and_never_written(tools, root):
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".git" / "config").write_text("[core]\n")
    (root / "g").symlink_to(".git")
    assert tools.read_file(".git/config") == "1\t[core]"
    for path in (
        ".git/hooks/pre-commit",
        ".git/config",
        ".GIT/config",
        "g/config",
        "new/.git/config",
        "sub/.git",
    ):
        with pytest.raises(PathRefused, match="read-only"):
            tools.write_file(path, "x")
    assert not list((root / ".git" / "hooks").iterdir())


def test_paths_with_control_characters_are_not_created(tools, root):
    for path in ("a\nb.txt", "sub\r/x", "\x1b[2J", "a\u2028b"):
        with pytest.raises(PathRefused, match="has control characters"):
            tools.write_file(path, "x")
    assert not (root / "a\nb.txt").exists()
    with pytest.raises(PathRefused, match=r"^'/etc/passwd' is outside"):
        tools.read_file("/etc/passwd")
    (root / "out").symlink_to("/etc")
    with pytest.raises(PathRefused, match=r"^'out/passwd' is outside"):
        tools.read_file("out/passwd")


def test_settings_of_bridle_are_never_written(tools, root):
    (root / "pyproject.toml").write_text('[project]\nname = "a"\n')
    for path in ("bridle.toml", "Bridle.TOML", "sub/bridle.toml"):
        with pytest.raises(PathRefused, match="read-only"):
            tools.write_file(path, "x")
    tools.edit_file("pyproject.toml", '"a"', '"b"')
    for path in ("pyproject.toml", "sub/pyproject.toml"):
        with pytest.raises(PathRefused, match="read-only"):
            tools.write_file(path, '["tool"."br\\u0069dle"]\ntools = ["evil.py"]\n')
    assert (root / "pyproject.toml").read_text() == '[project]\nname = "b"\n'


def test_a_change_is_undone_only_while_the_file_is_what_it_wrote(tools, root):
    for change in (
        lambda: tools.edit_file("a.txt", "two\n", ""),
        lambda: tools.write_file("a.txt", "other\n@@ -1,1 +1,1 @@\n--- x\nno newline"),
        lambda: tools.write_file("a.txt", ""),
    ):
        before = (root / "a.txt").read_text()
        receipt = change()
        assert tools.undo_file_change("a.txt", receipt) == "restored a.txt"
        assert (root / "a.txt").read_text() == before
        with pytest.raises(ValueError, match="no longer what the change wrote"):
            tools.undo_file_change("a.txt", receipt)
        change()
    receipt = tools.write_file("new.txt", "x")
    (root / "new.txt").write_text("by a person")
    with pytest.raises(ValueError, match="nothing was undone"):
        tools.undo_file_change("new.txt", receipt)
    (root / "new.txt").write_text("x")
    tools.undo_file_change("new.txt", receipt)
    assert not (root / "new.txt").exists()
    assert tools.write_file("a.txt", (root / "a.txt").read_text()).startswith("unchanged")


texts = st.lists(
    st.sampled_from(
        ["a", "b", "\n", "\r", "-", "+", "@@ -1,1 +1,1 @@", "\\ No newline at end of file", "\u2028", " "]
    ),
    max_size=30,
).map("".join)


@given(texts, texts)
def test_a_diff_leads_back_to_the_older_text(before, after):
    assert reverse_diff(make_diff("f", before, after), after) == before


def test_a_diff_reads_like_others():
    shown = make_diff("f.py", "a\nb\nc\nd\ne\n", "a\nb\nC\nd\ne", context=1)
    assert (
        shown == "--- f.py\n+++ f.py\n@@ -2,4 +2,4 @@\n b\n-c\n+C\n d\n-e\n+e\n\\ No newline at end of file"
    )
    assert make_diff("f", "same", "same") == ""
    many = "".join(f"{at}\n" for at in range(9_000))
    assert reverse_diff(make_diff("f", many, many.replace("\n", " \n")), many.replace("\n", " \n")) == many


@pytest.mark.parametrize(
    ("path", "pattern", "matches"),
    [
        ("a.py", "*.py", True),
        ("src/a.py", "*.py", False),
        ("src/a.py", "**/*.py", True),
        ("a.py", "**/*.py", True),
        ("src/x/a.py", "src/**", True),
        ("src/x/a.py", "src/**/a.py", True),
        ("src/a.py", "src/**/a.py", True),
        ("lib/a.py", "src/**", False),
        ("a/b/c/d", "a/**/c/**/d", True),
        ("a/b/d", "a/**/c/**/d", False),
        ("a" * 200, "*a" * 30 + "b", False),
    ],
)
def test_patterns(path, pattern, matches):
    assert match_path(path.split("/"), pattern.split("/")) is matches


def test_files_are_found_by_name_and_by_content(tools, root, outside):
    (root / "sub" / "b.py").write_text("import os\nprint(1)\n")
    (root / "node_modules").mkdir()
    (root / "node_modules" / "c.py").write_text("import os\n")
    (root / "out").symlink_to(outside)
    (root / "b.bin").write_bytes(b"import\0")
    assert tools.glob("**/*.py") == "sub/b.py"
    assert tools.glob("*.py", "sub") == "sub/b.py"
    assert tools.glob("*.py", "node_modules") == "node_modules/c.py"
    assert tools.glob("*.rs").startswith("[no file matches")
    assert tools.list_folder() == "a.txt  14\nb.bin  7\nnode_modules/\nout  [link]\nsub/"

    def grep(*words, **options):
        return asyncio.run(tools.grep(*words, **options))

    assert (
        grep("import")
        == "sub/b.py:1:import os\n[1 files not searched: binary, not readable, or above 10,485,760 bytes]\n"
    )
    assert grep("IMPORT", "sub/b.py", ignore_case=True) == "sub/b.py:1:import os\n"
    assert grep("SECRET", glob="**/*.txt") == "[no match]"
    for attempt in (
        lambda: grep("S", "out"),
        lambda: grep("S", "../outside"),
        lambda: tools.glob("*", "out"),
        lambda: tools.glob("../*"),
        lambda: tools.list_folder("out"),
    ):
        with pytest.raises(ValueError, match=r"outside of the workspace|cannot contain"):
            attempt()
    with pytest.raises(ValueError, match="is not a regular expression"):
        grep("(")


def test_an_endless_pattern_search_is_stopped(tools, root, monkeypatch):
    monkeypatch.setattr("bridle.toolkit.file_tools.SEARCH_SECONDS", 1.0)
    (root / "a.txt").write_text("a" * 50 + "b")
    with pytest.raises(TimeoutError, match="simpler pattern"):
        asyncio.run(tools.grep("(a+)+$"))


def test_a_home_folder_is_no_workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "project").mkdir(parents=True)
    for path in ("/", tmp_path, tmp_path / "home"):
        with pytest.raises(MisuseError, match="holds your home folder"):
            Workspace(path)
    Workspace(tmp_path / "home" / "project")
    with pytest.raises(MisuseError, match="is not a folder"):
        Workspace(tmp_path / "absent")
