"""Answers without a network: an application in this process, and recordings."""

import asyncio
from typing import Any

import pytest

from bridle.ports.codec import HttpReply
from bridle.ports.transport import OutgoingRequest, ResponseTimeline, SilentPause
from bridle.testing import FakeClock
from bridle.transports.deadlines import Deadlines
from bridle.transports.inprocess import InProcessTransport
from bridle.transports.recorded import RecordedReply, RecordedTransport
from bridle.values.errors import Failure, MisuseError, ProviderError

OUTGOING = OutgoingRequest(
    method="POST", url="http://nowhere/v1", headers=(("x-key", "secret"),), body=b"hello"
)


async def echo(outgoing):
    return HttpReply(
        status=201, headers=(("Content-Type", "text/plain"),), frames=(outgoing.body, b", ", b"world")
    )


async def read(transport, outgoing=OUTGOING):
    async with transport.open(outgoing) as answer:
        return answer.status, dict(answer.headers), [chunk async for chunk in answer.chunks()]


@pytest.mark.parametrize("app", [echo, f"{__name__}:echo"])
def test_an_application_is_given_the_request_and_its_frames_come_one_by_one(app):
    status, headers, chunks = asyncio.run(read(InProcessTransport(app)))
    assert status == 201
    assert headers == {"content-type": "text/plain"}
    assert chunks == [b"hello", b", ", b"world"]


def test_others_get_a_turn_between_two_frames():
    async def main():
        seen: Any = []

        async def other():
            for count in range(4):
                seen.append(f"other {count}")
                await asyncio.sleep(0)

        beside = asyncio.ensure_future(other())
        async with InProcessTransport(echo).open(OUTGOING) as answer:
            async for chunk in answer.chunks():
                seen.append(chunk)
        await beside
        assert seen.index("other 0") < seen.index(b"hello") < seen.index("other 1") < seen.index(b"world")

    asyncio.run(main())


def test_it_can_be_cancelled_between_two_frames():
    async def main():
        heard = []

        async def listen():
            async with InProcessTransport(echo).open(OUTGOING) as answer:
                async for chunk in answer.chunks():
                    heard.append(chunk)
                    asyncio.current_task().cancel()

        task = asyncio.ensure_future(listen())
        await asyncio.wait([task])
        assert task.cancelled()
        assert heard == [b"hello"]

    asyncio.run(main())


async def crash(outgoing):
    raise KeyError("a bug\nof two lines")


async def refuse(outgoing):
    raise ProviderError(Failure(kind="overloaded", message="too many"))


no_function = 3


@pytest.mark.parametrize(
    ("app", "words"),
    [
        ("no.such.module:answer", "cannot be loaded: No module named"),
        (f"{__name__}:missing", "cannot be loaded"),
        ("", "cannot be loaded"),
        (f"{__name__}:no_function", "is not a function"),
        (f"{__name__}:crash", "failed: KeyError"),
        (crash, "'crash' failed: KeyError"),
    ],
)
def test_a_broken_application_is_the_other_sides_fault_in_one_line(app, words):
    with pytest.raises(ProviderError) as caught:
        asyncio.run(read(InProcessTransport(app)))
    failure = caught.value.failure
    assert words in failure.message
    assert "\n" not in failure.message
    assert failure.kind == "server"
    assert failure.should_retry is False


def test_a_failure_the_application_chose_is_passed_on():
    with pytest.raises(ProviderError) as caught:
        asyncio.run(read(InProcessTransport(refuse)))
    assert caught.value.failure.kind == "overloaded"


@pytest.mark.parametrize("slice_bytes", [None, 1, 2, 5, 100])
def test_a_recording_is_played_in_slices_of_any_size(slice_bytes):
    recorded = RecordedTransport(
        [RecordedReply(status=200, headers=(("X-A", "1"),), body=b"hello"), RecordedReply(status=529)],
        slice_bytes=slice_bytes,
    )
    status, headers, chunks = asyncio.run(read(recorded))
    assert (status, headers, b"".join(chunks)) == (200, {"x-a": "1"}, b"hello")
    assert all(len(chunk) <= (slice_bytes or 5) for chunk in chunks)
    assert recorded.remaining == 1
    assert asyncio.run(read(recorded)) == (529, {}, [])
    assert recorded.sent == [OUTGOING, OUTGOING]
    assert recorded.remaining == 0


def test_a_recording_can_break_off_or_never_answer():
    cut = Failure(kind="cut", message="gone")

    async def main():
        recorded = RecordedTransport([RecordedReply(body=b"half", failure=cut), cut])
        async with recorded.open(OUTGOING) as answer:
            pieces = answer.chunks()
            assert await anext(pieces) == b"half"
            with pytest.raises(ProviderError) as caught:
                await anext(pieces)
        assert caught.value.failure == cut
        with pytest.raises(ProviderError):
            await read(recorded)

    asyncio.run(main())


def test_asking_more_than_was_recorded_is_misuse():
    with pytest.raises(MisuseError, match="request 1 was made, but only 0"):
        RecordedTransport([]).open(OUTGOING)
    with pytest.raises(MisuseError, match="slice_bytes"):
        RecordedTransport([], slice_bytes=0)


def test_nothing_shows_the_secrets_of_a_request():
    assert "secret" not in repr(OUTGOING)


def test_patience_ends_where_it_would_on_a_network_and_the_deadline_is_named():
    def given_up(*beats, delay_seconds=0.0, **patience):
        async def app(outgoing):
            return ResponseTimeline(status=200, headers=(), steps=beats, delay_seconds=delay_seconds)

        clock = FakeClock()
        transport = InProcessTransport(app, clock=clock, deadlines=Deadlines(**patience))
        with pytest.raises(ProviderError) as caught:
            asyncio.run(read(transport))
        return caught.value.failure, sum(clock.slept)

    silence = {"delay_seconds": 100.0, "first_byte_seconds": 30.0}
    failure, slept = given_up(**silence)
    assert ("(first_byte_seconds)" in failure.message, slept) == (True, 30.0)
    failure, slept = given_up(b"x", SilentPause(seconds=100.0), idle_seconds=20.0)
    assert ("(idle_seconds)" in failure.message, slept) == (True, 20.0)
    drip = (b"x", SilentPause(seconds=5.0)) * 10
    failure, slept = given_up(*drip, idle_seconds=20.0, total_seconds=32.0)
    assert ("(total_seconds)" in failure.message, slept) == (True, 32.0)
    assert failure.should_retry is False
