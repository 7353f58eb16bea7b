"""Connections and their event loops: no leaks and no warnings, in any order of closing."""

import asyncio
import gc
import os
import ssl
import subprocess
import sys
import textwrap
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

import pytest

from bridle.sim import server as sim_server
from bridle.sim.simulator import Simulator
from bridle.transports import pool
from bridle.transports.deadlines import Deadlines
from bridle.transports.http import HttpTransport, close_all
from bridle.transports.pool import find_pool
from bridle.values.errors import ProviderError
from tests.suite.patience import PATIENCE_SECONDS, allow_longer
from tests.transports.cancelled_reads import cancel_in_the_middle, listen
from tests.transports.local_server import (
    answer_nothing,
    answer_streamed,
    answer_whole,
    answer_without_end,
    files_open,
    list_left_open,
    list_open_files,
    make_outgoing,
    read,
    start_server,
)

LOCALHOST = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgDXECC6jHcjrCwo7y
Ew4c0Vo/zCUpzqBjRbLo7rPEInKhRANCAARwlIR4egTluxtAYd+xfG9y5lOZ++SZ
GT+SSBhbiqKItLtiwpfID/00VQ8/G7Inxqhi/o5tpY5r4vnJ1JHT1MTv
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBnzCCAUWgAwIBAgIUAKyV7GiLadzUxGA5hZF0fogycOYwCgYIKoZIzj0EAwIw
FjEUMBIGA1UEAwwLYnJpZGxlIHRlc3QwIBcNMjYxMTE1MjE1MzEwWhgPMjEyNjEw
MjIyMTUzMTBaMBYxFDASBgNVBAMMC2JyaWRsZSB0ZXN0MFkwEwYHKoZIzj0CAQYI
KoZIzj0DAQcDQgAEcJSEeHoE5bsbQGHfsXxvcuZTmfvkmRk/kkgYW4qiiLS7YsKX
yA/9NFUPPxuyJ8aoYv6ObaWOa+L5ydSR09TE76NvMG0wHQYDVR0OBBYEFCUH6NzQ
MYoOv45J3GlY4zPp5PpuMB8GA1UdIwQYMBaAFCUH6NzQMYoOv45J3GlY4zPp5Ppu
MBoGA1UdEQQTMBGCCWxvY2FsaG9zdIcEfwAAATAPBgNVHRMBAf8EBTADAQH/MAoG
CCqGSM49BAMCA0gAMEUCIH7oQXXuwCkBQrE8iJaJZwmBysYIwLpVal9r/suy31Uz
AiEA/vS9hO4CjAPHz6zBE2hVrnLrajO+FYCcpEinIyMD78I=
-----END CERTIFICATE-----
"""
"""A key and its certificate for 127.0.0.1, made for these tests and known to everybody."""


@pytest.fixture(autouse=True)
def nothing_left_behind(caplog):
    before = list_open_files()
    yield
    gc.collect()  # what nobody closed complains now, and a warning is an error
    assert list_left_open(before) == Counter()  # what an earlier test left may go meanwhile
    assert not caplog.records, caplog.text


@pytest.fixture
def localhost(tmp_path):
    path = tmp_path / "localhost.pem"
    path.write_text(LOCALHOST)
    return path


def all_closed(server):
    server.wait_until(lambda server: server.open == 0)


def test_cancelling_in_the_middle_of_an_answer_closes_its_connection():
    async def main():
        await cancel_in_the_middle(server.url)
        all_closed(server)  # while the loop still runs: nothing waits for its end

    with start_server(answer_without_end) as server:
        asyncio.run(main())


def test_leaving_in_the_middle_of_an_answer_closes_its_connection():
    async def main():
        async with HttpTransport().open(make_outgoing(server.url)) as answer:
            assert await anext(answer.chunks()) == b"half"
        await asyncio.sleep(0)
        all_closed(server)

    with start_server(answer_without_end) as server:
        asyncio.run(main())


def test_cancelling_before_the_answer_closes_the_connection():
    async def main():
        task = asyncio.ensure_future(read(server.url))
        while not server.requests:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await asyncio.sleep(0)
        all_closed(server)

    with start_server(answer_nothing) as server:
        asyncio.run(main())


def test_cancelling_an_upload_does_not_wait_for_a_server_that_stopped_reading():
    full = threading.Event()

    async def deaf(reader, writer):
        while not reader._paused:
            await asyncio.sleep(0)
        full.set()
        await asyncio.Event().wait()

    async def main():
        before = files_open()
        task = asyncio.ensure_future(read(server.url, body=b"x" * 30_000_000))
        while not full.is_set():
            await asyncio.sleep(0)
        for _ in range(1000):  # the kernel has some room left
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        async with asyncio.timeout(PATIENCE_SECONDS):
            while files_open() > before + 1:  # the one is the server's end
                await asyncio.sleep(0)

    with start_server(deaf, listens=False) as server:
        asyncio.run(main())


def test_two_hundred_cancels_leave_no_socket():
    async def main():
        await cancel_in_the_middle(server.url)
        before = files_open()
        await asyncio.gather(*[cancel_in_the_middle(server.url) for _ in range(200)])
        async with asyncio.timeout(PATIENCE_SECONDS):  # ours are closed, the server's a moment later
            while server.open or files_open() > before:
                await asyncio.sleep(0)
        assert server.opened == 201

    with start_server(answer_without_end) as server:
        asyncio.run(main())


def test_connections_are_shared_by_everybody_on_a_loop_and_never_by_two_loops():
    async def main():
        await asyncio.gather(*[read(server.url) for _ in range(10)])
        opened = server.opened
        await asyncio.gather(*[read(server.url) for _ in range(10)])
        assert server.opened == opened

    with start_server(answer_streamed) as server:
        asyncio.run(main())
        all_closed(server)
        before = server.opened
        asyncio.run(main())
        assert server.opened > before


def test_one_run_after_another():
    with start_server(answer_whole) as server:
        for _ in range(20):
            assert asyncio.run(read(server.url))[2] == b"hello"
        all_closed(server)


def test_a_loop_closed_without_any_ceremony():
    with start_server(answer_whole) as server:
        for _ in range(3):
            loop = asyncio.new_event_loop()
            assert loop.run_until_complete(read(server.url))[2] == b"hello"
            assert server.open == 1
            loop.close()
            loop.close()
            assert loop.is_closed()
            all_closed(server)
            assert "close" not in vars(loop), "the loop has its own close back"


def test_a_loop_closed_in_the_middle_of_an_answer(caplog):
    with start_server(answer_without_end) as server:
        loop = asyncio.new_event_loop()
        heard = loop.create_future()
        task = loop.create_task(listen(server.url, heard))
        assert loop.run_until_complete(heard) == b"half"
        loop.close()
        all_closed(server)
        del task, heard
        gc.collect()
    assert [record.message.splitlines()[0] for record in caplog.records] == [
        "Task was destroyed but it is pending!"  # the caller's own doing, and all there is to complain about
    ]
    caplog.clear()


def test_a_running_loop_is_not_closed():
    async def main():
        await read(server.url)
        with pytest.raises(RuntimeError, match="running"):
            asyncio.get_running_loop().close()
        assert (await read(server.url))[2] == b"hello"

    with start_server(answer_whole) as server:
        asyncio.run(main())


def test_a_loop_closed_from_inside_another():
    async def main():
        other = asyncio.new_event_loop()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(other.run_until_complete, read(server.url)).result(PATIENCE_SECONDS)
        other.close()
        all_closed(server)

    with start_server(answer_whole) as server:
        asyncio.run(main())


def test_two_loops_in_two_threads_at_once():
    both = threading.Barrier(2)

    async def main():
        await read(server.url)
        both.wait(PATIENCE_SECONDS)
        return (await read(server.url))[2]

    with start_server(answer_whole) as server, ThreadPoolExecutor(2) as pool:
        assert list(pool.map(lambda _: asyncio.run(main()), range(2))) == [b"hello", b"hello"]
        all_closed(server)
        assert server.opened == 2


def test_a_replaced_close_method_is_kept():
    with start_server(answer_whole) as server:
        closed = []
        loop = asyncio.new_event_loop()
        own = loop.close
        loop.close = theirs = lambda: (closed.append(True), own())  # type: ignore[assignment]
        loop.run_until_complete(read(server.url))
        loop.run_until_complete(close_all())
        assert loop.close is theirs
        loop.run_until_complete(read(server.url))
        loop.close()
        assert closed
        assert loop.is_closed()
        all_closed(server)


def test_close_all_closes_now_and_the_next_request_opens_a_new_connection():
    async def main():
        await close_all()
        await read(server.url)
        await close_all()
        all_closed(server)
        assert (await read(server.url))[2] == b"hello"
        await close_all()

    with start_server(answer_whole) as server:
        asyncio.run(main())
    assert server.opened == 2


STRICT = ("-X", "dev", "-W", "error")


SLOW = "Executing <"
"""What asyncio says of a step that took long: that is a complaint about a busy machine."""


def run_script(script, url, certificate, options=STRICT):
    """In a Python that complains about everything; what it complained about."""
    done = subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(script), url],
        env={
            **os.environ,
            "SSL_CERT_FILE": str(certificate),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith(SLOW))


BEGIN = """
import asyncio, gc, sys, threading
from tests.transports.local_server import read
url = sys.argv[1]
"""


RUN = "asyncio.run(read(url))"
BARE = "loop = asyncio.new_event_loop(); loop.run_until_complete(read(url)); loop.close()"
DAEMON = """
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
asyncio.run_coroutine_threadsafe(read(url), loop).result()
"""
NOTEBOOK = "loop = asyncio.new_event_loop(); loop.run_until_complete(read(url))"
FORGOTTEN = f"{NOTEBOOK}; del loop; gc.collect()"


@pytest.mark.parametrize(
    ("script", "options", "complaints"),
    [
        (RUN, STRICT, []),
        (BARE, STRICT, []),
        (DAEMON, STRICT, []),
        (
            NOTEBOOK,
            STRICT,
            ["unclosed event loop"],
        ),  # Python says that nobody closed it; we have nothing to add
        (FORGOTTEN, (), []),
    ],
    ids=["run", "bare", "daemon", "notebook", "forgotten"],
)
def test_over_tls_and_whatever_way_the_process_ends(script, options, complaints, localhost):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(localhost)
    with start_server(answer_streamed, tls=context) as server:
        stderr = run_script(BEGIN + script, server.url, localhost, options)
        all_closed(server)
        assert len(server.requests) == 1
    for word in ("client session", "connector", "transport", "Task was destroyed"):
        assert word not in stderr, stderr
    assert [complaint for complaint in complaints if complaint in stderr] == complaints
    assert complaints or not stderr, stderr


def test_cancelling_over_tls_closes_the_connection_at_once(localhost):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(localhost)
    script = "from tests.transports.cancelled_reads import cancel_in_the_middle; asyncio.run(cancel_in_the_middle(url))"
    with start_server(answer_without_end, tls=context) as server:
        assert run_script(BEGIN + script, server.url, localhost) == ""
        all_closed(server)


LONG_BODY = b"x" * 500_000


async def close_after_body(reader, writer):
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + LONG_BODY)
    await writer.drain()
    writer.close()
    await writer.wait_closed()
    raise ConnectionError


def test_over_tls_a_body_that_ends_with_its_connection_is_whole(localhost):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(localhost)
    script = """
        async def read_all():
            answers = await asyncio.gather(*[read(url) for _ in range(12)])
            assert [len(body) for _, _, body in answers] == [500_000] * 12

        asyncio.run(read_all())
    """
    with start_server(close_after_body, tls=context) as server:
        assert run_script(BEGIN + textwrap.dedent(script), server.url, localhost) == ""


@pytest.mark.parametrize(
    ("url", "is_shared"), [("http://a.example/v1", True), ("https://a.example/v1", False)]
)
def test_only_connections_without_tls_receive_in_the_shared_buffer(url, is_shared):
    """When a TLS connection is closed, asyncio drops what does not fit into the buffer of a `BufferedProtocol`."""

    async def make():
        pool = find_pool(asyncio.get_running_loop())
        return pool._make_connection(pool.find_route(url))

    assert isinstance(asyncio.run(make()), asyncio.BufferedProtocol) is is_shared


def test_a_stranger_is_not_trusted(localhost):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(localhost)
    script = """
        from bridle.values.errors import ProviderError
        try:
            asyncio.run(read(url))
        except ProviderError as error:
            assert error.failure.kind == "unreachable" and error.failure.should_retry is False
            assert "is not trusted: certificate verify failed" in str(error), error
            assert "SSL_CERT_FILE" in str(error)
        else:
            raise SystemExit("it was trusted")
    """
    with start_server(answer_streamed, tls=context) as server:
        assert run_script(BEGIN + textwrap.dedent(script), server.url, os.devnull) == ""


CROWD = """
import asyncio, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
from bridle import Agent

async def main():
    agent = Agent("anthropic:claude-sonnet-5", store=sys.argv[1])
    runs = (agent.run(f"!say hello {n}", session=f"s{n}") for n in range(300))
    results = await asyncio.gather(*runs)
    print(sum(result.text == f"hello {n}" for n, result in enumerate(results)))

asyncio.run(main())
"""


def test_more_sessions_than_descriptors_wait_for_their_turn(tmp_path):
    async def crowd():
        simulator = Simulator()
        async with sim_server.serve_simulator(simulator) as url:
            environment = {**os.environ, "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sim"}
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CROWD, str(tmp_path / "log.db"),
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
            told, complaint = await child.communicate()
            return told.decode(), complaint.decode(), child.returncode

    told, complaint, code = asyncio.run(crowd())
    assert (code, complaint) == (0, "")
    assert told == "300\n"


def test_waiting_for_a_turn_is_no_part_of_a_deadline(monkeypatch):
    """Four may be under way; the fifth waits longer than it may take itself, and is answered."""
    monkeypatch.setattr(pool, "DESCRIPTORS_PER_CONNECTION", 10**9)

    async def hold_and_wait(held_at, answered_at, seconds):
        short = Deadlines(connect_seconds=seconds, first_byte_seconds=seconds)
        async with AsyncExitStack() as held:
            for _ in range(pool.CONNECTIONS_MIN):
                answer = await held.enter_async_context(HttpTransport().open(make_outgoing(held_at)))
                await anext(answer.chunks())
            given_up = asyncio.ensure_future(read(answered_at, short))
            waiting = asyncio.ensure_future(read(answered_at, short))
            done, _ = await asyncio.wait([waiting, given_up], timeout=2 * seconds)
            assert not done
            given_up.cancel()
            await asyncio.wait([given_up])
        answers = [waiting, *(read(answered_at) for _ in range(20))]
        gathered = asyncio.gather(*answers, return_exceptions=True)
        return await asyncio.wait_for(gathered, PATIENCE_SECONDS)

    def check(seconds):
        with start_server(answer_without_end) as holding, start_server(answer_whole) as answering:
            answers = asyncio.run(hold_and_wait(holding.url, answering.url, seconds))
            failures = [answer for answer in answers if isinstance(answer, BaseException)]
            assert failures == []
            assert {body for _, _, body in answers} == {b"hello"}
            assert answering.opened <= pool.CONNECTIONS_MIN

    allow_longer(check, 0.1)


def test_failures_give_their_turn_back(monkeypatch):
    monkeypatch.setattr(pool, "DESCRIPTORS_PER_CONNECTION", 10**9)

    async def fail_often(nowhere, answered_at):
        for _ in range(pool.CONNECTIONS_MIN + 1):
            with pytest.raises(ProviderError):
                await asyncio.wait_for(read(nowhere), PATIENCE_SECONDS)
        return await asyncio.wait_for(read(answered_at), PATIENCE_SECONDS)

    with start_server(answer_whole) as gone:
        pass
    with start_server(answer_whole) as server:
        assert asyncio.run(fail_often(gone.url, server.url))[2] == b"hello"
