"""Redaction: the content is gone from the store, the chain verifies, and an unrecorded removal is still tampering."""

import asyncio
import json

import msgspec
import pytest
from command import bridle
from in_loop import in_loop
from postgres_server import change_rows

from bridle import (
    Agent,
    ContentRedacted,
    KeepRaw,
    control,
    export_session,
    import_session,
    redact_record,
    tool,
)
from bridle.core.recovery.log_repair import fold_log
from bridle.core.redaction import REMOVED, redact_data
from bridle.run.archive.redact import redact_blob
from bridle.stores import open_store
from bridle.testing import scripted
from bridle.values.calls import control_log_name
from bridle.values.errors import Conflict, Corrupt, MisuseError
from bridle.values.record import Record

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
    wrong = bridle("redact", session, "--reason", "r", "--by", "b", BRIDLE_STORE=log)
    assert (wrong.code, "name what to remove" in wrong.err) == (2, True)
    for seq in ("2", "4"):
        done = bridle(
            "redact", session, "--record", seq, "--reason", "\x1b[31mred", "--by", "ann", BRIDLE_STORE=log
        )
        assert done.code == 0, done.err
    assert done.out.startswith(f"removed all content of record 4 in {session}\n  its SHA-256 was ")
    for command in ("show", "log", "audit"):
        shown = bridle(command, session, BRIDLE_STORE=log)
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
