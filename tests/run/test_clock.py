"""The real clock and the fake clock of the tests."""

import asyncio
import time

import pytest

from bridle.run.clock import SystemClock
from bridle.testing.fake_clock import FakeClock


def test_the_system_clock_tells_seconds_since_1970_and_lets_others_run():
    async def main():
        clock = SystemClock()
        before = time.time()
        ran = asyncio.ensure_future(asyncio.sleep(0, "others"))
        await clock.sleep(0)
        assert before <= clock.now() <= time.time()
        assert await ran == "others"

    asyncio.run(main())


def test_a_fake_clock_stands_still_until_told_or_slept_on():
    async def main():
        clock = FakeClock(at=100.0)
        assert clock.now() == clock.now() == 100.0
        clock.advance(2.5)
        assert clock.now() == 102.5
        await clock.sleep(3600)
        assert clock.now() == 3702.5
        await clock.sleep(-1)
        assert clock.now() == 3702.5
        assert clock.slept == [3600, -1]

    asyncio.run(main())


def test_time_does_not_run_backwards():
    with pytest.raises(ValueError, match="positive number of seconds"):
        FakeClock().advance(-1)


def test_sleepers_wake_in_the_order_of_their_alarms_and_at_their_time():
    async def main():
        clock, woken = FakeClock(at=0.0), []

        async def sleeper(name, *naps):
            for nap in naps:
                await clock.sleep(nap)
                woken.append((name, clock.now()))

        await asyncio.gather(sleeper("long", 10), sleeper("short", 3, 1, 5), sleeper("middle", 4, 4))
        assert woken == [
            ("short", 3), ("middle", 4), ("short", 4), ("middle", 8), ("short", 9), ("long", 10),
        ]  # fmt: skip

    asyncio.run(main())


def test_a_cancelled_sleeper_does_not_hold_up_the_others():
    async def main():
        clock = FakeClock(at=0.0)
        early = asyncio.ensure_future(clock.sleep(1))
        late = asyncio.ensure_future(clock.sleep(5))
        await asyncio.sleep(0)
        early.cancel()
        await late
        assert early.cancelled()
        assert clock.now() == 5

    asyncio.run(main())


def test_one_fake_clock_serves_several_loops():
    clock = FakeClock(at=0.0)
    asyncio.run(clock.sleep(1))
    asyncio.run(clock.sleep(2))
    assert clock.now() == 3
