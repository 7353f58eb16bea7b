"""Export and import: the same bytes on both sides, and nothing damaged, newer or existing gets in."""

import json

import pytest

from bridle import Agent, CodeMode, tool
from bridle.events import ToolFinished
from bridle.run.calls.code_mode import CODE_TOOL_NAME
from bridle.run.replay.replay_session import replay_session
from bridle.sessions import export_session, import_session, redact_record
from bridle.stores import open_store
from bridle.stores.memory import MemoryStore
from bridle.values.errors import BridleError, Conflict, Corrupt, MisuseError, StoreError, Unusable
from tests.suite.command import bridle
from tests.suite.in_loop import in_loop

LONG = "line of a long result\n" * 3_000


@tool(effect="read")
def fetch(page: int) -> str:
    """Fetch a page."""
    return LONG + str(page)


PROMPT = '!call fetch {"page": 1}\n!then\n!say done'


async def export(store, session, **options):
    return b"".join([line async for line in export_session(store, session, **options)])


async def fill(store):
    """A session with a blob and three levels of forks."""
    agent = Agent("sim:", tools=[fetch], store=store)
    await agent.run(PROMPT, "root")
    await agent.fork("root", "m2", new="fork")
    await agent.run(PROMPT, "fork")
    await agent.fork("fork", new="leaf")
    await agent.run("more \x1b[31m \u202e \ud7ff", "leaf")
    return ("root", "fork", "leaf")


def split(data):
    return data.splitlines(keepends=True)


def place_store(kind, at, request, tmp_path):
    if kind == "postgres":
        return request.getfixturevalue("postgres").new_url()
    return None if kind == "memory" else tmp_path / f"{at}.db"


@pytest.mark.parametrize(
    "kinds",
    [
        ("memory", "sqlite"),
        ("sqlite", "memory"),
        ("sqlite", "sqlite"),
        ("sqlite", "postgres"),
        ("postgres", "sqlite"),
        ("postgres", "postgres"),
    ],
)
@pytest.mark.parametrize("shares", [True, False])
@in_loop
async def test_exporting_an_imported_session_gives_the_same_bytes(request, tmp_path, kinds, shares):
    source, target = (open_store(place_store(kind, at, request, tmp_path)) for at, kind in enumerate(kinds))
    names = await fill(source)
    for name in names if shares else names[::-1]:
        data = await export(source, name)
        imported = await import_session(target, split(data))
        assert imported.parent == ({"fork": "root", "leaf": "fork"}.get(name, "") if shares else "")
        assert await export(target, name) == data
        assert await target.read(name) == await source.read(name)
    agent = Agent("sim:", tools=[fetch], store=target)
    assert (await agent.run("!say on", "leaf")).text == "on"
    await source.close()
    await target.close()


@in_loop
async def test_every_single_damage_is_refused_with_its_line_and_nothing_is_written():
    source = MemoryStore()
    await fill(source)
    lines = split(await export(source, "root"))
    target = MemoryStore()
    damages = 0
    for at, line in enumerate(lines):
        middle = len(line) // 2
        for changed in (
            [*lines[:at], *lines[at + 1 :]],
            [*lines[:at], line[:middle] + b"\n", *lines[at + 1 :]],
            [*lines[:at], line[:middle] + bytes([line[middle] ^ 1]) + line[middle + 1 :], *lines[at + 1 :]],
            lines[: at + 1] if at + 1 < len(lines) else lines[:-1],
            [*lines[:at], *lines[at : at + 2][::-1], *lines[at + 2 :]]
            if at + 1 < len(lines)
            else lines[::-1],
        ):
            if changed == lines or (changed == swap_lines(lines, at) and b'{"blob"' in line + lines[at + 1]):
                continue
            with pytest.raises(BridleError) as refused:
                await import_session(target, changed)
            assert isinstance(refused.value, Corrupt | MisuseError), refused.value
            damages += 1
            assert await target.sessions() == ()
    assert damages > 4 * len(lines)
    with pytest.raises(Corrupt, match=r"line 3 is damaged: record 2 was changed"):
        await import_session(target, [*lines[:2], lines[2].replace(b'"text":"', b'"text":"x', 1), *lines[3:]])
    with pytest.raises(Corrupt, match="the file is empty"):
        await import_session(target, [])


def swap_lines(lines, at):
    """A blob may come anywhere: exchanging it with the record beside it is no damage."""
    return [*lines[:at], *lines[at : at + 2][::-1], *lines[at + 2 :]]


@in_loop
async def test_an_export_of_another_version_is_refused_in_one_line_and_added_members_are_skipped():
    source = MemoryStore()
    await fill(source)
    header, *lines = split(await export(source, "root"))
    assert b'"version":1,' in header
    newer = header.replace(b'"version":1', b'"version":2')
    with pytest.raises(
        Unusable, match=r"^the export has version 2, this Bridle reads version 1; upgrade Bridle$"
    ):
        await import_session(MemoryStore(), [newer, *lines])
    for version in (b"0", b"-1", b'"1.0"', b"null", b"1.5", b"[1]"):
        unknown = header.replace(b'"version":1', b'"version":' + version)
        with pytest.raises(
            Corrupt, match="not an exported session; write one with `bridle session export SESSION`"
        ):
            await import_session(MemoryStore(), [unknown, *lines])
    added = header.replace(b'"version":1', b'"version":1,"added":[1]')
    imported = await import_session(MemoryStore(), [added, b'{"note":"a line of a later version"}\n', *lines])
    assert imported.records == len(await source.read("root"))


@in_loop
async def test_an_existing_session_stays_as_it_is_and_another_name_can_be_given():
    store = MemoryStore()
    await fill(store)
    data = split(await export(store, "root"))
    before = await store.read("root")
    with pytest.raises(Conflict, match=r"already a session 'root'.*--as NAME"):
        await import_session(store, data)
    assert (await import_session(store, data, name="copy")).session == "copy"
    assert await store.read("root") == before == await store.read("copy")


@in_loop
async def test_an_export_without_blobs_needs_a_store_that_has_them():
    source, empty = MemoryStore(), MemoryStore()
    await fill(source)
    data = split(await export(source, "root", blobs=False))
    assert not any(b'"base64"' in line for line in data)
    with pytest.raises(MisuseError, match="export the session again without --no-blobs"):
        await import_session(empty, data)
    assert await empty.sessions() == ()
    assert (await import_session(source, data, name="copy")).blobs == 0


class Shop:
    """An agent whose tool is an agent or a program, which pays and then waits for an approval."""

    def __init__(self):
        self.paid, self.shipped = [], []

    def make_agent(self, store, *, program=False):
        @tool(effect="write")
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return "paid"

        @tool(effect="write", approve=True)
        def ship(count: int) -> str:
            """Ship."""
            self.shipped.append(count)
            return "shipped"

        if program:
            return Agent("sim:", tools=[pay, ship], code_mode=CodeMode(sandbox=None), store=store)
        inner = Agent("sim:", name="inner", tools=[pay, ship])
        return Agent("sim:", tools=[inner.as_tool(description="Ask.")], store=store)

    async def order(self, store, *, program=False):
        inner = '!call pay {"amount": 9}\n!then\n!call ship {"count": 1}\n!then\n!say in'
        call = f"!call inner {json.dumps({'prompt': inner})}"
        if program:
            call = f"!call {CODE_TOOL_NAME} {json.dumps({'code': 'pay(amount=9); ship(count=1)'})}"
        waiting = await self.make_agent(store, program=program).run(f"{call}\n!then\n!say done", "outer")
        assert (waiting.stop, self.paid) == ("waiting", [9])


@pytest.mark.parametrize("program", [False, True])
@in_loop
async def test_a_run_inside_a_tool_that_was_not_imported_is_in_doubt_and_not_run_again(program):
    shop, source, target = Shop(), MemoryStore(), MemoryStore()
    await shop.order(source, program=program)
    imported = await import_session(target, split(await export(source, "outer", subruns=False)))
    assert len(imported.missing_subruns) == 1
    (missing,) = (await replay_session(target, "outer")).unchecked
    assert missing.endswith("is not in this store")
    done = await shop.make_agent(target, program=program).resume("outer")
    assert (done.text, shop.paid) == ("done", [9])
    (finished,) = [
        record.event for record in await target.read("outer") if isinstance(record.event, ToolFinished)
    ]
    assert finished.result.outcome == "unknown"
    assert "is not in this store" in finished.result.text


@pytest.mark.parametrize("program", [False, True])
@in_loop
async def test_the_runs_inside_tools_move_with_their_session_and_continue_there(program):
    shop, source, target = Shop(), MemoryStore(), MemoryStore()
    await shop.order(source, program=program)
    data = await export(source, "outer")
    lines = split(data)
    for at in range(1, len(lines)):
        with pytest.raises(Corrupt):
            await import_session(target, [*lines[:at], *lines[at + 1 :]])
        assert await target.sessions() == ()
    imported = await import_session(target, lines)
    (inner,) = imported.subruns
    assert imported.missing_subruns == ()
    assert await export(target, "outer") == data
    assert (await import_session(target, lines, name="copy")).subruns == ()
    agent = shop.make_agent(target, program=program)
    await agent.approve(inner, (await agent.approvals(inner))[0].id)
    assert (await agent.resume("outer")).text == "done"
    assert (shop.paid, shop.shipped) == ([9], [1])
    other = MemoryStore()
    await Agent("sim:", store=other).run("!say mine", inner)
    with pytest.raises(Conflict, match="already another session"):
        await import_session(other, lines)
    assert [info.id for info in await other.sessions()] == [inner]


@in_loop
async def test_a_session_that_other_runs_use_too_is_not_exported_with_one_of_them():
    store = MemoryStore()
    helper = Agent("sim:", store=store)

    @tool(effect="read")
    async def ask() -> str:
        """Ask the helper of all runs."""
        return (await helper.run("!say yes", "helper")).text

    agent = Agent("sim:", tools=[ask], store=store)
    for name in ("a", "b"):
        await agent.run("!call ask {}\n!then\n!say done", name)
    assert b"helper" not in split(await export(store, "a"))[0]
    imported = await import_session(MemoryStore(), split(await export(store, "a")))
    assert imported.missing_subruns == ("helper",)


def test_the_commands_move_a_session_between_stores(shared_log, tmp_path):
    log = shared_log
    session = json.loads(bridle("run", "!say hello", "--json", "--store", log).out)["session"]
    written = bridle("session", "export", session, "-o", "out.jsonl", cwd=tmp_path, BRIDLE_STORE=log)
    assert (written.code, written.out) == (0, ""), written.err
    again = bridle("session", "export", session, "-o", "out.jsonl", cwd=tmp_path, BRIDLE_STORE=log)
    assert again.code == 2
    assert "exists; choose another file" in again.err
    other = str(tmp_path / "other.db")
    read = bridle("session", "import", "out.jsonl", cwd=tmp_path, BRIDLE_STORE=other)
    assert (read.code, read.out) == (
        0,
        f"{session}: {read.out.split()[1]} records verified and imported\n",
    ), read.err
    assert (
        bridle("session", "export", session, BRIDLE_STORE=other).out == (tmp_path / "out.jsonl").read_text()
    )
    twice = bridle("session", "import", "out.jsonl", cwd=tmp_path, BRIDLE_STORE=other)
    assert (twice.code, twice.err.count("\n")) == (2, 1)


class KilledStore:
    """A store whose process is killed at one of its writes: before it, or after it and before the caller knows."""

    def __init__(self, store, place, *, is_written):
        self._store, self._left, self._is_written = store, place, is_written

    def __getattr__(self, name):
        act = getattr(self._store, name)
        if name not in ("put_blob", "append", "fork"):
            return act

        async def write(*given, **more):
            self._left -= 1
            if self._left == 0 and not self._is_written:
                raise StoreError("the process is gone")
            done = await act(*given, **more)
            if self._left == 0:
                raise StoreError("the process is gone")
            return done

        return write


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
@in_loop
async def test_an_import_that_is_killed_at_any_write_is_completed_by_importing_again(
    request, tmp_path, kind, is_written
):
    """Each session is there as a whole, or as a fork without records of its own, or not at all."""
    shop, source = Shop(), MemoryStore()
    await shop.order(source)
    await fill(source)
    agent = Agent("sim:", tools=[fetch], store=source)
    await agent.fork("leaf", new="last")
    await agent.run(PROMPT, "last")
    killed = 0
    for name, parents in (
        ("outer", ()),
        ("root", ()),
        ("leaf", ("root", "fork")),
        ("last", ("root", "leaf")),
    ):
        data = await export(source, name)
        for place in range(1, 100):
            target = open_store(place_store(kind, f"{name}{place}", request, tmp_path))
            for parent in parents:
                await import_session(target, split(await export(source, parent)))
            try:
                await import_session(KilledStore(target, place, is_written=is_written), split(data))
            except StoreError as error:
                assert str(error) == "the process is gone"
                is_killed = True
            else:
                is_killed = False
            killed += is_killed
            left = await target.read(name)
            assert list(left) == list((await source.read(name))[: len(left)])
            if is_killed and not is_written:
                assert (await import_session(target, split(data))).session == name
            elif is_killed and len(left) < len(await source.read(name)):
                await import_session(target, split(data))
            assert await export(target, name) == data
            await target.close()
            if not is_killed:
                break
    assert killed >= 8


@in_loop
async def test_a_session_with_records_of_its_own_is_never_completed():
    source, target = MemoryStore(), MemoryStore()
    await fill(source)
    for name in ("root", "fork"):
        await import_session(target, split(await export(source, name)))
    data = await export(source, "leaf")
    records = await source.read("leaf")
    at = len(await source.read("fork"))
    await target.fork("fork", at, "leaf")
    await target.append("leaf", at, records[at : at + 1])
    with pytest.raises(Conflict, match="already a session 'leaf'"):
        await import_session(target, split(data))


@in_loop
async def test_a_fork_shares_the_records_of_a_parent_that_was_redacted_since():
    """Hashes are compared: the removed content stays removed, although the file has it."""
    source, target = MemoryStore(), MemoryStore()
    await fill(source)
    await import_session(target, split(await export(source, "root")))
    data = await export(source, "fork")
    await redact_record(target, "root", 2, reason="r", by="b")
    imported = await import_session(target, split(data))
    assert (imported.parent, imported.shared > 2) == ("root", True)
    assert (await target.read("fork"))[1].is_redacted
    await redact_record(source, "root", 2, reason="r", by="b")
    other = MemoryStore()
    await import_session(other, split(data), name="root")
    again = await import_session(other, split(await export(source, "fork")))
    assert again.parent == "", "the removed content would come back"
