"""Redaction: the content is gone from the store, the chain verifies, and an unrecorded removal is still tampering."""

import asyncio
import json

import msgspec
import pytest

from bridle import Agent, KeepRaw, tool
from bridle.core.recovery.log_repair import fold_log
from bridle.core.redaction import REMOVED, redact_data
from bridle.events import ContentRedacted
from bridle.run.archive import remains
from bridle.run.archive.redact import redact_blob
from bridle.run.recovery.verification import verify_session
from bridle.sessions import control, export_session, import_session, redact_record
from bridle.stores import open_store
from bridle.stores.anchors import Anchor
from bridle.testing import scripted
from bridle.testing.conformance.sample_records import make_records
from bridle.testing.conformance.store_blobs import make_blob_receipt
from bridle.values.calls import control_log_name, redaction_key
from bridle.values.errors import Conflict, Corrupt, MissingBlob, MisuseError
from bridle.values.record import Record, seal_record
from tests.suite.command import bridle
from tests.suite.in_loop import in_loop
from tests.suite.postgres_server import change_rows

SECRET = "4111-1111-1111-1111"
LONG = f"card {SECRET}\n" * 5_000


@tool(effect="write")
def pay(card: str) -> str:
    """Pay."""
    return f"paid with {card}"


@tool(effect="read")
def read_cards() -> str:
    """Read all cards."""
    return LONG


PROMPT = f'!call pay {{"card": "{SECRET}"}}\n!then\n!call read_cards {{}}\n!then\n!say done'


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request, tmp_path):
    if request.param == "postgres":
        opened = open_store(request.getfixturevalue("postgres").new_url())
    else:
        opened = open_store(None if request.param == "memory" else tmp_path / "log.db")
    yield opened
    asyncio.run(opened.close())


def make_agent(store, model="sim:"):
    return Agent(model, tools=[pay, read_cards], store=store)


async def redact_all(store, session):
    for record in await store.read(session):
        if SECRET.encode() in record.data:
            await redact_record(store, session, record.seq, reason="erasure 17", by="ann")


def has_secret(records):
    return any(SECRET.encode() in record.data for record in records)


@in_loop
async def test_content_is_gone_everywhere_and_the_session_goes_on(store, tmp_path):
    agent = make_agent(store)
    await agent.run(PROMPT, "s")
    await agent.fork("s", new="fork")
    await agent.run("!say more", "fork")
    before = await store.read("s")
    blobs = [hash_ for record in before for hash_ in record.event.required_blobs]
    assert len(blobs) == 1
    await redact_all(store, "s")
    for name in ("s", "fork"):
        after = await store.read(name)
        assert not has_secret(after)
        assert [each.hash for each in after[: len(before) - 1]] == [each.hash for each in before[:-1]]
        events = [each.event for each in after if isinstance(each.event, ContentRedacted)]
        assert {(event.by, event.reason) for event in events} == {("ann", "erasure 17")}
        assert sum(each.is_redacted for each in after) == len(events) >= 4
    assert await store.get_blob(blobs[0]) is None
    for path in tmp_path.glob("log.db*"):
        assert SECRET.encode() not in path.read_bytes(), path
    for name in ("s", "fork"):
        result = await agent.run("!say still here", name)
        assert (result.stop, result.text) == ("done", "still here")
        assert REMOVED in str(result.messages)


@in_loop
async def test_a_fork_from_before_the_redaction_proves_it_too(store):
    agent = make_agent(store)
    await agent.run(PROMPT, "s")
    await agent.run("!say more", "s")
    await redact_all(store, "s")
    await agent.fork("s", "m4", new="fork")
    shared = await store.read("fork")
    assert not has_secret(shared)
    assert any(each.is_redacted for each in shared)
    assert {each.event.record for each in shared if isinstance(each.event, ContentRedacted)} == {
        each.seq for each in shared if each.is_redacted
    }
    await agent.fork("fork", "m2", new="leaf")
    for name in ("fork", "leaf"):
        assert (await agent.run("!say on", name)).text == "on"


@in_loop
async def test_a_bare_fork_from_before_the_redaction_is_proved_by_its_parents(store, tmp_path):
    """`store.fork` copies no event: the logs that it was forked from prove what was removed from shared records."""
    agent = make_agent(store)
    await agent.run(PROMPT, "s")
    length = len(await store.read("s"))
    await agent.fork("s", new="side")  # has evidence of its own
    await redact_all(store, "s")
    await store.fork("s", length, "bare")
    await store.fork("bare", length - 1, "leaf")
    await store.fork("side", length, "side leaf")
    for number, name in enumerate(("bare", "leaf", "side leaf")):
        shared = await store.read(name)
        assert [each.hash for each in shared] == [
            each.hash for each in (await store.read("s"))[: len(shared)]
        ]
        assert not has_secret(shared)
        data = [line async for line in export_session(store, name)]
        target = open_store(tmp_path / f"target{number}.db")
        assert (await import_session(target, data)).records > len(shared)
        assert [line async for line in export_session(target, name)] == data
        assert (await target.read(name))[: len(shared)] == shared
        assert (await make_agent(target).run("!say on", name)).text == "on"
        await target.close()
        assert (await agent.run("!say on", name)).text == "on"


@in_loop
async def test_a_changed_record_of_a_fork_is_not_excused_by_a_row_after_the_end_of_its_parent(shared_log):
    """What proves a redaction is itself part of a chain that verifies."""
    store = open_store(shared_log)
    await make_agent(store).run(PROMPT, "s")
    records = await store.read("s")
    await store.fork("s", len(records), "bare")
    await redact_record(store, "s", 2, reason="r", by="b")
    await store.fork("s", len(records), "later")
    assert (await store.read("later"))[1].is_redacted
    last = (await store.read("s"))[-1]
    changed = last.data.replace(b'"reason":"r"', b'"reason":"x"')
    assert changed != last.data
    own = "sid = (SELECT sid FROM sessions WHERE uid = 's')"
    change_rows(
        shared_log, f"UPDATE events SET data = {quote(changed.decode())} WHERE seq = {last.seq} AND {own}"
    )
    for name in ("s", "later"):
        with pytest.raises(Corrupt, match=r"record .* was changed"):
            await store.read(name)
    assert (await store.read("bare"))[1].is_redacted, "its own evidence is intact"
    await store.close()


@in_loop
@pytest.mark.parametrize("is_bare", [True, False])
async def test_a_redaction_that_was_forged_in_the_parent_is_reported_for_the_fork(shared_log, is_bare):
    store = open_store(shared_log)
    await make_agent(store).run("pay 100 to ann\n!say ok", "s")
    shared = await store.read("s")
    await make_agent(store).run("!say more", "s")
    await (store.fork("s", len(shared), "fork") if is_bare else make_agent(store).fork("s", "m2", new="fork"))
    await make_agent(store).run("!say on", "fork")
    last, old, above = (await store.read("fork"))[-1], shared[1], (await store.read("s"))[-1]
    body = redact_data(old.seq, old.data)
    key = redaction_key(old.seq, body.data).rpartition(":")[2]
    event = ContentRedacted(record=2, record_hash=old.hash, body=key, digest=body.digest, reason="x", by="y")
    await store.append("s", above.seq, [seal_record(above.seq + 1, above.at, event, above.hash)])
    own = "seq = 2 AND sid = (SELECT sid FROM sessions WHERE uid = 's')"
    change_rows(shared_log, f"UPDATE events SET data = {quote(body.data.decode())} WHERE {own}")
    anchor = Anchor(session="fork", seq=last.seq, head=last.hash)
    evidence = (await store.read("s"))[-1].hash
    for found in (
        await verify_session(store, "fork", known=anchor),
        await verify_session(store, "fork", (anchor,), frozenset({last.hash})),
    ):
        (problem,) = found.problems
        assert (problem.kind, problem.seq) == ("anchor", 2)
        assert "not anchored" in problem.text
        assert found.redactions == (
            "record 2 was redacted by y: x (recorded in the log that this session was forked from)",
        )
    for problems in (
        (await verify_session(store, "fork", (anchor,), frozenset({last.hash, evidence}))).problems,
        (
            await verify_session(store, "fork", known=Anchor(session="fork", seq=1, head=shared[0].hash))
        ).problems,
        (await verify_session(store, "fork")).problems,
    ):
        assert problems == ()
    await store.close()


@in_loop
async def test_an_export_of_a_redacted_session_verifies_elsewhere(store, tmp_path):
    await make_agent(store).run(PROMPT, "s")
    await redact_all(store, "s")
    data = [line async for line in export_session(store, "s")]
    target = open_store(tmp_path / "target.db")
    await import_session(target, data)
    assert [line async for line in export_session(target, "s")] == data
    assert (await make_agent(target).run("!say on", "s")).text == "on"
    at = next(at for at, line in enumerate(data) if REMOVED.encode() in line)
    with pytest.raises(Corrupt, match=f"line {at + 1} is damaged: record .* was changed"):
        await import_session(
            target, [*data[:at], data[at].replace(b"removed", b"REMOVED"), *data[at + 1 :]], name="x"
        )
    await target.close()


@in_loop
async def test_every_record_of_a_log_can_be_redacted_or_is_refused_with_a_reason(store):
    """Whatever is removed, the log reads, folds and continues; a record without content is left alone."""
    agent = make_agent(store)
    await agent.run(PROMPT, "s")
    length = len(await store.read("s"))
    redacted = 0
    for seq in range(1, length + 1):
        try:
            await redact_record(store, "s", seq, reason="all of it", by="ann")
            redacted += 1
        except MisuseError as error:
            assert "no content to remove" in str(error), error
        assert len(await store.read("s")) == length + redacted
    assert redacted >= 6
    assert (await agent.run("!say on", "s")).text == "on"


@in_loop
async def test_one_field_can_be_removed_twice_over_and_wrong_paths_are_refused(store):
    await make_agent(store).run(PROMPT, "s")
    records = await store.read("s")
    (reply,) = [
        each for each in records if each.event.__class__.__name__ == "ModelReplied" and has_secret([each])
    ]
    for path, why in [
        ("reply.parts.9.text", "has no field 'reply.parts.9.text': at '9' there are 0"),
        ("reply.usage.input", "no content to remove at reply.usage.input"),
        ("nothing", "at 'nothing' there are type, reply"),
    ]:
        with pytest.raises(MisuseError, match=why):
            await redact_record(store, "s", reply.seq, field=path, reason="r", by="b")
    first = await redact_record(store, "s", reply.seq, field="reply.parts.0.arguments", reason="r", by="b")
    (result,) = [
        each
        for each in records
        if each.event.__class__.__name__ == "ToolFinished" and each.event.name == "pay"
    ]
    await redact_record(store, "s", result.seq, field="arguments", reason="r", by="b")
    await redact_record(store, "s", result.seq, field="result.parts.0.text", reason="r2", by="c")
    after = await store.read("s")
    assert json.loads(after[reply.seq - 1].event.reply.calls[0].arguments) == {"removed": REMOVED}
    assert after[result.seq - 1].event.result.text == REMOVED
    assert after[result.seq - 1].event.result.outcome == "ok"
    assert result.seq in first.found_in
    with pytest.raises(MisuseError, match="no content to remove"):
        await redact_record(store, "s", reply.seq, field="reply.parts.0.arguments", reason="r", by="b")


@in_loop
async def test_what_is_left_of_a_removed_text_is_found_in_other_records_and_sessions(store):
    agent = make_agent(store)
    await agent.run(f"My card is {SECRET}, thank you very much.", "s")
    await agent.run(f"Is {SECRET} valid? thank you", "other")
    await agent.run("My card is lost, thank you very much", "harmless")
    await agent.fork("other", new="fork")
    await agent.run("!call read_cards {}", "stored")
    done = await redact_record(store, "s", 2, reason="r", by="b")
    assert done.searched_all
    records = await store.read("s")
    assert all(has_secret([records[seq - 1]]) for seq in done.found_in)
    found = {each.session: each.records for each in done.found_elsewhere}
    assert found.keys() == {"other", "stored"}, "a fork shares its records: they are named once"
    assert 2 in found["other"]
    assert done.head == f"{records[-1].seq}:{records[-1].hash}"


@in_loop
async def test_the_search_for_what_is_left_is_bounded(store, monkeypatch):
    agent = make_agent(store)
    for name in ("one", "two", "three", "s"):
        await agent.run(f"card {SECRET}", name)
    monkeypatch.setattr(remains, "SEARCHED_BYTES_MAX", 3_000)
    done = await redact_record(store, "s", 2, reason="r", by="b")
    assert not done.searched_all
    assert len(done.found_elsewhere) < 3


@in_loop
async def test_a_search_for_a_part_of_the_text_is_not_called_complete(store):
    agent = make_agent(store)
    await agent.run(f"my card is {SECRET}", "other")
    lines = [f"the {number}th request was served to its client in good time" for number in range(400)]
    await agent.run("\n".join([*lines, f"card {SECRET}"]), "s")
    done = await redact_record(store, "s", 2, reason="r", by="b")
    assert not done.searched_all
    assert "other" in {each.session for each in done.found_elsewhere}, "words of data come before lines"


@in_loop
async def test_a_bound_is_checked_within_a_session(store, monkeypatch):
    agent = make_agent(store)
    for _ in range(9):
        await agent.run(f"card {SECRET}", "other")
    await agent.run(f"card {SECRET}", "s")
    sizes = {name: sum(len(each.data) for each in await store.read(name)) for name in ("s", "other")}
    monkeypatch.setattr(remains, "SEARCHED_BYTES_MAX", sizes["s"] + sizes["other"] // 2)
    done = await redact_record(store, "s", 2, reason="r", by="b")
    assert not done.searched_all
    (found,) = done.found_elsewhere
    assert len(found.records) < sum(has_secret([each]) for each in await store.read("other"))


@in_loop
async def test_a_line_with_quotes_is_found_in_a_stored_result(store):
    line = 'Anna said "the safe opens with open sesame please" yesterday'

    @tool(effect="read")
    def read_file() -> str:
        """Read a file."""
        return "filler words and so on\n" * 20_000 + line + "\n" + "filler words and so on\n" * 20_000

    await Agent("sim:", tools=[read_file], store=store).run("!call read_file {}\n!then\n!say ok", "other")
    assert not any(b"sesame" in each.data for each in await store.read("other")), (
        "the excerpt does not show it"
    )
    await make_agent(store).run(line, "s")
    done = await redact_record(store, "s", 2, reason="r", by="b")
    assert [each.session for each in done.found_elsewhere] == ["other"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("call me", ["call me"]),
        ("short", []),
        ("mail a.b@example.org, now", ["mail a.b@example.org, now", "a.b@example.org"]),
        ('{"card": "4111-1111"}', ['{"card": "4111-1111"}', "4111-1111"]),
        ("a very ordinary sentence of words\nend", None),
    ],
)
def test_parts_are_lines_and_words_that_look_like_data(text, parts):
    found = remains.list_parts([text])
    if parts is None:
        assert found[1] == "a very ordinary sentence of words"
    else:
        assert found == parts


@pytest.mark.parametrize(("reason", "by"), [("", "ann"), ("why", " ")])
@in_loop
async def test_reason_and_author_are_required(store, reason, by):
    await make_agent(store).run("!say hello there", "s")
    with pytest.raises(MisuseError, match="records its reason and its author"):
        await redact_record(store, "s", 2, reason=reason, by=by)


@in_loop
async def test_a_blob_is_removed_with_its_excerpts_unless_another_session_uses_it(store):
    agent = make_agent(store)
    await agent.run(PROMPT, "one")
    await agent.run(PROMPT, "two")
    blob = next(hash_ for each in await store.read("one") for hash_ in each.event.required_blobs)
    (kept,) = await redact_blob(store, "one", blob[:12], reason="r", by="b")
    assert (kept.kept_blobs, kept.dropped_blobs) == ((blob,), ())
    assert await store.get_blob(blob) == LONG.encode()
    (dropped,) = await redact_blob(store, "two", blob, reason="r", by="b")
    assert (dropped.kept_blobs, dropped.dropped_blobs) == ((), (blob,))
    assert await store.get_blob(blob) is None
    with pytest.raises(MisuseError, match="refers to blob"):
        await redact_blob(store, "two", blob, reason="r", by="b")


@in_loop
async def test_a_run_that_stores_the_same_result_during_a_redaction_keeps_it(store):
    """The redaction comes between the bytes and the record that refers to them."""
    agent = make_agent(store)
    await agent.run(PROMPT, "one")
    blob = next(hash_ for each in await store.read("one") for hash_ in each.event.required_blobs)
    put_blob = store.put_blob

    async def put_and_redact(data):
        hash_ = await put_blob(data)
        if not dropped:
            dropped.extend(await redact_blob(store, "one", hash_, reason="r", by="b"))
            assert await store.get_blob(hash_) is None
        return hash_

    dropped = []
    store.put_blob = put_and_redact
    result = await agent.run(PROMPT, "two")
    assert (result.stop, [each.dropped_blobs for each in dropped]) == ("done", [(blob,)])
    assert await store.get_blob(blob) == LONG.encode()
    assert not any(blob in record.event.required_blobs for record in await store.read("one"))
    (kept,) = await redact_blob(store, "two", blob, reason="r", by="b")
    assert kept.dropped_blobs == (blob,)


@in_loop
async def test_a_blob_that_a_record_refers_to_by_now_stays(shared_log):
    """Many sessions begin to use a result while it is redacted: each has it afterwards, or was refused."""
    store, other = open_store(shared_log), open_store(shared_log)
    for number in range(10):
        hash_ = await store.put_blob(b"%d" % number)
        line = make_records(make_blob_receipt("c1", hash_))
        await store.append(f"s{number}", 0, line)
        names = [f"user {number} {each}" for each in range(8)]
        redacted, *users = await asyncio.gather(
            redact_record(store, f"s{number}", 1, reason="r", by="b"),
            *(other.append(name, 0, line) for name in names),
            return_exceptions=True,
        )
        stored = [name for name, outcome in zip(names, users, strict=True) if outcome is None]
        assert all(outcome is None or isinstance(outcome, MissingBlob) for outcome in users), users
        assert redacted.kept_blobs == ((hash_,) if stored else ()), redacted
        assert await store.get_blob(hash_) == (b"%d" % number if stored else None)
        assert [name for name in names if await store.read(name)] == stored
    await store.close()
    await other.close()


@in_loop
async def test_a_session_in_use_and_a_call_that_is_not_finished_are_refused(store):
    agent = make_agent(store)
    await agent.run(PROMPT, "s")
    await agent.fork("s", new="fork")
    async with store.lease("fork"):
        with pytest.raises(Conflict, match="in use"):
            await redact_record(store, "s", 2, reason="r", by="b")
    assert not any(each.is_redacted for each in await store.read("s"))

    @tool(effect="write", approve=True)
    def refund(card: str) -> str:
        """Refund."""
        return "refunded"

    waiting = await Agent("sim:", tools=[refund], store=store).run(
        f'!call refund {{"card": "{SECRET}"}}', "w"
    )
    assert waiting.stop == "waiting"
    reply = next(each for each in await store.read("w") if each.event.__class__.__name__ == "ModelReplied")
    with pytest.raises(MisuseError, match="belongs to a call that is not finished"):
        await redact_record(store, "w", reply.seq, reason="r", by="b")


@in_loop
async def test_the_next_request_is_whole_and_the_miss_is_explained():
    model = scripted("first", "second", "third", "fourth")
    store = open_store(None)
    agent = Agent(model, store=store, prefix="strict")
    await agent.run(f"my card is {SECRET}", "s")
    await agent.run("and again", "s")
    await redact_record(store, "s", 2, reason="r", by="b")
    assert (await agent.run("once more", "s")).text == "third"
    sent = model.script.requests[-1].messages
    assert SECRET not in str(sent)
    assert REMOVED in str(sent[0])
    assert len(sent) == 5
    assert (await agent.run("and the last", "s")).text == "fourth"
    state = fold_log(await store.read("s")).state
    assert "m1" in {event.message for event in events_of(await store.read("s"), ContentRedacted)}
    assert state.cache.last_request is not None


def events_of(records, kind):
    return [record.event for record in records if isinstance(record.event, kind)]


@in_loop
async def test_an_unrecorded_removal_or_a_second_change_is_tampering(shared_log):
    store = open_store(shared_log)
    await make_agent(store).run(PROMPT, "s")
    records = await store.read("s")
    await redact_record(store, "s", 2, reason="r", by="b")
    await store.close()
    body = redact_data(6, records[5].data).data

    def change(seq, data):
        change_rows(shared_log, f"UPDATE events SET data = {quote(data)} WHERE seq = {seq}")

    async def read():
        opened = open_store(shared_log)
        try:
            return await opened.read("s")
        finally:
            await opened.close()

    assert (await read())[1].is_redacted
    original = records[5].data.decode()
    change(6, body.decode())
    with pytest.raises(Corrupt, match="record 6 was changed"):
        await read()
    change(6, original)
    redacted = (await read())[1].data.decode()
    change(2, redacted.replace("removed", "changed"))
    with pytest.raises(Corrupt, match="record 2 was changed"):
        await read()
    change(2, redacted)
    # The event that proves the redaction is part of the chain: without it, or with another one, nothing verifies.
    last = (await read())[-1]
    assert isinstance(last.event, ContentRedacted)
    forged = msgspec.structs.replace(last.event, record=3)
    change(last.seq, msgspec.json.encode(forged).decode())
    with pytest.raises(Corrupt):
        await read()
    change(last.seq, last.data.decode())
    assert (await read())[1].is_redacted
    change_rows(shared_log, f"DELETE FROM events WHERE seq = {last.seq}")
    with pytest.raises(Corrupt):
        await read()


def quote(text):
    """A text as a constant of SQL."""
    return "'" + text.replace("'", "''") + "'"


def test_the_command_redacts_shows_and_continues(shared_log, tmp_path):
    log = shared_log
    session = json.loads(bridle("run", f"!say card {SECRET}", "--json", "--store", log).out)["session"]
    wrong = bridle("session", "redact", session, "--reason", "r", "--by", "b", BRIDLE_STORE=log)
    assert (wrong.code, "name what to remove" in wrong.err) == (2, True)
    for seq in ("2", "4"):
        done = bridle(
            "session",
            "redact",
            session,
            "--record",
            seq,
            "--reason",
            "\x1b[31mred",
            "--by",
            "ann",
            BRIDLE_STORE=log,
        )
        assert done.code == 0, done.err
    assert done.out.startswith(f"removed all content of record 4 in {session}\n  its SHA-256 was ")
    for view in ("transcript", "log", "audit"):
        shown = bridle("show", session, "--as", view, BRIDLE_STORE=log)
        assert shown.code == 0, shown.err
        assert SECRET not in shown.out + shown.err
        assert "\x1b" not in shown.out
    assert "redacted · by ann · all content of record 4" in shown.out
    assert bridle("run", "!say on", "--session", session, BRIDLE_STORE=log).out == "on\n"
    for path in tmp_path.glob("log.db*"):
        assert SECRET.encode() not in path.read_bytes()


@in_loop
async def test_kept_bytes_of_a_call_and_of_later_requests_are_gone(store, tmp_path):
    agent = Agent("sim:", tools=[pay], store=store, keep_raw=KeepRaw(request=True))
    await agent.run(f'!call pay {{"card": "{SECRET}"}}\n!then\n!say done', "s")
    await agent.fork("s", new="fork")
    await agent.run("!say more", "fork")
    logs = [await store.read(name) for name in ("s", "fork")]
    blobs = {hash_ for log in logs for record in log for hash_ in record.event.required_blobs}
    assert sum([SECRET.encode() in await store.get_blob(hash_) for hash_ in blobs]) >= 3
    first = await redact_record(store, "s", 2, reason="r", by="b")
    assert len(first.emptied_requests) == 3
    await redact_all(store, "s")
    for name in ("s", "fork"):
        assert not has_secret(await store.read(name))
        for record in await store.read(name):
            for hash_ in record.event.required_blobs:
                assert SECRET.encode() not in await store.get_blob(hash_)
    left = [blob for hash_ in blobs if (blob := await store.get_blob(hash_)) is not None]
    assert not any(SECRET.encode() in blob for blob in left)
    for path in tmp_path.glob("log.db*"):
        assert SECRET.encode() not in path.read_bytes(), path
    assert (await agent.run("!say on", "fork")).text == "on"


@in_loop
async def test_the_request_that_brought_a_steering_message_is_emptied_with_it(tmp_path):
    store = open_store(tmp_path / "log.db")

    @tool(effect="read")
    async def ask_for_card() -> str:
        """Wait for a message."""
        await control(store, "s").steer(f"my card is {SECRET}", by="ann")
        return "asked"

    agent = Agent("sim:", tools=[ask_for_card], store=store)
    await agent.run("!call ask_for_card {}\n!then\n!say done", "s")
    assert has_secret(await store.read(control_log_name("s")))
    await redact_all(store, "s")
    assert not has_secret(await store.read("s"))
    requests = await store.read(control_log_name("s"))
    assert not has_secret(requests)
    assert (requests[0].event.text, requests[0].event.by) == (REMOVED, "ann")
    assert (await agent.run("!say on", "s")).text == "on"
    await store.close()


def test_a_record_says_that_it_is_redacted():
    assert Record.__struct_fields__[-1] == "is_redacted"
