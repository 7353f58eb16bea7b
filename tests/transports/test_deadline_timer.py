"""The one timer for the deadlines of all requests of an event loop, on a loop whose time is set by the test."""

from math import inf

import pytest

from bridle.transports.deadlines import DeadlineTimer


class FakeLoop:
    def __init__(self):
        self.now, self.timers = 0.0, []

    def time(self):
        return self.now

    def call_at(self, when, callback):
        timer = FakeTimer(when, callback)
        self.timers.append(timer)
        return timer

    @property
    def waiting(self):
        return sorted(each.when for each in self.timers if not each.is_cancelled)

    def advance(self, now):
        while self.waiting and self.waiting[0] <= now:
            timer = min((each for each in self.timers if not each.is_cancelled), key=lambda each: each.when)
            self.now = max(self.now, timer.when)
            self.timers.remove(timer)
            timer.callback()
        self.now = now


class FakeTimer:
    def __init__(self, when, callback):
        self.when, self.callback, self.is_cancelled = when, callback, False

    def cancel(self):
        self.is_cancelled = True


class Owner:
    def __init__(self, loop, again=None):
        self.loop, self.again, self.checked = loop, again, []

    def check_deadline(self):
        self.checked.append(self.loop.now)
        if self.again is not None:
            again, self.again = self.again, None
            again(self)


@pytest.fixture
def loop():
    return FakeLoop()


def test_each_deadline_is_checked_at_its_time_and_once(loop):
    timer, owners = DeadlineTimer(loop), [Owner(loop) for _ in range(4)]
    for owner, when in zip(owners, (30.0, 10.0, 20.0, 10.0), strict=True):
        timer.set(owner, when)
    assert loop.waiting == [10.0]
    loop.advance(100.0)
    assert [owner.checked for owner in owners] == [[30.0], [10.0], [20.0], [10.0]]
    assert loop.waiting == []


def test_a_request_that_ends_leaves_the_timer_to_the_next(loop):
    timer, first, second = DeadlineTimer(loop), Owner(loop), Owner(loop)
    timer.set(first, 10.0)
    timer.clear(first)
    timer.set(second, 25.0)
    assert len(loop.timers) == 1, "no timer for the second request"
    loop.advance(100.0)
    assert (first.checked, second.checked) == ([], [25.0])
    timer.clear(second)


def test_a_deadline_moves_in_both_directions_and_to_never(loop):
    timer, earlier, later, never = DeadlineTimer(loop), Owner(loop), Owner(loop), Owner(loop)
    for owner, when in ((earlier, 5.0), (later, 50.0), (never, 50.0)):
        timer.set(owner, 20.0)
        timer.set(owner, when if owner is not never else inf)
    loop.advance(100.0)
    assert (earlier.checked, later.checked, never.checked) == ([5.0], [50.0], [])


def test_a_check_may_set_the_next_deadline(loop):
    timer = DeadlineTimer(loop)
    owner, other = Owner(loop, again=lambda each: timer.set(each, 12.0)), Owner(loop)
    timer.set(owner, 10.0)
    timer.set(other, 11.0)
    loop.advance(100.0)
    assert (owner.checked, other.checked) == ([10.0, 12.0], [11.0])


def test_a_closed_pool_keeps_the_timer_of_open_requests_only(loop):
    timer, owner = DeadlineTimer(loop), Owner(loop)
    timer.set(owner, 10.0)
    timer.stop()
    assert loop.waiting == [10.0]
    timer.clear(owner)
    timer.stop()
    assert loop.waiting == []
    timer.set(owner, 30.0)
    loop.advance(100.0)
    assert owner.checked == [30.0]


def test_a_check_that_fails_does_not_stop_the_others(loop):
    def fail(_):
        raise RuntimeError("broken")

    timer, broken, other = DeadlineTimer(loop), Owner(loop, again=fail), Owner(loop)
    timer.set(broken, 10.0)
    timer.set(other, 10.0)
    with pytest.raises(RuntimeError, match="broken"):
        loop.advance(10.0)
    loop.advance(11.0)
    assert (broken.checked, other.checked) == ([10.0], [10.0])
