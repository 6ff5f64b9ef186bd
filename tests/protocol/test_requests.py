from __future__ import annotations

from palio.errors import Closed
from palio.protocol.messages import Ask, Done, Settle
from palio.protocol.requests import Outcome, Requests, Waiter, tell


def waiting(count: int) -> tuple[list[list[Outcome]], list[Waiter]]:
    """Waiters, and what each is told."""
    told: list[list[Outcome]] = [[] for _ in range(count)]
    return told, [each.append for each in told]


def test_a_request_is_answered_once() -> None:
    requests = Requests()
    _, waiters = waiting(2)
    first = requests.enter(Settle(0), waiters[0])
    second = requests.enter(Ask(0, "status"), waiters[1])
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
    tell(waiters, Done(1))
    assert told == [[Done(1)], [Done(1)]]
