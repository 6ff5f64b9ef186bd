"""Link states, the trees they give, and the numbers of publishers."""

from __future__ import annotations

import pytest

from palio.routing import graphs
from palio.routing.general import General
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
    Batch,
    Flood,
    LinkState,
    LinkTable,
    Settled,
)
from palio.routing.protocol import Peer, Send
from palio.routing.source_trees import SourceTrees
from palio.simulation import Network
from palio.simulation.network import RouterFactory
from tests.routing.helpers import numbered
from tests.routing.test_general import survivors_are_served


def test_only_newer_states_are_news() -> None:
    states = LinkStates("b1")
    assert states.learn(LinkState("b2", 2, ("b1",))) is LinkNews.NEW
    assert states.learn(LinkState("b2", 2, ())) is LinkNews.OLD
    assert states.learn(LinkState("b2", 1, ())) is LinkNews.OLD
    assert states.graph == {"b1": {}, "b2": {}}  # b1 does not list it
    states.renew({"b2": 7})
    assert states.graph == {"b1": {"b2": 7}, "b2": {"b1": 7}}
    assert states.others() == [LinkState("b2", 2, ("b1",))]


B2, B3 = Peer.broker("b2"), Peer.broker("b3")


def test_of_news_each_neighbour_is_told_once_and_the_newest() -> None:
    states = LinkStates("b1")
    states.renew({"b2": 7})
    states.renew({"b2": 7, "b3": 7})
    (mine,) = {each.message for each in states.news([B2, B3])}
    assert mine == states.known["b1"]
    assert not states.has_news
    states.learn(LinkState("b2", 1, ("b1",)), B2)
    states.learn(LinkState("b2", 2, ("b1", "b3")), B2)
    assert states.news([B2, B3]) == [(B3, LinkState("b2", 2, ("b1", "b3")))]
    learned = tuple(LinkState(name, 3, ("b1",)) for name in ("b2", "b4"))
    for state in learned:
        states.learn(state, B2 if state.origin == "b2" else B3)
    assert states.news([B2, B3]) == [(B2, LinkTable(learned)), (B3, LinkTable(learned))]


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


@pytest.mark.parametrize("make", [General, SourceTrees])
def test_who_bides_tells_of_links_that_come_and_go_together(
    make: type[General | SourceTrees],
) -> None:
    broker = make("b1")
    broker.bide()
    told = [send.message for peer in (B2, B3) for send in broker.attach(peer)]
    told += [send.message for send in broker.receive(B2, LinkState("b2", 1, ("b1", "b4")))]
    assert not any(isinstance(each, LinkState | LinkTable) for each in told)
    assert broker.is_behind
    sends = broker.catch_up()  # which empties what it has
    (table,) = {send.message for send in sends if isinstance(send.message, LinkTable)}
    assert [(each.origin, each.version, each.neighbours) for each in table.states] == [
        ("b1", 2, ("b2", "b3")),
        ("b2", 1, ("b1", "b4")),
    ]
    assert broker.catch_up() == []


def behind() -> SourceTrees:
    """A broker between two others, of which one has told something of links."""
    broker = SourceTrees("b1")
    broker.bide()
    broker.attach(B2)
    broker.attach(B3)
    broker.catch_up()
    broker.receive(B2, LinkState("b2", 1, ("b1", "b4")))
    return broker


def to_b3(sends: list[Send]) -> list[type]:
    return [type(send.message) for send in sends if send.to == B3]


def test_no_wave_of_source_trees_overtakes_news_of_links() -> None:
    broker = behind()
    assert broker.receive(B2, Flood("b2", (), fresh=True, wave=7, version=1)) == []
    assert broker.receive(B2, Flood("b2", (), version=2)) == []
    assert to_b3(broker.catch_up()) == [LinkState, Flood, Flood]


def test_no_answer_to_a_wave_overtakes_news_of_links() -> None:
    broker, alice = behind(), Peer.client("alice")
    broker.attach(alice)
    broker.catch_up()
    broker.receive(alice, Batch((), fresh=True, wave=1))
    sends = broker.receive(B2, Flood("b2", (), fresh=True, wave=7, version=1))
    (wave,) = [send.message.wave for send in sends if isinstance(send.message, Flood)]
    assert wave is not None
    broker.receive(B3, LinkState("b3", 1, ("b1",)))
    assert broker.receive(B3, Settled(wave)) == []
    assert [type(send.message) for send in broker.catch_up() if send.to == B2] == [
        LinkState,
        Settled,
    ]


def test_who_goes_is_answered_nothing_and_what_it_said_goes_on() -> None:
    broker = behind()
    broker.receive(B2, Flood("b2", (), fresh=True, wave=7, version=1))
    broker.detach(B2)
    sends = broker.catch_up()
    assert to_b3(sends) == [LinkTable, Flood]
    assert not [send for send in sends if send.to == B2]


def test_a_wave_of_the_tree_waits_for_news_of_links() -> None:
    broker, alice = General("b1"), Peer.client("alice")
    broker.bide()
    broker.attach(alice)
    broker.attach(B2)
    broker.catch_up()
    broker.detach(B2)
    assert broker.receive(alice, Batch((), fresh=True, wave=1)) == []
    assert Send(alice, Settled(1)) in broker.catch_up()


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
    weights = (1,) * len(neighbours)
    assert states.learn(LinkState("b1", version, neighbours, weights)) is news
    renewed = states.renew({"b2": 1, "b3": 1})
    assert renewed.version > version
    assert renewed.neighbours == ("b2", "b3")


@pytest.mark.parametrize("routing", [General, SourceTrees], ids=["general", "source_trees"])
def test_a_broker_that_returns_with_other_links_is_heard(routing: RouterFactory) -> None:
    """Its new state has the version of its old one, which everybody else still has."""
    network = Network(seed=1)
    for name in ("b1", "b2", "b3", "b4"):
        network.add_broker(name, routing)
    for one, other in (("b1", "b2"), ("b1", "b3"), ("b2", "b3")):
        network.connect(one, other)
    network.run()
    network.crash("b1")
    network.cut("b1", "b2")
    network.connect("b1", "b4")
    network.run()
    network.restart("b1")
    for broker in ("b1", "b2", "b3", "b4"):
        network.client(f"at-{broker}", broker)
    network.run()
    survivors_are_served(network)


def test_numbers_must_grow_within_and_between_batches() -> None:
    numbers = LastNumbers()
    assert numbers.news(numbered("p", (3, 1, 4, 4, 5))).tolist() == [True, False, True, False, True]
    assert numbers.news(numbered("p", (5, 6, 2))).tolist() == [False, True, False]
    assert numbers.news(numbered("q", (0,))).tolist() == [True]


def test_a_greater_epoch_begins_anew_and_a_lesser_one_is_over() -> None:
    numbers = LastNumbers()
    numbers.news(numbered("p", (7,), epoch=1))
    assert numbers.news(numbered("p", (0, 1), epoch=2)) is ALL_NEW
    assert numbers.news(numbered("p", (8, 9), epoch=1)).tolist() == [False, False]
    assert numbers.news(numbered("p", (2,), epoch=2)).tolist() == [True]


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
    numbers.news(numbered("p", [3, 5], epoch=2))
    numbers.news(numbered("p", [4], epoch=2))
    assert numbers.last("p") == (2, 5)
