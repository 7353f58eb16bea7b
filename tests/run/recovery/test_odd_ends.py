"""Odd values and removed files end a run clearly; nothing hangs, and no lost write is acknowledged."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from bridle import Agent, Media, tool
from bridle.stores import open_store
from bridle.testing import scripted
from bridle.testing.scripted_model import call_reply
from bridle.values.errors import MisuseError, Unusable
from bridle.values.events import Prompted
from bridle.values.message import Text
from bridle.values.record import GENESIS, seal_record
from tests.suite.patience import PATIENCE_SECONDS

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


class Mute(Exception):
    def __str__(self):
        raise KeyboardInterrupt("no words")


class MuteExit(SystemExit):
    def __str__(self):
        raise ValueError("no words")


async def raise_interrupt():
    raise KeyboardInterrupt


async def starts_interrupting():
    async def inner():
        raise KeyboardInterrupt

    await asyncio.create_task(inner())


async def raise_mute_exit():
    raise MuteExit


async def raise_mute():
    raise Mute


def plain_interrupt():
    raise KeyboardInterrupt


def plain_exit():
    raise MuteExit


def plain_mute():
    raise Mute


RAISING = [raise_interrupt, raise_mute_exit, raise_mute, plain_interrupt, plain_exit, plain_mute]


def run_agent(function):
    return Agent(scripted(call_reply((function.__name__, {})), "done"), tools=[tool(function)])


@pytest.mark.parametrize("function", RAISING, ids=lambda function: function.__name__)
def test_any_exception_of_a_tool_is_a_result_for_the_model(function):
    result = asyncio.run(asyncio.wait_for(run_agent(function).run("?"), PATIENCE_SECONDS))
    assert (result.stop, result.text) == ("done", "done")
    (told,) = (part for message in result.messages for part in message.parts if hasattr(part, "outcome"))
    assert told.outcome == "error"


@pytest.mark.parametrize("function", [*RAISING, starts_interrupting], ids=lambda function: function.__name__)
def test_the_same_without_a_loop_of_ones_own(function):
    done = threading.Event()

    def run():
        assert run_agent(function).run_sync("?").stop == "done"
        done.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert done.wait(PATIENCE_SECONDS)
    thread.join()


def test_ctrl_c_in_an_async_tool_still_ends_the_program():
    program = """if True:
        import asyncio, os, signal
        from bridle import Agent
        async def press():
            "Press Ctrl-C."
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        asyncio.run(Agent("sim:", tools=[press]).run("!call press {}"))
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode in (-signal.SIGINT, 130)
    assert "KeyboardInterrupt" in done.stderr


def test_a_file_whose_name_is_not_utf8_can_be_sent_and_kept(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/b\xff\xfe.png")
    with open(path, "wb") as file:  # noqa: PTH123 - the name is the test
        file.write(PNG)
    picture = Media.from_path(path)
    assert picture.name == "b\ufffd\ufffd.png"

    @tool
    def look() -> Media:
        """Look."""
        return Media(kind="image", data=picture.data, name="\udcff.png")

    agent = Agent(scripted(call_reply(("look", {})), "a picture"), tools=[look], store=tmp_path / "log.db")
    result = agent.run_sync(["What is it?", picture], session="s")
    assert result.stop == "done"
    assert len(asyncio.run(open_store(tmp_path / "log.db").read("s"))) > 4
    missing = os.fsdecode(b"/nowhere/\xff.png")
    with pytest.raises(MisuseError) as caught:
        Media.from_path(missing)
    str(caught.value).encode()
    with pytest.raises(MisuseError, match="UTF-8"):
        Media(kind="image", url="https://x/\udcff")


def prompted_record(seq, prev, text):
    return seal_record(seq, 1.0, Prompted(parts=(Text(text=text),)), prev)


@pytest.mark.parametrize("ending", ["-wal", "-shm"])
def test_a_write_ahead_log_that_is_removed_is_noticed_and_nothing_acknowledged_is_lost(tmp_path, ending):
    path = tmp_path / "log.db"
    first = prompted_record(1, GENESIS, "kept")

    async def write():
        store = open_store(path)
        await store.append("s", 0, [first])
        (tmp_path / f"log.db{ending}").unlink()
        with pytest.raises(Unusable, match="removed or replaced while in use"):
            await store.append("s", 1, [prompted_record(2, first.hash, "lost?")])
        with pytest.raises(Unusable, match="removed or replaced while in use"):
            await store.read("s")
        await store.close()
        again = open_store(path)
        found = await again.read("s")
        await again.close()
        return found

    assert asyncio.run(write())[0] == first
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_what_the_removed_log_held_survives_a_kill(tmp_path):
    program = """if True:
        import asyncio, os, signal, sys
        from bridle.stores import open_store
        from bridle.testing.conformance.sample_records import make_prompt, make_records
        from bridle.values.errors import Unusable
        first, second = make_records(make_prompt("kept"), make_prompt("more"))
        async def main():
            store = open_store(sys.argv[1])
            await store.append("s", 0, [first])
            os.unlink(sys.argv[1] + "-wal")
            try:
                await store.append("s", 1, [second])
            except Unusable:
                os.kill(os.getpid(), signal.SIGKILL)
        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path / "log.db"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert asyncio.run(open_store(tmp_path / "log.db").read("s"))
