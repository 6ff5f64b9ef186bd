from __future__ import annotations

import pytest

from palio.model.events import to_batch
from palio.model.parcels import Parcel
from palio.node import backlogs
from palio.node.backlogs import Backlog, Flight, Part


def part(number: int, homes: tuple[str, ...] = ("b1",)) -> Part:
    return Part(number, Flight(number), Parcel("p", to_batch({"x": number})), homes, ())


def test_what_waits_is_in_the_order_in_which_it_came() -> None:
    backlog = Backlog()
    numbers = [backlog.next_number() for _ in range(5)]
    backlog.writing |= {1, 2}
    for number in (4, 3, 5):
        backlog.put(part(number))
    backlog.put_back(part(2))
    backlog.put_back(part(1))
    assert backlog.is_refused
    assert not backlog.writing
    assert [backlog.next().number for _ in numbers] == numbers
    assert backlog.is_over
    assert backlog.bytes == 0


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_of_what_is_too_much_the_last_is_left_out(
    monkeypatch: pytest.MonkeyPatch, more: int
) -> None:
    monkeypatch.setattr(backlogs, "UNWRITTEN_BYTES", 3 * part(1).size - more)
    backlog = Backlog()
    for number in (2, 3, 1):
        backlog.put(part(number))
    assert backlog.has_left_out is (more > 0)
    assert [each.number for each in backlog.waiting] == ([1, 2] if more > 0 else [1, 2, 3])
    backlog.put(part(4))
    assert backlog.has_left_out
    backlog.put_back(part(0))  # what came before waits all the same, in the place of the last
    assert [each.number for each in backlog.waiting][:2] == [0, 1]
    assert backlog.bytes <= 3 * part(1).size


def test_one_that_is_too_much_by_itself_waits_or_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlogs, "UNWRITTEN_BYTES", 1)
    backlog = Backlog()
    backlog.put(part(1))
    assert backlog.pass_on(7, part(2))
    assert not backlog.pass_on(8, part(3))
    assert backlog.has_left_out
    backlog.passed(7)
    backlog.next()
    assert backlog.is_over
    assert backlog.bytes == 0


def test_names_count_too() -> None:
    many = part(1, tuple(f"home{number}" for number in range(100)))
    assert many.size > part(1).size + 100 * len("home00")
