"""Link states, the trees they give, and the numbers of publishers."""

from __future__ import annotations

import pytest

from palio.routing import graphs
from palio.routing.graphs import (
    ALL_NEW,
    MAX_VERSION,
    LastNumbers,
    LinkNews,
    LinkStates,
)
from palio.routing.messages import (
    MOST_LINKS,
    MOST_STATES,
    LinkState,
    LinkTable,
)
from tests.routing.helpers import numbered


def test_only_newer_states_are_news() -> None:
    states = LinkStates("b1")
    assert states.learn(LinkState("b2", 2, ("b1",))) is LinkNews.NEW
    assert states.learn(LinkState("b2", 2, ())) is LinkNews.OLD
    assert states.learn(LinkState("b2", 1, ())) is LinkNews.OLD
    assert states.graph == {"b1": {}, "b2": {}}  # b1 does not list it
    states.renew({"b2": 7})
    assert states.graph == {"b1": {"b2": 7}, "b2": {"b1": 7}}
    assert states.others() == [LinkState("b2", 2, ("b1",))]


def test_much_news_goes_in_several_messages() -> None:
    states = LinkStates("a")
    for number in range(MOST_STATES + 1):
        states.learn(LinkState(f"b{number}", 1, ("a",)))
    assert [len(each.states) for each in states.others() if isinstance(each, LinkTable)] == [1_000]
    few, many = ("a",), tuple(f"c{number}" for number in range(MOST_LINKS))
    states = LinkStates("a")
    for number, neighbours in enumerate((few, many, few, few)):
        states.learn(LinkState(f"b{number}", 1, neighbours))
    assert [type(each) for each in states.others()] == [LinkState, LinkState, LinkTable]


@pytest.mark.parametrize(
    ("version", "neighbours", "news"),
    [
        (1, ("b9",), LinkNews.OLD),
        (2, ("b2", "b3"), LinkNews.OLD),
        (2, ("b2", "b9"), LinkNews.MINE),
        (5, ("b2", "b3"), LinkNews.MINE),
    ],
    ids=["older", "the very same", "same version, other links", "newer"],
)
def test_a_state_of_ones_own_earlier_life(
    version: int, neighbours: tuple[str, ...], news: LinkNews
) -> None:
    states = LinkStates("b1")
    states.renew({"b2": 1})
    states.renew({"b3": 1, "b2": 1})
    costs = (1,) * len(neighbours)
    assert states.learn(LinkState("b1", version, neighbours, costs)) is news
    renewed = states.renew({"b2": 1, "b3": 1})
    assert renewed.version > version
    assert renewed.neighbours == ("b2", "b3")


def test_numbers_must_grow_within_and_between_batches() -> None:
    numbers = LastNumbers()
    unseen = numbers.unseen(numbered("p", (3, 1, 4, 4, 5)))
    assert unseen.tolist() == [True, False, True, False, True]
    assert numbers.unseen(numbered("p", (5, 6, 2))).tolist() == [False, True, False]
    assert numbers.unseen(numbered("q", (0,))).tolist() == [True]


def test_a_greater_epoch_begins_anew_and_a_lesser_one_is_over() -> None:
    numbers = LastNumbers()
    numbers.unseen(numbered("p", (7,), epoch=1))
    assert numbers.unseen(numbered("p", (0, 1), epoch=2)) is ALL_NEW
    assert numbers.unseen(numbered("p", (8, 9), epoch=1)).tolist() == [False, False]
    assert numbers.unseen(numbered("p", (2,), epoch=2)).tolist() == [True]


@pytest.mark.parametrize(
    ("beyond", "news"), [(-1, LinkNews.NEW), (0, LinkNews.OLD), (1, LinkNews.OLD)]
)
def test_a_version_that_nobody_could_outdo_is_made_up(beyond: int, news: LinkNews) -> None:
    states = LinkStates("b1")
    assert states.learn(LinkState("b2", MAX_VERSION + beyond, ("b1",))) is news
    mine = states.learn(LinkState("b1", MAX_VERSION + beyond, ("b2",)))
    assert mine is (LinkNews.MINE if news is LinkNews.NEW else LinkNews.OLD)
    assert states.renew({"b2": 1}).version <= MAX_VERSION


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_there_are_only_so_many_brokers(more: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "MAX_ORIGINS", 4)
    states = LinkStates("b1")
    for number in range(3 + more):
        states.learn(LinkState(f"c{number}", 1, ()))
    assert len(states.known) == min(4, 4 + more)


def test_the_last_number_of_a_publisher_is_known() -> None:
    numbers = LastNumbers()
    assert numbers.last("p") == (-1, -1)
    numbers.unseen(numbered("p", [3, 5], epoch=2))
    numbers.unseen(numbered("p", [4], epoch=2))
    assert numbers.last("p") == (2, 5)
