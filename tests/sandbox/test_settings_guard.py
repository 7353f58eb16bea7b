"""The search for new settings: nothing outside is touched, nothing is hidden, and it ends."""

import asyncio
import os
import shutil
import signal
import sys
import time

import pytest

from bridle.sandbox.launcher import settings_scan
from bridle.sandbox.launcher.settings_guard import SettingsGuard, adds_settings
from bridle.sandbox.local import MECHANISMS, LocalSandbox, find_problem
from bridle.tools import run_process
from bridle.tools.process.run_process import RunningProcess
from tests.suite.patience import PATIENCE_SECONDS

SETTINGS = '[tool.bridle]\ntools = ["evil.py"]\n'
PROJECT = '[project]\nname = "a"\n'


@pytest.fixture
def workspace(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def guard(workspace):
    return lambda *protected: SettingsGuard(str(workspace), [str(path) for path in protected])


async def wait_until(look):
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not look():
            await asyncio.sleep(0.01)


def find_planted(workspace):
    return [str(path.relative_to(workspace)) for path in workspace.rglob("bridle.toml")]


@pytest.mark.parametrize("name", ["bridle.toml", "pyproject.toml"])
def test_a_folder_that_becomes_a_link_leads_to_nothing_outside(workspace, tmp_path, monkeypatch, guard, name):
    """At every step between the search and the end, the folder is exchanged for a link to one outside."""
    (workspace / "sub").mkdir()
    (workspace / "sub" / "pyproject.toml").write_text(PROJECT)
    outside = tmp_path / "outside"
    calls = {"open": os.open, "rename": os.rename, "lstat": os.lstat}
    for step in range(60):
        shutil.rmtree(outside, ignore_errors=True)
        outside.mkdir()
        (outside / name).write_text("the user's own")
        made = guard()
        (workspace / "sub" / name).write_text(SETTINGS)
        count, is_reached = 0, False

        def swap(call, step=step):
            def run(*words, **options):
                nonlocal count, is_reached
                count += 1
                if count == step + 1:
                    is_reached = True
                    calls["rename"](workspace / "sub", workspace / "real")
                    (workspace / "sub").symlink_to(outside)
                return call(*words, **options)

            return run

        for each, call in calls.items():
            monkeypatch.setattr(os, each, swap(call))
        made.undo_changes()
        monkeypatch.undo()
        made.close()
        assert [path.name for path in outside.iterdir()] == [name]
        assert (outside / name).read_text() == "the user's own"
        if not is_reached:
            break
        (workspace / "sub").unlink()
        (workspace / "real").rename(workspace / "sub")
        for path in (workspace / "sub").iterdir():
            path.unlink()
        (workspace / "sub" / "pyproject.toml").write_text(PROJECT)
    assert 5 < step < 59, "every step was tried"


def test_the_content_of_a_file_outside_is_not_written(workspace, tmp_path, guard):
    secret = tmp_path / "secret"
    secret.write_text("key")
    (workspace / "pyproject.toml").symlink_to(secret)
    made = guard()
    (workspace / "pyproject.toml").unlink()
    (workspace / "pyproject.toml").write_text(SETTINGS)
    assert "was renamed" in made.undo_changes()[0]
    assert not (workspace / "pyproject.toml").exists() and secret.read_text() == "key"


@pytest.mark.parametrize("target", ["/proc/self/mem", "/dev/zero", "absent", "/proc/kmsg"])
def test_a_link_hides_no_settings(workspace, guard, target):
    made = guard()
    (workspace / "pyproject.toml").symlink_to(target)
    for at in range(8):
        (workspace / f"d{at}").mkdir()
        (workspace / f"d{at}" / "bridle.toml").write_text("x")
    made.undo_changes()
    assert not find_planted(workspace) and not os.path.lexists(workspace / "pyproject.toml")


def test_settings_behind_a_link_that_existed_are_found(workspace, guard):
    (workspace / "conf").write_text(PROJECT)
    (workspace / "pyproject.toml").symlink_to("conf")
    made = guard()
    (workspace / "conf").write_text(PROJECT + "# more")
    assert made.undo_changes() == []
    (workspace / "conf").write_text(SETTINGS)
    assert "pyproject.toml was renamed" in made.undo_changes()[0]


def test_what_cannot_be_read_is_reported(workspace, guard, monkeypatch):
    """A user without the rights of root cannot list a folder of mode 0311, and can read its files by name."""
    made = guard()
    (workspace / "d").mkdir()
    (workspace / "d" / "bridle.toml").write_text("x")
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *words, **options: fail() if path == "d" else real(path, *words, **options)
    )

    def fail():
        raise PermissionError(13, "Permission denied")

    assert made.undo_changes() == [
        "could not be read: 'd'. New settings may be there; a person should look first"
    ]
    assert guard().undo_changes() == [], "not again after every command"


def test_settings_that_may_be_the_users_are_reported(workspace, guard, monkeypatch):
    monkeypatch.setattr(settings_scan, "FOLDERS_MAX", 50)
    for at in range(60):
        (workspace / "modules" / f"p{at}").mkdir(parents=True)
    own = workspace / "packages" / "api" / "x"
    own.mkdir(parents=True)
    (own / "bridle.toml").write_text("the user's own")
    made = guard()
    shutil.rmtree(workspace / "modules")
    (workspace / "bridle.toml").write_text("x")
    (workspace / "new").mkdir()
    (workspace / "new" / "bridle.toml").write_text("x")
    notes = "\n".join(made.undo_changes())
    assert find_planted(workspace) == ["packages/api/x/bridle.toml"]
    assert "that may be new: packages/api/x/bridle.toml" in notes and notes.count("was renamed") == 2


def test_settings_that_existed_are_kept_where_their_folder_is_and_restored_if_replaced(workspace, guard):
    for folder in ("a", "b", "c"):
        (workspace / folder).mkdir()
        (workspace / folder / "bridle.toml").write_text("own")
    made = guard(workspace / "c" / "bridle.toml")
    (workspace / "a").rename(workspace / "moved")
    (workspace / "b" / "bridle.toml").write_text("planted")
    (workspace / "c" / "bridle.toml").write_text("by the user, who may")
    notes = made.undo_changes()
    assert len(notes) == 1 and "b/bridle.toml was renamed" in notes[0]
    assert (workspace / "moved" / "bridle.toml").read_text() == "own"
    assert (workspace / "b" / "bridle.toml").read_text() == "own"
    assert (workspace / "c" / "bridle.toml").read_text() == "by the user, who may"


def test_every_limit_is_named(workspace, guard, monkeypatch):
    made = guard()
    (workspace / "s").mkdir()
    for folder in ("", "s"):
        (workspace / folder / "pyproject.toml").write_text("#" * 200)
    monkeypatch.setattr(settings_scan, "ALL_FILES_BYTES_MAX", 300)
    assert "only 300 bytes of settings files were read" in made.undo_changes()[-1]
    monkeypatch.setattr(settings_scan, "PATH_CHARACTERS_MAX", 0)
    assert "paths of more than 0 characters" in made.undo_changes()[-1]
    monkeypatch.setattr(settings_scan, "SECONDS_MAX", 0.0)
    assert "ended after 0 s" in made.undo_changes()[-1]


@pytest.fixture
def root(workspace):
    fd = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def test_a_settings_file_that_is_too_large_is_not_read(workspace, root, monkeypatch):
    (workspace / "pyproject.toml").write_text(PROJECT)
    scan = settings_scan.SettingsScan(root, str(workspace))
    assert scan._read("pyproject.toml", root) == PROJECT.encode()
    monkeypatch.setattr(settings_scan, "PROJECT_BYTES_MAX", len(PROJECT) - 1)
    assert scan._read("pyproject.toml", root) is None
    scan.close()


def test_of_a_folder_of_settings_the_first_files_are_listed(workspace, root, monkeypatch):
    monkeypatch.setattr(settings_scan, "PARTS_MAX", 10)
    (workspace / "hooks").mkdir()
    for number in range(30):
        (workspace / "hooks" / str(number)).touch()
    assert len([*settings_scan._list_files(root, "hooks")]) == 9


def test_a_project_file_that_takes_long_to_parse_is_not_parsed():
    data = ("[tool.bridle]\n" + "a." * 200_000 + "a = 1").encode()
    began = time.process_time()
    assert adds_settings(data, None) and adds_settings(data, data[:-1]) and not adds_settings(data, data)
    assert time.process_time() - began < 5
    assert adds_settings(b'[tool."\\u0062ridle"]\nx = 1', None)
    assert not adds_settings(b"[tool.other]\nx = '''bridle'''", None)


@pytest.fixture(params=MECHANISMS)
def box(request, workspace):
    if problem := find_problem(request.param):
        pytest.skip(f"{request.param}: {problem}")
    return LocalSandbox(workspace, mechanism=request.param)


def test_new_settings_are_found_although_the_launcher_is_killed(box, workspace):
    """As at a deadline, or by a second cancellation."""
    command = ["sh", "-c", "mkdir sub; echo x > sub/bridle.toml; touch made; exec sleep 300"]

    async def kill():
        program = RunningProcess(
            command, stdin=None, cwd=None, environment={}, output_bytes_max=10_000, grace=1, sandbox=box
        )
        await wait_until(lambda: (workspace / "made").exists())
        os.killpg(program._popen.pid, signal.SIGKILL)
        return await program.wait_for_end(None)

    ended = asyncio.run(kill())
    assert ended.exit_code == -9 and "killed before it reported new settings" in ended.stderr
    asyncio.run(wait_until(lambda: list((workspace / "sub").glob("bridle.toml.refused-*"))))
    assert not find_planted(workspace)


SWAP = r"""
import ctypes, os, sys
libc = ctypes.CDLL(None)
os.mkdir("real")
open("real/pyproject.toml", "w").write("[tool.bridle]\nplanted = 1\n")
os.symlink(sys.argv[1], "link")
open("ready", "w").close()
while True:
    libc.renameat2(-100, b"real", -100, b"link", 2)
"""


def test_a_server_that_swaps_a_folder_and_a_link_changes_nothing_outside(box, workspace, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("bridle.toml", "pyproject.toml"):
        (outside / name).write_text("the user's own")
    plant = "for f in real link; do echo x > $f/bridle.toml; done; for i in $(seq 100); do mkdir -p n$i; echo x > n$i/bridle.toml; done"

    async def main():
        server = asyncio.create_task(run_process([sys.executable, "-c", SWAP, str(outside)], sandbox=box))
        await wait_until(lambda: (workspace / "ready").exists())
        for _ in range(3):
            await run_process(["sh", "-c", plant], sandbox=box)
        server.cancel()
        with pytest.raises(asyncio.CancelledError):
            await server

    asyncio.run(main())
    assert sorted(path.name for path in outside.iterdir()) == ["bridle.toml", "pyproject.toml"]
