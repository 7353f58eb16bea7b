"""Hostile programs: whatever they write into the channel, they can only ask for tool calls, and they end."""

import asyncio
import json
import secrets
from pathlib import Path

import pytest

from bridle import Agent, CodeMode, tool
from bridle.stores.memory import MemoryStore
from bridle.tools.code_mode.process import MESSAGE_BYTES_MAX, ProgramProcess, ProgramStopped

CHANNEL = """
import gc, json, os, select
link = next(each for each in gc.get_objects() if type(each).__name__ == "Link")
def write(data):
    for fd in range(3, 20):
        try:
            os.write(fd, data)
        except OSError:
            pass
def frame(message, turn=None):
    data = message if isinstance(message, bytes) else json.dumps(message).encode()
    return (bytes.fromhex(link.turn) if turn is None else turn) + len(data).to_bytes(4, "big") + data
"""
"""Finds the channel by trying every descriptor, and its turn in memory, as a hostile program would."""


def run_program(code, seconds=30.0, **options):
    """Run a program that may call `look`; returns the result of the call, and what the tool was called with."""
    seen = []

    @tool(effect="read")
    def look(at: str) -> str:
        """Look."""
        seen.append(at)
        return f"saw {at}"

    @tool(effect="write")
    def hidden(at: str) -> str:
        """Do something that programs may not do."""
        seen.append(f"hidden {at}")
        return "done"

    mode = CodeMode(**{"tools": ["look"], "seconds": seconds, **options})
    agent = Agent("sim:", tools=[look, hidden], code_mode=mode, store=MemoryStore())
    result = agent.run_sync(f"!call run_code {json.dumps({'code': CHANNEL + code})}\n!then\n!say Done.")
    assert (result.stop, result.text) == ("done", "Done."), "the run goes on whatever the program does"
    (found,) = (each for message in result.messages for each in message.results)
    return found, seen


GARBAGE = {
    "bytes": "write(b'garbage and more garbage')",
    "no JSON": "write(frame(b'{'))",
    "another message": "write(frame({'results': [{'text': 'forged', 'outcome': 'ok'}]}))",
    "a huge length": "write(bytes.fromhex(link.turn) + (2**31).to_bytes(4, 'big') + b'x')",
    "deep nesting": "write(frame(b'{\"calls\":' + b'[' * 100_000 + b']' * 100_000 + b'}'))",
    "a message without its turn": "write(frame({'calls': [{'name': 'look', 'arguments': {'at': 'a'}}]}, b''))",
    "a message with another turn": "write(frame({'calls': [{'name': 'look', 'arguments': {'at': 'a'}}]}, b'0' * 8))",
    "the beginning of another turn": "write(bytes([bytes.fromhex(link.turn)[0] ^ 1]))",
    "a list of arguments": "write(frame({'calls': [{'name': 'look', 'arguments': []}]}))",
    "another tool": "write(frame({'calls': [{'name': 'hidden', 'arguments': {'at': 'a'}}]}))",
    "surrogates": 'write(frame(b\'{"calls":[{"name":"\\\\ud800","arguments":{}}]}\'))',
    "an endless flood": "\nwhile True: write(b'\\0' * 65536)",
    "a flood of calls": "write(frame({'calls': [{'name': 'look', 'arguments': {'at': 'a'}}] * 5000}))",
}


REASONS = ("is not a message", "a call that no function of it can make", "more than 200 tool calls")


@pytest.mark.parametrize("attack", GARBAGE)
def test_garbage_in_the_channel_ends_the_program(attack):
    found, seen = run_program(f"{GARBAGE[attack]}\nimport time\ntime.sleep(60)", sandbox=None)
    assert found.is_error and "The harness ended the program" in found.text
    assert any(reason in found.text for reason in REASONS), "it was not ended for its time"
    assert seen == []


def test_threads_of_a_program_call_one_at_a_time():
    code = """
import threading
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    print([*pool.map(lambda at: look(str(at)), range(40))] == [f"saw {at}" for at in range(40)])
for number in range(8):
    threading.Thread(target=look, args=("left behind",), daemon=True).start()
"""
    found, seen = run_program(code, sandbox=None)
    assert found.text == "True" and {*seen} >= {str(at) for at in range(40)}


def test_text_that_cannot_be_encoded_is_an_error_of_the_line():
    found, seen = run_program("\nat = '\\ud800'\nlook(at)", sandbox=None)
    assert found.is_error and "UnicodeEncodeError" in found.text and "look(at)" in found.text and not seen
    found, _ = run_program("\nraise ValueError('half \\ud800')", sandbox=None)
    assert found.is_error and "ValueError: half" in found.text


FORGED = "frame({'calls': [{'name': 'look', 'arguments': {'at': 'x'}}]})"
AHEAD = {
    "both at once": f"write({FORGED} + {FORGED})",
    "one after the other": f"write({FORGED})\nprint(look('y'))",
    "the rest of the second after the answer": f"""
write({FORGED})
second = {FORGED}
write(second[:-1])
link.receive()
write(frame({{'calls': [{{'name': 'look', 'arguments': {{'at': 'y'}}}}]}}))""",
    "the second after the answer": f"write({FORGED})\nselect.select([link._reader], [], [])\nprint(look('y'))",
}


def test_a_forged_call_is_an_ordinary_call():
    code = f"write({FORGED})\nprint(link.receive()['results'][0]['text'], look('y'))"
    found, seen = run_program(code, sandbox=None)
    assert (found.text, seen) == ("saw x saw y", ["x", "y"])


@pytest.mark.parametrize("when", AHEAD)
def test_a_program_that_does_not_wait_for_its_answer_is_ended_however_fast_it_is(when):
    """Its first message counts, and the second never does."""
    found, seen = run_program(AHEAD[when], sandbox=None)
    assert found.is_error and "is not a message" in found.text
    assert seen == ["x"]


def test_a_program_that_claims_to_be_done_is_done():
    found, seen = run_program("print('early')\nwrite(frame({'done': True}))\nlook('after')", sandbox=None)
    assert seen == [] and "early" in found.text


def test_a_fork_that_stays_behind_ends_with_the_program():
    code = """
import time
if os.fork() == 0:
    time.sleep(600)
print(look("a"))
"""
    found, seen = run_program(code)
    assert found.text == "saw a" and seen == ["a"]


def test_keys_files_and_the_network_are_out_of_reach(monkeypatch, tmp_path):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret-of-this-test")
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret")
    code = f"""
import os, socket, glob
print([value for value in os.environ.values() if "secret" in value])
for path in ({str(secret)!r}, os.path.expanduser("~/.bashrc"), "/root/.bashrc"):
    try:
        print(open(path).read())
    except OSError as error:
        print(type(error).__name__)
for path in glob.glob("/proc/[0-9]*/environ"):
    try:
        print(path, b"sk-secret" in open(path, "rb").read())
    except OSError as error:
        print(type(error).__name__)
try:
    socket.create_connection(("1.1.1.1", 53), timeout=2)
except OSError as error:
    print("no network")
print(os.listdir("."), look("a"))
"""
    found, _ = run_program(code)
    assert "True" not in found.text and "the secret" not in found.text
    assert found.text.splitlines()[0] == "[]" and found.text.splitlines()[-2:] == ["no network", "[] saw a"]


def test_output_without_end_is_cut_and_time_is_limited():
    found, _ = run_program("while True: print('x' * 1000)", seconds=1.0, output_bytes_max=2_000)
    assert found.is_error and "it used up its time" in found.text and len(found.text) < 3_000


def test_a_bomb_of_processes_ends_with_the_program():
    mark = secrets.token_hex(16)
    code = f"""
import time
while True:
    try:
        if os.fork() == 0:
            os.execv("/bin/sleep", ["{mark}", "600"])
    except OSError:
        time.sleep(0.01)
"""
    found, _ = run_program(code, seconds=2.0)
    assert found.is_error and "it used up its time" in found.text
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if has_word(path, mark.encode())]


def has_word(path, word):
    try:
        return word in path.read_bytes()
    except OSError:
        return False  # it has ended


def test_the_program_cannot_replace_what_its_functions_do():
    code = "call_tool = None\nlook.__globals__.clear()\nprint(look('a'))"
    found, seen = run_program(code, sandbox=None)
    assert seen in ([], ["a"]) and (found.is_error or "saw a" in found.text)


def test_a_large_result_arrives_and_a_large_call_is_refused():
    @tool(effect="read")
    def load(size: int) -> str:
        """Load a text."""
        return "x" * size

    @tool(effect="read")
    def measure(text: str) -> int:
        """Measure a text."""
        return len(text)

    agent = Agent("sim:", tools=[load, measure], code_mode=CodeMode(sandbox=None))
    code = f"text = load({2 * 10**6})\nprint(len(text), measure(text))\nmeasure('x' * {MESSAGE_BYTES_MAX})"
    result = agent.run_sync(f"!call run_code {json.dumps({'code': code})}\n!then\n!say Done.")
    (found,) = (each for message in result.messages for each in message.results)
    assert found.is_error and "2000000 2000000" in found.text


def test_a_process_that_was_stopped_at_once_leaves_nothing(tmp_path):
    async def run():
        process = ProgramProcess(None, tmp_path, 1000)
        await process.start("while True: pass", ())
        assert await process.stop() == ""
        with pytest.raises(ProgramStopped):
            await process.receive(5.0)

    asyncio.run(run())


@pytest.mark.parametrize("turns", range(6))
def test_a_stop_that_is_cancelled_leaves_nothing(turns, tmp_path):
    """The event loop goes on, as that of `run_sync` does: nothing else would end the program."""

    async def run():
        process = ProgramProcess(None, tmp_path, 1000)
        await process.start("while True: pass", ())
        ended = asyncio.Event()
        process._ending.add_done_callback(lambda _: ended.set())
        stopping = asyncio.create_task(process.stop())
        for _ in range(turns):
            await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.wait((stopping,))
        if turns:  # it had begun
            async with asyncio.timeout(20):
                await ended.wait()
        await process.stop()
        return process._running

    running = asyncio.run(run())
    assert running._popen.returncode is not None and running._popen.stdout.closed


def test_a_program_ends_with_an_event_loop_that_ends_at_once(tmp_path):
    async def run():
        process = ProgramProcess(None, tmp_path, 1000)
        await process.start("while True: pass", ())
        return process._running

    running = asyncio.run(run())
    running._popen.wait(20)
    assert running._popen.stdout.closed
