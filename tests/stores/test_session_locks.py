"""One driver per session: by any path, after kills, with many sessions."""

import asyncio
import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bridle import Agent, tool
from bridle.stores import open_store
from bridle.stores.sqlite import database_file
from bridle.testing import scripted
from bridle.testing.conformance.sample_records import make_prompt, make_records
from bridle.testing.scripted_model import call_reply
from bridle.values.errors import Conflict, Unusable
from tests.story.kill_agent import SESSION, Ledger, paying_agent
from tests.suite.leases import hold

PROGRAM = Path(__file__).parents[1] / "story" / "kill_agent.py"

HOLDING = """
import asyncio, sys
from bridle.stores import open_store
async def main():
    async with open_store(sys.argv[1]).lease("s"):
        print("held", flush=True)
        sys.stdin.read()
asyncio.run(main())
"""

FORKING = """
import asyncio, os, sys
from bridle.stores import open_store
async def main():
    async with open_store(sys.argv[1]).lease("s"):
        if os.fork() == 0:
            print("forked", flush=True)
        sys.stdin.read()
asyncio.run(main())
"""

STARTING = """
import asyncio, ctypes, os, subprocess, sys, threading
from bridle.stores import open_store
SHELL = ["sh", "-c", "echo started; cat"]
def start(how):
    match how:
        case "subprocess":
            subprocess.Popen(SHELL, close_fds=False)
        case "preexec":
            subprocess.Popen(SHELL, close_fds=False, preexec_fn=lambda: None)
        case "posix_spawn":
            os.posix_spawn("/bin/sh", SHELL, os.environ)
        case "system":
            threading.Thread(target=os.system, args=[SHELL[2]], daemon=True).start()
        case "fork in C":
            if ctypes.PyDLL(None).fork() == 0:
                os.write(1, b"started\\n")
                os.read(0, 1)
                os._exit(0)
async def main():
    async with open_store(sys.argv[1]).lease("s"):
        start(sys.argv[2])
        threading.Event().wait()
asyncio.run(main())
"""


WRITING = """
import asyncio, sys
from bridle.stores import open_store
from bridle.testing.conformance.sample_records import make_prompt, make_records
from bridle.values.errors import Conflict
async def main():
    store = open_store(sys.argv[1])
    async with store.lease("s") as lease:
        line = make_records(make_prompt("first"), make_prompt("second"), make_prompt("third"))
        await store.append("s", 0, line[:1], epoch=lease.epoch)
        print("held", flush=True)
        for place in (1, 2):
            sys.stdin.readline()
            try:
                await store.append("s", place, line[place:place + 1], epoch=lease.epoch)
                print("written", flush=True)
            except Conflict as error:
                print(error, flush=True)
    await store.close()
asyncio.run(main())
"""


class Child:
    """A program that has said its word and waits for the end of its input."""

    def __init__(self, program, path, word, *more):
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, path, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline().strip() == word

    def __enter__(self):
        return self.process

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture
def path(tmp_path):
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "log.db"


def link_file(path, tmp_path):
    link = tmp_path / "link.db"
    link.symlink_to(path)
    return link


def link_folder(path, tmp_path):
    link = tmp_path / "linked"
    link.symlink_to(path.parent, target_is_directory=True)
    return link / path.name


def count_descriptors():
    folder = Path("/proc/self/fd")
    return len([*folder.iterdir()]) if folder.exists() else 0


@pytest.mark.parametrize("link", [link_file, link_folder])
def test_a_session_held_through_one_path_is_held_through_every_symbolic_link(path, tmp_path, link):
    other = link(path, tmp_path)
    driven = pytest.raises(Conflict, match="in use by another run")
    with Child(HOLDING, path, "held"), driven, hold(open_store(other), "s"):
        pass
    with hold(open_store(other), "s"), pytest.raises(Conflict), hold(open_store(path), "s"):
        pass
    with hold(open_store(path), "s"), hold(open_store(other), "t"):
        pass


def test_a_mutating_call_is_not_run_by_a_second_driver_that_came_through_a_link(path, tmp_path):
    linked = tmp_path / "linked"
    linked.mkdir()
    for name in ("log.db", "ledger"):
        (linked / name).symlink_to(path.parent / name)
    first = subprocess.Popen(
        [sys.executable, PROGRAM, path.parent, "retry", "after", "1"], stdout=subprocess.PIPE, text=True
    )
    while "after" not in first.stdout.readline():
        assert first.poll() is None
    try:
        agent = paying_agent(linked, "retry", [1])
        with pytest.raises(Conflict):
            asyncio.run(agent.resume(SESSION))
    finally:
        first.send_signal(signal.SIGKILL)
        first.communicate()
    assert [amount for amount, _ in Ledger(path.parent).lines()] == [1]


@pytest.mark.parametrize("how", ["removed", "replaced", "moved", "removed and taken"])
def test_an_owner_whose_lock_file_is_gone_writes_no_more(path, how):
    """Another process can lock a new file, so the first one stops: never do both write."""
    lock_file = path.with_name(f"{path.name}-held")
    with Child(WRITING, path, "held") as first:
        first.stdin.write("\n")
        first.stdin.flush()
        assert first.stdout.readline() == "written\n"
        if how == "moved":
            lock_file.rename(lock_file.with_suffix(".away"))
        else:
            lock_file.unlink()
        if how == "replaced":
            lock_file.touch()
        store = open_store(path)
        with contextlib.ExitStack() as held:
            lease = held.enter_context(hold(store, "s")) if how == "removed and taken" else None
            first.stdin.write("\n")
            first.stdin.flush()
            told = first.stdout.readline()
            assert f"{lock_file} was removed or replaced while session 's' was driven" in told
            assert told.endswith("resume the session\n")
            records = asyncio.run(store.read("s"))
            assert len(records) == 2
            if lease is not None:
                mine = make_records(make_prompt("mine"), prefix=records)
                asyncio.run(store.append("s", 2, mine, epoch=lease.epoch))
                assert len(asyncio.run(store.read("s"))) == 3
        asyncio.run(store.close())


def test_a_run_whose_lock_file_is_removed_ends_before_the_next_model_call(path):
    @tool
    def remove() -> str:
        """Remove the lock file."""
        path.with_name(f"{path.name}-held").unlink()
        return "removed"

    store, script = open_store(path), (call_reply(("remove", {})), "Done.")
    model = scripted(*script)
    with pytest.raises(Conflict, match="was removed or replaced while session 's' was driven"):
        asyncio.run(Agent(model, tools=[remove], store=store).run("Go.", "s"))
    assert len(model.script.requests) == 1
    assert asyncio.run(Agent(scripted(*script), tools=[remove], store=store).resume("s")).stop == "done"
    asyncio.run(store.close())


def test_a_file_with_a_second_name_is_refused(path, tmp_path):
    asyncio.run(open_store(path).close())
    os.link(path, tmp_path / "other.db")
    for name in (path, tmp_path / "other.db"):
        with pytest.raises(Unusable, match="2 names"):
            open_store(name)
    (tmp_path / "other.db").unlink()
    open_store(path)


def test_a_file_that_is_mounted_by_itself_is_recognised():
    mounts = "/dev/sda / ext4 rw 0 0\n/dev/sda /my\\040data/log.db ext4 rw 0 0\nbroken\n"
    assert database_file.is_mount_point(Path("/my data/log.db"), mounts)
    assert not database_file.is_mount_point(Path("/my data"), mounts)


@pytest.mark.skipif(
    not shutil.which("unshare") or subprocess.run(["unshare", "-rm", "true"], check=False).returncode != 0,
    reason="mounting needs a namespace of one's own",
)
def test_a_file_mounted_at_a_second_path_is_refused(path, tmp_path):
    asyncio.run(open_store(path).close())
    (tmp_path / "other.db").touch()
    program = "import sys; from bridle.stores import open_store; open_store(sys.argv[1])"
    script = 'mount --bind "$1" "$2" && exec "$3" -c "$4" "$2"'
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, "sh", path, tmp_path / "other.db", sys.executable, program],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode != 0
    assert "mount its folder instead" in done.stderr


def check_freed_by_kill(path, child):
    store = open_store(path)
    with child as driver:
        with pytest.raises(Conflict), hold(store, "s"):
            pass
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        with hold(store, "s"):
            pass


def test_a_child_that_a_tool_forked_does_not_keep_the_lock_of_a_killed_driver(path):
    check_freed_by_kill(path, Child(FORKING, path, "forked"))


@pytest.mark.parametrize("how", ["subprocess", "preexec", "posix_spawn", "system"])
def test_a_program_that_a_tool_started_does_not_keep_the_lock_of_a_killed_driver(path, how):
    """Python's hook for forks does not see these; the descriptor is closed on exec."""
    check_freed_by_kill(path, Child(STARTING, path, "started", how))


def test_a_fork_that_python_does_not_see_keeps_the_lock_until_it_ends_and_lets_nobody_in(path):
    """The limit that docs/security/threat_model.md names: such a child delays the next driver, and never lets in a second."""
    store = open_store(path)
    with Child(STARTING, path, "started", "fork in C") as driver:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        with pytest.raises(Conflict), hold(store, "s"):
            pass
        driver.stdin.close()
        with Path(f"{path}-held").open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX)  # waits until the child has ended
        with hold(store, "s"):
            pass


def test_a_child_made_by_fork_starts_without_locks_and_leaves_those_of_its_parent(path):
    store = open_store(path)
    with hold(store, "s"):
        child = os.fork()
        if child == 0:
            try:
                with hold(open_store(path), "s"):
                    os._exit(1)
            except Conflict:
                with hold(open_store(path), "t"):
                    os._exit(0)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        with pytest.raises(Conflict), hold(store, "s"):
            pass
        program = HOLDING.replace('lease("s")', 'lease("t")')
        with Child(program, path, "held"), pytest.raises(Conflict), hold(store, "t"):
            pass


def test_locks_last_although_the_lock_file_is_read_by_somebody_in_the_same_process(path):
    store = open_store(path)
    program = HOLDING.replace("        print", "        open(sys.argv[1] + '-held').close()\n        print")
    with Child(program, path, "held"), pytest.raises(Conflict), hold(store, "s"):
        pass


def test_sessions_cost_no_descriptors(path):
    async def main():
        store = open_store(path)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(store.lease("first"))
            before = count_descriptors()
            for number in range(2000):
                await stack.enter_async_context(store.lease(f"s{number}"))
            assert count_descriptors() <= before  # earlier tests may give some back
            with Child(HOLDING, path, "held"), pytest.raises(Conflict):
                await stack.enter_async_context(store.lease("s"))
        async with store.lease("first"), store.lease("s7"):
            pass

    asyncio.run(main())


def test_too_many_open_files_are_named_as_the_cause(path):
    program = """if True:
        import asyncio, os, resource, sys
        from bridle.stores import open_store
        store = open_store(sys.argv[1])
        async def main():
            await store.read("s")  # opens the database
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            try:
                while True:
                    os.dup(0)
            except OSError:
                pass
            async with store.lease("s"):
                pass
        try:
            asyncio.run(main())
        except Exception as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, check=True)
    assert "ulimit -n" in done.stdout


def test_a_takeover_that_cannot_open_the_lock_file_leaves_the_session_to_its_owner(path):
    program = """if True:
        import asyncio, os, resource, sys
        from bridle.stores import open_store
        store = open_store(sys.argv[1])
        async def main():
            await store.put_blob(b"x")  # opens the database
            await store.read("s")
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            try:
                while True:
                    os.dup(0)
            except OSError:
                pass
            async with store.lease("s", take_over=True):
                pass
        try:
            asyncio.run(main())
        except Exception as error:
            print(error)
    """

    async def main():
        store, records = open_store(path), make_records(make_prompt("one"), make_prompt("two"))
        await store.append("s", 0, records[:1])
        async with store.lease("s") as lease:
            command = [sys.executable, "-c", program, str(path)]
            done = await asyncio.to_thread(
                subprocess.run, command, capture_output=True, text=True, check=True
            )
            assert "ulimit -n" in done.stdout
            await store.append("s", 1, records[1:], epoch=lease.epoch)
        await store.close()

    asyncio.run(main())
