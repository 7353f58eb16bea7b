"""The support platform in real processes: upgraded while approvals wait, killed, shared by tenants, and its nightly batch."""

import ast
import asyncio
import json
import re
import sqlite3
from collections import Counter
from contextlib import ExitStack, closing, contextmanager

import pytest

from bridle.events import RunEnded, ToolStarted
from bridle.serve import Client
from bridle.serve.client import ApiError, ServedEvent
from tests.examples.programs import EXAMPLES, run_program, start_program
from tests.serve.raw_http import send
from tests.suite.command import bridle
from tests.suite.in_loop import in_loop
from tests.suite.patience import PATIENCE_SECONDS
from tests.suite.public_names import PUBLIC

FOLDER = EXAMPLES / "platform"
PEOPLE = {
    "ada": ("acme", "read,prompt", "own"),
    "bob": ("acme", "read,prompt", "own"),
    "eve": ("globex", "read,prompt", "own"),
    "lead": ("acme", "read,approve", "tenant"),
    "boss": ("globex", "read,approve", "tenant"),
    "monitor": ("", "administer", "own"),
}
"""Tenant, rights and sessions of everyone who has a token."""
LETTERS = 24
PROMPTS_MAX = 40


class Platform:
    """Servers of the platform with one store, and its books."""

    def __init__(self, folder, store, stack):
        self.folder, self.stack = folder, stack
        self.variables = {"BRIDLE_STORE": str(store), "PLATFORM_BOOKS": str(folder / "books.db")}
        self.tokens, lines = {}, []
        for name, (tenant, rights, sessions) in PEOPLE.items():
            made = json.loads(
                bridle(
                    "serve", "--new-token", name, "--tenant", tenant, "--rights", rights, "--sessions", sessions,
                    "--json",
                ).out
            )  # fmt: skip
            self.tokens[name] = made["token"]
            kept = {
                field: made["entry"].get(field) for field in ("id", "hash", "tenant", "rights", "sessions")
            }
            lines += [
                f"[tokens.{name}]",
                *(f"{field} = {json.dumps(value)}" for field, value in kept.items() if value),
            ]
        (folder / "tokens.toml").write_text("\n".join(lines))

    def start(self, release="2", **variables):
        """Start a server and wait until it is ready."""
        given = {**self.variables, "PLATFORM_RELEASE": release, **variables}
        process = self.stack.enter_context(
            start_program(self.folder, "platform/server.py", "--port", "0", **given)
        )
        shown = []
        for line in process.stderr:
            shown.append(line)
            if found := re.search(r"running on (http://\S+)", line):
                return Server(process, found[1], self.tokens)
        raise AssertionError("".join(shown))

    def list_entries(self, kind):
        """Subject and cents of each entry of the books, as often as it was made."""
        with closing(sqlite3.connect(self.folder / "books.db")) as books:
            return Counter(
                books.execute("SELECT subject, cents FROM entries WHERE kind = ?", (kind,)).fetchall()
            )

    @contextmanager
    def lock_books(self):
        """Hold the books, so that whoever wants to write in them waits; yields the connection."""
        with closing(sqlite3.connect(self.folder / "books.db")) as books, books:
            books.execute("BEGIN EXCLUSIVE")
            yield books


class Server:
    def __init__(self, process, url, tokens):
        self.process, self.url, self.tokens = process, url, tokens

    def as_person(self, name):
        return Client(self.url, token=self.tokens[name])

    def kill(self):
        self.process.kill()
        self.process.wait()

    def read_metrics(self):
        return send(f"{self.url}/metrics", headers={"authorization": f"Bearer {self.tokens['monitor']}"})


@pytest.fixture
def platform(tmp_path):
    with ExitStack() as stack:
        yield Platform(tmp_path, tmp_path / "platform.db", stack)


@pytest.fixture
def shared_platform(tmp_path, shared_log):
    with ExitStack() as stack:
        yield Platform(tmp_path, shared_log, stack)


async def wait_for(client, session, is_wanted, after=0):
    """The first event of the session after a record that is wanted."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        async for item in client.stream(session, after=after, until="never"):
            if isinstance(item, ServedEvent) and is_wanted(item.event):
                return item.event
    raise AssertionError("the stream ended")


async def ask(client, prompt, session):
    """Prompt in a new session, and wait for the end of the run; returns the status of the session."""
    run = await client.prompt(prompt, session=session, new=True)
    await wait_for(client, session, lambda event: isinstance(event, RunEnded), run.after)
    return (await client.session(session)).summary.status


async def approve(client, session):
    """Approve the open question of a session; returns the number of the record before the answer."""
    (question,) = (await client.approvals(session)).approvals
    after = (await client.session(session)).summary.records
    await client.answer(session, question.id, "approve")
    return after


async def finish(client, session, after):
    """Wait for the end of a run that goes on; returns the answer."""
    ended = await wait_for(client, session, lambda event: isinstance(event, RunEnded), after)
    assert ended.stop == "done", ended
    return (await client.session(session)).answer


def test_the_programs_use_public_names_only():
    for file in FOLDER.glob("*.py"):
        nodes = ast.walk(ast.parse(file.read_text()))
        modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
        ours = {name for name in modules if name.startswith("bridle")}
        assert ours <= PUBLIC, file


@pytest.mark.slow
@in_loop
async def test_a_rolling_upgrade_pays_each_waiting_refund_once(shared_platform):
    platform = shared_platform
    old = platform.start(release="1")
    ada, bob = old.as_person("ada"), old.as_person("bob")
    assert await ask(ada, "Please refund order 4411.", "on-old") == "waiting"
    assert await ask(ada, "Please refund order 4412.", "on-new") == "waiting"
    assert await ask(bob, "Please refund order 4413.", "survivor") == "waiting"
    check = [
        "check",
        "waiting",
        "-a",
        FOLDER / "support_agents.py",
        "--store",
        platform.variables["BRIDLE_STORE"],
    ]
    checked = bridle(*map(str, check), "--json", cwd=platform.folder, PLATFORM_RELEASE="2")
    assert (checked.code, json.loads(checked.out)["waiting"]) == (0, 3), checked
    new = platform.start(release="2")
    assert await ask(new.as_person("ada"), "Please refund order 4414.", "begun-on-new") == "waiting"
    old_lead, new_lead = old.as_person("lead"), new.as_person("lead")

    with pytest.raises(ApiError, match="version '2'") as refused:
        await approve(old_lead, "begun-on-new")
    assert (refused.value.status, refused.value.code) == (409, "cannot_continue")
    for client, session in ((new_lead, "on-new"), (old_lead, "on-old"), (new_lead, "begun-on-new")):
        after = await approve(client, session)
        await finish(new_lead, session, after)
    old.kill()
    after = await approve(new_lead, "survivor")
    await finish(new_lead, "survivor", after)
    assert platform.list_entries("payment") == {
        ("4411", 1800): 1, ("4412", 2400): 1, ("4413", 5900): 1, ("4414", 3200): 1,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("is_paid", [False, True], ids=["before the payment", "after the payment"])
@in_loop
async def test_another_server_ends_the_refund_of_a_killed_one(shared_platform, is_paid):
    platform = shared_platform
    first, second = platform.start(), platform.start()
    assert await ask(first.as_person("ada"), "Please refund order 4411.", "a") == "waiting"
    watching = second.as_person("lead")
    with platform.lock_books() as books:
        after = await approve(first.as_person("lead"), "a")
        started = await wait_for(watching, "a", lambda event: isinstance(event, ToolStarted), after)
        first.kill()
        if is_paid:
            books.execute("CREATE TABLE entries (key, kind, tenant, customer, subject, cents)")
            entry = (started.key, "payment", "acme", "ada", "4411", 1800)
            books.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", entry)
    answer = await finish(watching, "a", after)
    assert answer == (
        "payment for 4411 was made before" if is_paid else "Paid back 1800 cents for order 4411."
    )
    assert platform.list_entries("payment") == {("4411", 1800): 1}
    counted = re.findall(
        r'bridle_serve_adoptions_total\{[^}]*reason="server ended"[^}]*\} (\d+)',
        second.read_metrics().body.decode(),
    )
    assert counted == ["1"]


@pytest.mark.slow
@in_loop
async def test_two_tenants_neither_see_nor_stop_each_other(platform):
    server = platform.start(PLATFORM_DAY_USD="0.01")
    ada, eve = server.as_person("ada"), server.as_person("eve")
    assert await ask(ada, "Remember: Ada is allergic to nuts.", "note") == "done"
    assert await ask(ada, "Please refund order 4411.", "a") == "waiting"
    status, number = "", 0
    while status != "budget" and number < PROMPTS_MAX:
        number += 1
        status = await ask(ada, "Hello!", f"hello-{number}")
    assert status == "budget"

    assert await ask(eve, "Please refund order 5511.", "e") == "waiting"
    for stranger in (eve, server.as_person("boss"), server.as_person("bob")):
        for attempt in (
            stranger.session("a"),
            stranger.prompt("Hello!", session="a"),
            stranger.approvals("a"),
        ):
            with pytest.raises(ApiError) as refused:
                await attempt
            assert refused.value.status in (403, 404)
    for claim in ({"tenant": "acme"}, {"caller": "ada"}):
        with pytest.raises(ApiError) as refused:
            await eve.prompt("Please refund order 4411.", **claim)
        assert refused.value.status == 403
    page = await server.as_person("boss").sessions()
    assert [each.session for each in page.sessions] == ["e"]
    after = await approve(server.as_person("boss"), "e")
    assert await finish(eve, "e", after) == "Paid back 48000 cents for order 5511."
    assert platform.list_entries("payment") == {("5511", 48000): 1}


@in_loop
async def test_a_customer_reaches_no_order_and_no_note_of_another_one(platform):
    server = platform.start()
    ada, bob = server.as_person("ada"), server.as_person("bob")
    assert await ask(ada, "Remember: Ada is allergic to nuts.", "note") == "done"
    shown = []
    for person, session in ((ada, "a"), (bob, "b")):
        await ask(person, "Please refund order 4411.", session)
        calls = (await person.calls(session)).calls
        sent = [await person.call(session, each.number) for each in calls]
        shown.append(["allergic to nuts" in each.body for each in sent])
    assert all(shown[0]) and not any(shown[1])
    assert (await bob.session("b")).answer == "bob has no order 4411; ask for the number"


@pytest.mark.slow
def test_the_letters_of_a_killed_night_are_sent_once(platform):
    command = ["platform/nightly.py", "--date", "2026-11-18"]
    with start_program(platform.folder, *command, **platform.variables) as process:
        for _ in range(LETTERS // 3):
            assert process.stderr.readline().endswith(": done\n")
        process.kill()
        process.wait()
    sent = platform.list_entries("letter")
    assert LETTERS // 3 <= len(sent) < LETTERS
    for _ in range(2):
        run_program(platform.folder, *command, **platform.variables)
        sent = platform.list_entries("letter")
        assert len(sent) == LETTERS and set(sent.values()) == {1}
