"""Processes end with everything they started, however their run ends."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from bridle import Agent, Budget, MisuseError, tool
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.tools import run_process
from bridle.tools.process.process_tree import MARK_VARIABLE, _get_guard, _live_trees
from bridle.tools.process.run_process import RunningProcess
from tests.suite.campaign import scale
from tests.suite.patience import PATIENCE_SECONDS

POLL_SECONDS = 0.005
PROC = Path("/proc")

pytestmark = pytest.mark.skipif(not PROC.is_dir(), reason="looks processes up where Linux lists them")

FAMILY = "sh -c 'sleep 1000 & echo $! >&3; wait' & sleep 1000 & echo $! >&3; echo $$ >&3; wait"
"""A shell, its children and a grandchild; three of them tell their numbers."""
SERVICES = (
    "setsid sleep 1000 & echo $! >&3; setsid sh -c 'sleep 1000 & echo $! >&3; wait' & echo $$ >&3; wait"
)
"""A shell, and services that it starts in sessions of their own."""
DEAF = f"trap '' TERM; {FAMILY}; {FAMILY}"


def is_alive(pid):
    try:
        return (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z"
    except OSError:
        return False


def wait_until(true):
    until = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < until, "it never came true"
        time.sleep(POLL_SECONDS)


async def wait_until_true(true):
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not true():
            await asyncio.sleep(POLL_SECONDS)


def fds():
    return sorted(entry.name for entry in (PROC / "self" / "fd").iterdir())


def pids_in(path, count=3):
    """The numbers the program wrote down, once they are all there."""
    words = path.read_text().split() if path.exists() else []
    return [int(word) for word in words] if len(words) == count else []


def zombies():
    """Children of ours that ended and were not reaped."""
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                said = (entry / "stat").read_bytes().rpartition(b")")[2].split()
            except OSError:
                continue
            if said[0] == b"Z" and int(said[1]) == os.getpid():
                found.append(int(entry.name))
    return found


def family(path, script=FAMILY):
    return ["sh", "-c", f"exec 3>{path}; {script}"]


def test_a_program_and_what_it_says():
    ended = asyncio.run(run_process(["sh", "-c", "cat; echo oh >&2; exit 3"], stdin="wörds"))
    assert (ended.exit_code, ended.stdout, ended.stderr, ended.timed_out) == (3, "wörds", "oh\n", False)
    assert not ended.ok
    assert asyncio.run(run_process(["true"])).ok


def test_words_never_pass_through_a_shell():
    words = ["$(id)", "a b", ";true", "*", "ä", ""]
    ended = asyncio.run(run_process([sys.executable, "-c", "import sys; print(sys.argv[1:])", *words]))
    assert ended.stdout == f"{words}\n"


def test_a_large_input_and_a_large_output_do_not_wait_for_each_other():
    text = "x" * 3_000_000
    ended = asyncio.run(run_process(["cat"], stdin=text, output_bytes_max=10_000_000))
    assert ended.stdout == text


def test_of_the_environment_only_what_is_named_is_seen(monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", "secret")
    seen: Any = asyncio.run(run_process(["env"], env={"MINE": "1"})).stdout
    assert "secret" not in seen
    assert "MINE=1" in seen
    assert "PATH=" in seen
    seen = asyncio.run(run_process(["/usr/bin/env"], pass_env=("SOME_API_KEY",))).stdout.splitlines()
    assert seen[0] == "SOME_API_KEY=secret" and [line.partition("=")[0] for line in seen[1:]] == [
        MARK_VARIABLE
    ]


@pytest.mark.parametrize("argv", ["ls -l", [], b"ls"])
def test_a_command_line_is_no_program(argv):
    with pytest.raises(MisuseError, match="list of strings"):
        asyncio.run(run_process(argv))


def test_a_program_that_cannot_be_started_leaves_nothing_behind(tmp_path):
    async def main():
        await run_process(["true"])
        before = fds()
        for argv, options in ((["no-such-program"], {}), (["true"], {"cwd": tmp_path / "none"})):
            with pytest.raises(FileNotFoundError):
                await run_process(argv, stdin="x", **options)
        assert len(fds()) <= len(before)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("script", "number"), [(FAMILY, signal.SIGTERM), (DEAF, signal.SIGKILL), (SERVICES, signal.SIGTERM)]
)
def test_when_its_time_is_up_the_whole_family_goes(tmp_path, script, number):
    grace = 0.05 if number == signal.SIGKILL else PATIENCE_SECONDS

    async def main():
        program = RunningProcess(
            family(tmp_path / "pids", f"echo begun; {script}"),
            stdin=None, cwd=None, environment=os.environ, output_bytes_max=100, grace=grace,
        )  # fmt: skip
        await wait_until_true(lambda: pids_in(tmp_path / "pids"))
        return await program.wait_for_end(0)

    ended = asyncio.run(main())
    assert (ended.timed_out, ended.exit_code, ended.stdout) == (True, -number, "begun\n")
    assert [pid for pid in pids_in(tmp_path / "pids") if is_alive(pid)] == []
    assert zombies() == []


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("script", [FAMILY, DEAF, SERVICES], ids=["tame", "deaf", "services"])
def test_when_it_is_cancelled_the_whole_family_goes(tmp_path, script, times):
    async def main():
        grace = 0.05 if times == 1 else PATIENCE_SECONDS  # cancelled again, it does not get its grace
        running = asyncio.create_task(run_process(family(tmp_path / "pids", script), grace=grace))
        await wait_until_true(lambda: pids_in(tmp_path / "pids"))
        for _ in range(times):
            running.cancel()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    wait_until(lambda: not any(is_alive(pid) for pid in pids_in(tmp_path / "pids")))
    wait_until(lambda: zombies() == [])


@pytest.mark.slow
def test_a_cancelled_program_is_asked_before_it_is_killed(tmp_path):
    script = f"trap 'echo tidied > {tmp_path / 'tidied'}; exit' TERM; echo 1 2 3 >&3; sleep 1000 & wait"

    async def main():
        running = asyncio.create_task(run_process(family(tmp_path / "pids", script), grace=PATIENCE_SECONDS))
        await wait_until_true(lambda: pids_in(tmp_path / "pids"))
        running.cancel()
        await asyncio.wait((running,))

    asyncio.run(main())
    assert (tmp_path / "tidied").read_text() == "tidied\n"


def test_what_a_program_leaves_behind_goes_with_it(tmp_path):
    script = "sleep 1000 & echo $! >&3; echo words"
    ended = asyncio.run(run_process(family(tmp_path / "pids", script)))
    assert (ended.exit_code, ended.stdout) == (0, "words\n")
    assert not any(is_alive(pid) for pid in pids_in(tmp_path / "pids", 1))


def test_a_service_outlives_a_command_that_exits_by_itself(tmp_path):
    """Starting it may be what the command was for."""
    service = "setsid sh -c 'echo $$ >&3; exec sleep 1000' &"  # tells its number once it has left the session
    script = f"{service} while [ ! -s {tmp_path / 'pids'} ]; do :; done"
    ended = asyncio.run(run_process(family(tmp_path / "pids", script)))
    (service,) = pids_in(tmp_path / "pids", 1)
    assert ended.ok and is_alive(service)
    os.kill(service, signal.SIGKILL)


def test_programs_of_a_harness_in_a_program_go_too(tmp_path):
    """They have marks of their own, and keep that of the outer tree."""
    inner = [sys.executable, "-c", PROGRAM, "killed", str(tmp_path / "pids"), DEAF]

    async def main():
        running = asyncio.create_task(run_process(inner, grace=0.05))
        await wait_until_true(lambda: pids_in(tmp_path / "pids"))
        running.cancel()
        await asyncio.wait((running,))

    asyncio.run(main())
    wait_until(lambda: not any(is_alive(pid) for pid in pids_in(tmp_path / "pids")))


def test_jobs_in_groups_of_their_own_go_too(tmp_path):
    """As an interactive shell makes them."""
    script = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen(['sh', '-c', 'trap \"\" TERM; sleep 1000; sleep 1000'], process_group=0)\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(str(child.pid))\n"
        "child.wait()"
    )

    async def main():
        running = asyncio.create_task(run_process([sys.executable, "-c", script], grace=0.05))
        await wait_until_true(lambda: pids_in(tmp_path / "pids", 1))
        running.cancel()
        await asyncio.wait((running,))

    asyncio.run(main())
    assert not any(is_alive(pid) for pid in pids_in(tmp_path / "pids", 1))


def test_two_hundred_ends_leave_no_file_open_and_no_zombie():
    async def one(number):
        running = asyncio.create_task(run_process(["sleep", "1000"], timeout=0 if number % 2 else None))
        if number % 2:
            assert (await running).timed_out
            return
        while not _live_trees:
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait((running,))
        assert running.cancelled()

    async def main():
        await one(1)
        before = len(fds())
        for number in range(scale(200)):
            await one(number)
        assert len(fds()) <= before, "descriptors that earlier tests left may be closed meanwhile"

    asyncio.run(main())
    assert zombies() == []


def test_many_programs_at_once_do_not_stall_the_loop(tmp_path):
    """Starting one takes milliseconds, so the loop has a turn between two; and it goes on while they all run."""
    count, gate = 32, tmp_path / "gate"
    os.mkfifo(gate)

    async def main():
        opened = os.open(gate, os.O_RDWR)
        before = {tree.leader.pid for tree in _live_trees}
        seen, most_per_turn = set(before), 0
        running = asyncio.gather(*(run_process(["sh", "-c", f"read line < {gate}"]) for _ in range(count)))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(seen) < len(before) + count:
                await asyncio.sleep(0)
                started = {tree.leader.pid for tree in _live_trees} - seen
                most_per_turn = max(most_per_turn, len(started))
                seen |= started
            os.write(opened, b"\n" * count)
            assert all(ended.ok for ended in await running)
        os.close(opened)
        return most_per_turn

    assert asyncio.run(main()) == 1


def test_a_program_that_is_cancelled_before_its_turn_never_starts(tmp_path):
    async def main():
        running = [asyncio.create_task(run_process(["touch", tmp_path / str(n)])) for n in range(3)]
        await asyncio.sleep(0)
        running[1].cancel()
        await asyncio.wait(running)

    asyncio.run(main())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "2"]


def test_without_a_way_to_watch_a_process_a_thread_waits_for_it(monkeypatch, tmp_path):
    def refuse(*_):
        raise OSError(38, "not here")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert asyncio.run(run_process(["sh", "-c", "echo words; exit 7"])).exit_code == 7
    test_when_its_time_is_up_the_whole_family_goes(tmp_path, DEAF, signal.SIGKILL)


PROGRAM = """
import asyncio, signal, sys, threading
from pathlib import Path
from bridle import Agent, tool
from bridle.tools import CommandTool, run_process
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply

signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs the tests may ignore it
how, pids, script = sys.argv[1:]
FAMILY = ["sh", "-c", f"exec 3>{pids}; {script}"]
family = CommandTool("family", "Stay.", FAMILY, timeout=None, grace=0.05)
agent = Agent(scripted(call_reply(("family", {})), "done"), tools=[family])
if how == "run_sync":
    agent.run_sync("?")
elif how == "run":
    asyncio.run(agent.run("?"))
elif how == "killed":
    async def main():
        running = asyncio.create_task(agent.run("?"))
        while not Path(pids).exists() or len(Path(pids).read_text().split()) < 3:
            await asyncio.sleep(0.005)
        print("running", flush=True)
        await running
    asyncio.run(main())
else:
    # The interpreter ends with the loop in the middle of it, in a thread nobody waits for.
    threading.Thread(target=asyncio.run, args=(run_process(FAMILY),), daemon=True).start()
    sys.stdin.read()
"""


@pytest.mark.parametrize("script", [FAMILY, DEAF, SERVICES], ids=["tame", "deaf", "services"])
@pytest.mark.parametrize("how", ["run", "run_sync", "exit"])
def test_ctrl_c_and_the_end_of_the_interpreter_end_the_family(tmp_path, how, script):
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, how, str(tmp_path / "pids"), script],
        stdin=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    wait_until(lambda: pids_in(tmp_path / "pids") or child.poll() is not None)
    assert all(is_alive(pid) for pid in pids_in(tmp_path / "pids"))
    if how != "exit":
        child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=PATIENCE_SECONDS)
    assert child.returncode == (0 if how == "exit" else -signal.SIGINT), error.decode()
    assert [pid for pid in pids_in(tmp_path / "pids") if is_alive(pid)] == []


@pytest.mark.parametrize("script", [DEAF, SERVICES], ids=["deaf", "services"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_when_we_are_killed_the_family_goes_too(tmp_path, number, script):
    command = [sys.executable, "-c", PROGRAM, "killed", str(tmp_path / "pids"), script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "running\n"
        child.send_signal(number)
        assert child.wait(PATIENCE_SECONDS) == -number
    wait_until(lambda: not any(is_alive(pid) for pid in pids_in(tmp_path / "pids")))


def test_a_guard_that_was_killed_is_replaced(tmp_path):
    async def main():
        running = asyncio.create_task(run_process(family(tmp_path / "pids")))
        await wait_until_true(lambda: pids_in(tmp_path / "pids"))
        guard = _get_guard()
        os.kill(guard._shell.pid, signal.SIGKILL)
        await wait_until_true(lambda: not is_alive(guard._shell.pid))
        assert (await run_process(["true"])).ok
        assert is_alive(guard._shell.pid)
        assert is_alive(pids_in(tmp_path / "pids")[0])
        running.cancel()
        await asyncio.wait((running,))

    asyncio.run(main())
    assert zombies() == []


def test_a_tool_of_ones_own_may_run_programs(tmp_path):
    @tool(timeout=None)
    async def stay() -> str:
        """Stay."""
        return (await run_process(family(tmp_path / "pids"), grace=0.05)).stdout

    async def main():
        agent = Agent(
            scripted(call_reply(("stay", {})), "x"), tools=[stay], budget=Budget(seconds=PATIENCE_SECONDS)
        )
        running = asyncio.create_task(agent.run("?", session="s"))
        await wait_until_true(lambda: pids_in(tmp_path / "pids"))
        running.cancel()
        await asyncio.wait((running,))
        return await agent.store.read("s")

    records = asyncio.run(main())
    assert records[-1].event.stop == "cancelled"
    assert not any(is_alive(pid) for pid in pids_in(tmp_path / "pids"))
