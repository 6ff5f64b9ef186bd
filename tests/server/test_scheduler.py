from __future__ import annotations

from palio.server.scheduler import FairScheduler, Pace


class Clock:
    """A clock that is set by the test."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Speaker:
    """Has messages that take a second each."""

    def __init__(self, scheduler: FairScheduler, clock: Clock, messages: int) -> None:
        self.scheduler, self.clock, self.left = scheduler, clock, messages
        self.said: list[float] = []

    def proceed(self) -> None:
        until = self.scheduler.slice()
        if not until:
            return self.scheduler.wait(self)
        while self.left:
            self.left -= 1
            self.clock.now += 1.0
            self.said.append(self.clock.now)
            if self.clock.now > until and self.left:
                self.scheduler.wait(self)
                break
        return self.scheduler.spend(until)


def test_a_slice_ends_with_the_message_that_used_it_up() -> None:
    clock = Clock()
    scheduler = FairScheduler(clock, turn_s=8.0, slice_s=2.5)
    one = Speaker(scheduler, clock, 10)
    one.proceed()
    assert len(one.said) == 3
    assert not scheduler.is_idle


def test_when_a_turn_is_over_everybody_waits() -> None:
    clock = Clock()
    scheduler = FairScheduler(clock, turn_s=4.0, slice_s=2.5)
    speakers = [Speaker(scheduler, clock, 10) for _ in range(4)]
    for each in speakers:
        each.proceed()
    assert [len(each.said) for each in speakers] == [3, 3, 0, 0]


def test_those_who_wait_get_half_of_a_turn_and_who_comes_anew_the_other() -> None:
    clock = Clock()
    scheduler = FairScheduler(clock, turn_s=6.0, slice_s=2.5)
    crowd = [Speaker(scheduler, clock, 100) for _ in range(20)]
    for each in crowd:
        each.proceed()
    for _ in range(10):
        begun = clock.now
        scheduler.serve(scheduler.begin())
        assert clock.now - begun <= 6.0
        fresh = Speaker(scheduler, clock, 1)
        fresh.proceed()
        assert len(fresh.said) == 1


def test_the_queue_is_served_in_turn() -> None:
    clock = Clock()
    scheduler = FairScheduler(clock, turn_s=6.0, slice_s=0.5)
    speakers = [Speaker(scheduler, clock, 9) for _ in range(3)]
    for each in speakers:
        each.proceed()
    while not scheduler.is_idle:
        scheduler.serve(scheduler.begin())
        lengths = [len(each.said) for each in speakers]
        assert max(lengths) - min(lengths) <= 1
    assert [each.left for each in speakers] == [0, 0, 0]


def test_a_turn_of_those_who_wait_serves_nobody_twice() -> None:
    clock = Clock()
    scheduler = FairScheduler(clock, turn_s=1e9, slice_s=0.5)
    one = Speaker(scheduler, clock, 9)
    one.proceed()
    scheduler.serve(scheduler.begin())
    assert len(one.said) == 2


def test_writing_goes_before_those_who_wait_and_not_before_who_comes_anew() -> None:
    clock = Clock()
    scheduler = FairScheduler(clock, turn_s=6.0, slice_s=0.5)
    waits = Speaker(scheduler, clock, 9)
    waits.proceed()
    until = scheduler.begin()
    clock.now += 3.5
    scheduler.serve(until)
    comes = Speaker(scheduler, clock, 1)
    comes.proceed()
    assert (len(waits.said), len(comes.said)) == (1, 1)


async def test_a_pace_lets_others_go_on_once_a_slice_is_used_up() -> None:
    clock, said = Clock(), list[int]()
    pace = Pace(clock, slice_s=2.5)
    for number in range(7):
        clock.now += 1.0
        before = clock.now
        await pace()
        assert clock.now == before
        said.append(number)
    assert said == list(range(7))
