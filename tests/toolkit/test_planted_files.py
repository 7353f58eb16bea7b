"""File tools and sandboxed commands plant nothing that another program runs when a person works in the folder next."""

import asyncio
import itertools
import os
import shutil
import subprocess

import pytest

from bridle import Agent, toolkit
from bridle.sandbox.launcher.settings_guard import SettingsGuard
from bridle.sandbox.launcher.startup_files import STARTUP_NAMES, find_startup_program, fold_name
from bridle.sandbox.protected_paths import PROTECTED_NAMES
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.toolkit.file_tools import FileTools
from bridle.toolkit.workspace import PathRefused, Workspace

CONFIG = '[core]\n\trepositoryformatversion = 0\n\tbare = {bare}\n\tfsmonitor = "touch {mark}; false"\n'
PIECES = {
    "HEAD": "ref: refs/heads/main\n",
    "config": "",
    "objects/keep": "",
    "refs/keep": "",
}
COMMON = {"HEAD": "ref: refs/heads/main\n", "commondir": "../parts\n", "config": ""}


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def run_git(folder):
    """What a person does next; with the defaults of git, so that only the missing layout can prevent the program."""
    plain = {"PATH": os.environ["PATH"], "HOME": str(folder.parent), "GIT_CONFIG_NOSYSTEM": "1"}
    for words in (["status"], ["--bare", "log"], ["--work-tree=.", "status"]):
        subprocess.run(["git", *words], cwd=folder, env=plain, capture_output=True, check=False)


def write_all(tools, folder, pieces):
    refused = 0
    for path, text in pieces:
        try:
            tools.write_file(f"{folder}/{path}", text)
        except PathRefused:
            refused += 1
    return refused


@pytest.mark.parametrize("folder", ["lib", "a/deep/folder", "."])
@pytest.mark.parametrize("order", list(itertools.permutations(PIECES)), ids="-".join)
def test_a_repository_is_not_completed_in_any_order(root, folder, order):
    mark = root.parent / "ran"
    texts = {**PIECES, "config": CONFIG.format(bare="false", mark=mark) + f"\tworktree = {root}\n"}
    assert write_all(FileTools(Workspace(root)), folder, [(name, texts[name]) for name in order])
    run_git(root / folder)
    assert not mark.exists()


def test_the_same_files_run_a_program_without_the_tools(root):
    mark = root.parent / "ran"
    texts = {**PIECES, "config": CONFIG.format(bare="false", mark=mark) + f"\tworktree = {root}\n"}
    for name, text in texts.items():
        (root / "lib" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "lib" / name).write_text(text)
    run_git(root / "lib")
    assert mark.exists()


@pytest.mark.parametrize("order", list(itertools.permutations(COMMON)), ids="-".join)
def test_a_repository_with_its_parts_elsewhere_is_not_completed(root, order):
    for name in ("objects", "refs"):
        (root / "parts" / name).mkdir(parents=True)
    assert write_all(FileTools(Workspace(root)), "tree", [(name, COMMON[name]) for name in order])


def test_calls_at_the_same_time_complete_no_repository(root):
    """Each of them adds another piece, and is harmless alone; calls on different files do not wait for each other."""
    for number in range(12):
        folder = f"lib{number}"
        calls = [
            ("write_file", {"path": f"{folder}/{name}", "content": text}) for name, text in PIECES.items()
        ]
        agent = Agent(scripted(call_reply(*calls), "ok"), tools=toolkit.files(root))
        assert agent.run_sync("?").stop == "done"
        assert not all((root / folder / name).exists() for name in ("HEAD", "objects", "refs"))


@pytest.mark.parametrize("written", ["HEAD", "refs/heads/main", "objects/keep"])
def test_a_piece_is_removed_if_another_process_adds_the_rest_while_it_is_written(root, monkeypatch, written):
    folder, sync = root / "lib", os.fsync

    def add_rest(descriptor):
        for name in {"HEAD", "objects", "refs"} - {written.partition("/")[0]}:
            (folder / name).mkdir(exist_ok=True)
        sync(descriptor)

    folder.mkdir()
    monkeypatch.setattr(os, "fsync", add_rest)
    with pytest.raises(PathRefused, match="repository"):
        FileTools(Workspace(root)).write_file(f"lib/{written}", "x")
    assert not (folder / written.partition("/")[0]).exists()


def test_a_repository_that_exists_is_read_and_not_written(root):
    subprocess.run(["git", "init", "-q", "--bare", root / "x.git"], check=True)
    tools = FileTools(Workspace(root))
    assert "bare = true" in tools.read_file("x.git/config")
    for path in ("x.git/config", "x.git/hooks/post-update", "x.git/info/deep/new", "x.git/new"):
        with pytest.raises(PathRefused, match="takes its folder for a repository"):
            tools.write_file(path, "x")
    assert tools.write_file("x.gitignore", "x").startswith("created")
    assert tools.write_file("notes/HEAD", "x").startswith("created")
    assert tools.write_file("notes/refs/a", "x").startswith("created")


VARIANTS = (
    ".git", ".GIT", ".Git", ".git.", ".git ", ".git::$INDEX_ALLOCATION", ".g\u200cit", ".\ufeffgit", ".\uff47\uff49\uff54", "GIT~1",
    "BRIDLE.TOML", "bridle.toml.",
)  # fmt: skip


@pytest.mark.parametrize("name", VARIANTS)
def test_a_name_that_a_file_system_folds_is_the_same_name(root, name):
    tools = FileTools(Workspace(root))
    if name == "GIT~1":  # a person is asked: on most disks it is an ordinary name
        assert tools.runs_at_startup(f"{name}/config")
        return
    with pytest.raises(PathRefused, match="is read-only"):
        tools.write_file(f"sub/{name}/x" if "git" in fold_name(name) else f"sub/{name}", "x")
    assert not any((root / "sub").rglob("x")) if (root / "sub").exists() else True


@pytest.mark.parametrize("name", sorted(STARTUP_NAMES.keys() - PROTECTED_NAMES))
def test_a_person_is_asked_before_a_startup_file_is_written(root, name):
    path = f"sub/{name}"
    agent = Agent(
        scripted(call_reply(("write_file", {"path": path, "content": "x"})), "done"),
        tools=toolkit.files(root),
    )
    result = asyncio.run(agent.run("go"))
    assert result.stop == "waiting"
    assert not (root / path).exists()
    assert "outside of the sandbox" in FileTools(Workspace(root)).preview_write(f"sub/{name.upper()}/x", "x")


def test_ordinary_files_are_written_without_a_question(root):
    names = (
        "Makefile",
        "package.json",
        "conftest.py",
        ".gitignore",
        ".github/workflows/ci.yml",
        "model.pth",
        "HEAD",
    )
    calls = [("write_file", {"path": name, "content": "x"}) for name in names]
    agent = Agent(scripted(call_reply(*calls), "done"), tools=toolkit.files(root))
    assert asyncio.run(agent.run("go")).stop == "done"
    assert all((root / name).read_text() == "x" for name in names)
    assert find_startup_program("lib/site-packages", "evil.pth") == "Python"


PLANTED = {
    "a repository": ("mkdir -p x/objects x/refs; echo 'ref: refs/heads/m' > x/HEAD", "x"),
    "one with its parts elsewhere": (
        "mkdir x; echo 'ref: refs/heads/m' > x/HEAD; echo .. > x/commondir",
        "x",
    ),
    "one that is renamed": ("mkdir -p y/objects y/refs; touch y/H; mv y/H y/HEAD; mv y x", "x"),
    "a name in capitals": ("mkdir .VSCODE; touch .VSCODE/tasks.json", ".VSCODE"),
    "a hook": ("mkdir x.git; git init -q --bare x.git; touch x.git/hooks/post-update", "x.git"),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_a_command_plants_is_reported(root, planted):
    command, found = PLANTED[planted]
    if "git init" in command and shutil.which("git") is None:
        pytest.skip("needs git")
    guard = SettingsGuard(str(root), ())
    subprocess.run(["sh", "-c", command], cwd=root, check=True)
    (note,) = guard.undo_changes()
    guard.close()
    assert note.startswith("new or changed: ") and repr(found) in note
