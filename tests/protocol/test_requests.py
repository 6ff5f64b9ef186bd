from __future__ import annotations

import pytest

from palio.errors import Closed
from palio.protocol.limits import UPDATES_UNDER_WAY
from palio.protocol.messages import (
    Done,
    Message,
    Query,
    Replace,
    Settle,
    Subscribe,
    Unsubscribe,
    Update,
)
from palio.protocol.requests import Outcome, Requests, Table, Waiter, notify


def waiting(count: int) -> tuple[list[list[Outcome]], list[Waiter]]:
    """Waiters, and what each is told."""
    told: list[list[Outcome]] = [[] for _ in range(count)]
    return told, [each.append for each in told]


def test_a_request_is_answered_once() -> None:
    requests = Requests()
    _, waiters = waiting(2)
    first = requests.enter(Settle(0), waiters[0])
    second = requests.enter(Query(0, "status"), waiters[1])
    assert (first.id, second.id) == (1, 2)
    taken = [requests.take(id) for id in (2, 1, 1, 7)]
    assert taken == [(second, waiters[1]), (first, waiters[0]), None, None]


def test_what_is_taken_for_another_session_is_answered_there_alone() -> None:
    requests = Requests()
    told, waiters = waiting(2)
    for each in waiters:
        requests.enter(Settle(0), each)
    taken = requests.take_all()
    assert [request.id for request, _ in taken] == [1, 2]
    assert requests.take(1) is None
    requests.end(Closed("over"))
    assert told == [[], []]
    again = requests.enter(*taken[0])
    assert requests.take(again.id) == (again, waiters[0])
    assert again.id == 3


def test_the_end_is_told_to_all_who_wait() -> None:
    requests = Requests()
    told, waiters = waiting(2)
    for each in waiters:
        requests.enter(Settle(0), each)
    error = Closed("over")
    requests.end(error)
    requests.end(error)
    assert told == [[error], [error]]


def test_all_who_wait_are_told() -> None:
    told, waiters = waiting(2)
    notify(waiters, Done(1))
    assert told == [[Done(1)], [Done(1)]]


class Asking:
    """A table with one subscription, and what it has sent."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.ended: list[int] = []
        self.table = Table(self.sent.append, lambda ended, _error: self.ended.append(ended.key))
        self.outcomes: list[tuple[int, Outcome]] = []
        self.table.ask(Subscribe(0, 7, "x > :a AND x < :b", {"a": 0, "b": 0}), self.waiter(0))

    def waiter(self, number: int) -> Waiter:
        return lambda outcome: self.outcomes.append((number, outcome))

    def update(self, number: int, **values: int) -> None:
        self.table.ask(Update(0, 7, values), self.waiter(number))

    @property
    def updates(self) -> list[Update]:
        return [each for each in self.sent if isinstance(each, Update)]


def test_updates_that_overtake_their_answers_are_joined() -> None:
    asking = Asking()
    for number in range(1, UPDATES_UNDER_WAY + 1):
        asking.update(number, a=number)
    assert [each.values["a"] for each in asking.updates] == list(range(1, UPDATES_UNDER_WAY + 1))
    asking.update(100, a=100, b=1)
    asking.update(101, a=101)
    asking.update(102, b=2)
    assert len(asking.updates) == UPDATES_UNDER_WAY
    assert asking.table.standing[7].values == {"a": 101, "b": 2}
    first = asking.updates[0].id
    asking.table.answer(first, Done(first))
    last = asking.updates[-1]
    assert (len(asking.updates), last.values) == (UPDATES_UNDER_WAY + 1, {"a": 101, "b": 2})
    assert [number for number, _ in asking.outcomes] == [1]
    assert asking.table.unconfirmed == {7: last.id}
    asking.table.answer(last.id, Done(last.id))
    assert [number for number, _ in asking.outcomes] == [1, 100, 101, 102]
    assert not asking.table.unconfirmed


@pytest.mark.parametrize("kind", ["settle", "replace", "unsubscribe"])
def test_everything_else_goes_behind_updates_that_wait(kind: str) -> None:
    asking = Asking()
    for number in range(UPDATES_UNDER_WAY + 2):
        asking.update(number, a=number)
    if kind == "settle":
        asking.table.ask(Settle(0), asking.waiter(200))
    elif kind == "replace":
        asking.table.ask(Replace(0, 7, "x = 1"), asking.waiter(200))
    else:
        assert asking.table.unsubscribe(Unsubscribe(0, 7), asking.waiter(200))
    assert [type(each).__name__ for each in asking.sent[-2:]] == ["Update", kind.capitalize()]
    assert asking.updates[-1].values == {"a": UPDATES_UNDER_WAY + 1}


@pytest.mark.parametrize("how", ["ended", "closed", "renewed"])
def test_who_waits_for_a_joined_update_is_answered(how: str) -> None:
    asking = Asking()
    for number in range(UPDATES_UNDER_WAY + 2):
        asking.update(number, a=number)
    error = Closed("over")
    if how == "ended":
        asking.table.end_subscription(7, error)
        assert asking.ended == [7]
    elif how == "closed":
        asking.table.end(error)
    else:
        asking.table.declare()
        again = asking.sent[-1]
        assert isinstance(again, Subscribe)
        assert again.values["a"] == UPDATES_UNDER_WAY + 1
        asking.table.answer(again.id, Done(again.id))
        asking.update(300, a=300)
        assert asking.updates[-1].values == {"a": 300}
    waited = {number for number, _ in asking.outcomes}
    assert {UPDATES_UNDER_WAY, UPDATES_UNDER_WAY + 1} <= waited
