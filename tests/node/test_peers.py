"""`Peers`: who asks on and acknowledges nothing is parted with, and nobody else."""

from __future__ import annotations

import pytest

from palio.model.events import to_batches
from palio.node import peers
from palio.node.effects import Close, Moment
from palio.node.limits import LEAST_SHARE
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.sessions import Budget
from palio.protocol.limits import ACK_EVERY_BYTES, PROTOCOL_VERSION
from palio.protocol.messages import (
    Hello,
    Message,
    Parcel,
    Ping,
    Publish,
    Query,
    StreamAck,
    Subscribe,
)
from palio.routing.acyclic import Acyclic

GREEDY, HEARING, PUBLISHING = range(900, 903)


class House:
    """A broker with three clients."""

    def __init__(self) -> None:
        self.at = Moment(1.0, 1_000_000)
        self.node = Node("b1", Acyclic("b1"), MemoryStore())
        self.node.start(self.at)
        for link in (GREEDY, HEARING, PUBLISHING):
            self.node.accept(link, self.at)
            self.say(link, Hello("client", f"c{link}", PROTOCOL_VERSION))

    def say(self, link: int, message: Message) -> bool:
        """Whether a client is parted with as it says something."""
        effects = self.node.receive(link, message, self.at)
        return any(isinstance(each, Close) and each.link == link for each in effects)

    def ask(self, link: int) -> bool:
        return self.say(link, Query(1, "status"))

    @property
    def sessions(self) -> int:
        return int(self.node.status()["sessions"])


@pytest.fixture
def house() -> House:
    return House()


def test_whoever_asks_on_and_on_and_sees_nothing_is_parted_with(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "UNACKED_BYTES", 2_000)
    answers = [house.ask(GREEDY) for _ in range(20)]
    first = answers.index(True)
    assert first > 1
    assert house.sessions == 2
    for number in range(1, 20):  # one that sees what it is sent goes on as long as it likes
        house.say(HEARING, StreamAck(number - 1))
        assert not house.ask(HEARING)


def test_where_many_see_nothing_each_may_be_owed_a_fair_share_of_answers(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events do not count for that: of these no more is sent than a window holds."""
    monkeypatch.setattr(peers, "LEAST_SHARE", 4_000)
    monkeypatch.setattr(Budget, "fair_share", 3_000)
    house.say(HEARING, Subscribe(1, 1, "x > 0"))
    (batch,) = to_batches([{"x": 1, "text": "a" * 1_000}] * 8)
    house.say(PUBLISHING, Publish(Parcel("", batch), 1))
    assert not any(house.ask(GREEDY) for _ in range(20))
    monkeypatch.setattr(Budget, "is_strained", True)
    assert not house.ask(HEARING)
    assert not house.ask(PUBLISHING)
    assert house.ask(GREEDY)
    assert house.sessions == 2


def test_who_asks_nothing_more_is_parted_with_too(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "LEAST_SHARE", 4_000)
    monkeypatch.setattr(Budget, "fair_share", 3_000)
    for _ in range(20):
        house.ask(GREEDY)
    for is_strained, sessions in ((False, 3), (True, 2)):
        monkeypatch.setattr(Budget, "is_strained", is_strained)
        house.at = house.at._replace(now=house.at.now + 1.0)
        house.say(PUBLISHING, Ping())
        house.node.tick(house.at)
        while house.node.wake_at <= house.at.now:
            house.node.tick(house.at)
        assert house.sessions == sessions


def test_who_acknowledges_as_it_should_never_has_the_least_share_unseen() -> None:
    assert LEAST_SHARE >= 2 * ACK_EVERY_BYTES
