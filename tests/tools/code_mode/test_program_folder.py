"""Folders of programs without a sandbox: none is left for long, none is taken from its owner."""

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from bridle import Agent, CodeMode, tool
from bridle.sandbox.local import MECHANISMS, PRIVATE_FOLDER, find_problem
from bridle.tools.code_mode.folder import PREFIX, open_program_folder
from tests.suite.patience import PATIENCE_SECONDS

HOLD = """
import sys
from bridle.tools.code_mode.folder import open_program_folder
with open_program_folder(sys.argv[1]) as folder:
    (folder / "kept").write_text("x")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def base(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def hold(key):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, key], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return process, process.stdout.readline().strip()


def end(process, number=signal.SIGKILL):
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_SECONDS)


def test_a_key_has_its_path_and_the_folder_is_empty_and_private(base):
    with open_program_folder("a") as first:
        assert first.stat().st_mode & 0o777 == 0o700
        (first / "locked").mkdir(mode=0)
    assert list(base.iterdir()) == []
    with open_program_folder("a") as again, open_program_folder("b") as other:
        assert again == first != other and list(again.iterdir()) == []


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_is_kept(base):
    dead, left = hold("dead")
    living, kept = hold("living")
    end(dead)
    assert Path(left).exists()
    with open_program_folder("living") as mine:
        assert str(mine) != kept, "its path is in use"
        assert not Path(left).exists() and Path(kept, "kept").exists()
    end(living)
    with open_program_folder("living") as mine:
        assert str(mine) == kept and list(mine.iterdir()) == []
    assert list(base.iterdir()) == []


def test_folders_and_links_of_others_stay(base):
    elsewhere = base / "elsewhere"
    elsewhere.mkdir()
    (base / f"{PREFIX}link").symlink_to(elsewhere)
    (base / f"{PREFIX}file").touch()
    with open_program_folder("a"):
        pass
    assert {each.name for each in base.iterdir()} == {"elsewhere", f"{PREFIX}link", f"{PREFIX}file"}


def list_descriptors(folder):
    """Paths at or below a folder that this process holds open; other tests' files come and go beside them."""
    paths = []
    for descriptor in Path("/dev/fd").iterdir():
        with suppress(OSError):  # closed since it was listed
            paths.append(descriptor.readlink())
    return [path for path in paths if path.is_relative_to(folder)]


def test_a_folder_that_cannot_be_removed_stops_no_start_and_no_end(base, monkeypatch):
    left = base / f"{PREFIX}left"
    (left / "folder").mkdir(parents=True)

    def refuse(*_, **__):
        raise PermissionError(errno.EPERM, "not yours")

    with monkeypatch.context() as patch:
        patch.setattr(os, "chmod", refuse)
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)
        with open_program_folder("a") as folder:
            (folder / "below").mkdir()
    assert left.exists() and folder.exists()
    assert list_descriptors(base) == []
    with open_program_folder("b"):
        assert not left.exists() and not folder.exists(), "their locks were released"


def test_folders_in_one_another_without_end_stop_no_start(base):
    """A program may make more of them than a recursive function can enter."""
    deep = [Path(f"{base}/{PREFIX}deep" + "/d" * number) for number in range(1_500)]
    for each in deep:
        each.mkdir()
    try:
        with open_program_folder("a") as folder:
            assert folder.exists()
    finally:
        for each in reversed(deep):
            with suppress(FileNotFoundError):
                each.rmdir()


def test_without_locks_folders_work_and_none_of_another_is_removed(base, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOSYS, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with open_program_folder("a") as first, open_program_folder("a") as second:
        assert first != second and first.exists() and second.exists()
    assert list(base.iterdir()) == []


@pytest.mark.parametrize(("number", "told"), [(errno.ENOLCK, errno.ENOLCK), (errno.EWOULDBLOCK, errno.EBUSY)])
def test_a_folder_that_cannot_be_locked_is_an_error(monkeypatch, number, told):
    def refuse(*_):
        raise OSError(number, "no lock")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match=r"no lock|try again") as found, open_program_folder("a"):
        pass
    assert found.value.errno == told


def test_starts_at_the_same_time_take_nothing_from_one_another(base):
    def use(number):
        for _ in range(50):
            with open_program_folder(str(number % 3)) as folder:
                (folder / "mine").write_text(str(number))
                assert (folder / "mine").read_text() == str(number)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    assert list(base.iterdir()) == []


@pytest.mark.parametrize("sandbox", ["auto", None])
def test_a_program_runs_in_a_folder_with_a_fixed_name_and_leaves_none(base, sandbox):
    if sandbox == "auto" and all(find_problem(each) for each in MECHANISMS):
        pytest.skip("no sandbox works here")
    seen = []

    @tool(effect="read")
    def look(at: str) -> str:
        """Look."""
        seen.append((at, [each.name for each in base.iterdir()]))
        return at

    agent = Agent("sim:", tools=[look], code_mode=CodeMode(sandbox=sandbox))
    code = json.dumps({"code": "import os\nopen('file', 'w').close()\nlook(os.getcwd())"})
    assert agent.run_sync(f"!call run_code {code}\n!then\n!say Done.").text == "Done."
    ((place, names),) = seen
    if sandbox == "auto":
        assert (place, names) == (PRIVATE_FOLDER, []), "the folder exists in the sandbox only"
    else:
        assert names == [Path(place).name] and place.startswith(str(base / PREFIX))
    assert list(base.iterdir()) == []
