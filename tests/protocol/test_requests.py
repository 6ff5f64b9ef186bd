from __future__ import annotations

from palio.errors import Closed
from palio.protocol.messages import Ask, Done, Failed, Failure, Settle
from palio.protocol.requests import Outcome, Requests, Waiter


def waiting(count: int) -> tuple[list[list[Outcome]], list[Waiter]]:
    """Waiters, and what each is told."""
    told: list[list[Outcome]] = [[] for _ in range(count)]
    return told, [each.append for each in told]


def test_all_who_wait_for_an_answer_get_it_once() -> None:
    requests = Requests()
    told, waiters = waiting(3)
    first = requests.enter(Settle(0), waiters[:2])
    second = requests.enter(Ask(0, "status"), waiters[2:])
    assert (first.id, second.id) == (1, 2)
    failed, done = Failed(2, Failure("NotPermitted", "no")), Done(1)
    for answer in (failed, done, done, Done(7)):
        requests.answered(answer)
    assert told == [[done], [done], [failed]]


def test_what_is_taken_for_another_session_is_answered_there_alone() -> None:
    requests = Requests()
    told, waiters = waiting(2)
    for each in waiters:
        requests.enter(Settle(0), [each])
    taken = requests.take_all()
    assert [request.id for request, _ in taken] == [1, 2]
    requests.answered(Done(1))
    requests.end(Closed("over"))
    assert told == [[], []]
    again = requests.enter(*taken[0])
    requests.answered(Done(again.id))
    assert (again.id, told) == (3, [[Done(3)], []])


def test_the_end_is_told_to_all_who_wait() -> None:
    requests = Requests()
    told, waiters = waiting(2)
    requests.enter(Settle(0), waiters)
    error = Closed("over")
    requests.end(error)
    requests.end(error)
    assert told == [[error], [error]]
