"""`Served`: a broker with those whom it serves, by hand."""

from __future__ import annotations

from typing import Any

from palio.language.parsing import parse_filter
from palio.matching.index import Index
from palio.node.effects import Effect, Moment, Send
from palio.node.memory import MemoryStore
from palio.node.node import Node
from palio.node.operations import Append
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import (
    Deliver,
    Digest,
    Forward,
    Hello,
    Message,
    Parcel,
    Publish,
    Route,
    Subscribe,
    Welcome,
)
from palio.routing import messages as routing
from palio.routing.acyclic import Acyclic
from palio.routing.protocol import Matching, SelectorFactory
from palio.routing.reference_selector import ReferenceSelector
from tests.node.events import begin

AT = Moment(1.0, 1_000_000)

SELECTORS: list[SelectorFactory] = [ReferenceSelector, lambda: Matching(Index())]


class Served:
    """A broker with three clients and a neighbour, all of whom hear something."""

    def __init__(self, selector: SelectorFactory, asked: list[str]) -> None:
        self.node = Node("b1", Acyclic("b1", selector), MemoryStore())
        begin(self.node, AT)
        for link, (role, name) in enumerate(
            [("client", "p"), ("client", "a"), ("client", "b"), ("broker", "b2")]
        ):
            self.node.accept(link, AT)
            incarnation = "x" if role == "client" else ""
            said = self.say(link, Hello(role, name, PROTOCOL_VERSION, incarnation=incarnation))
            if name == "p":
                (self.welcome,) = [
                    each.message
                    for each in said
                    if isinstance(each, Send) and isinstance(each.message, Welcome)
                ]
        for key, text in enumerate(asked):
            self.say(1 + key % 2, Subscribe(key, key, text))
        self.say(3, Digest({}))
        beyond = tuple(
            routing.Subscribe(key, parse_filter(each)) for key, each in enumerate(asked[:2])
        )
        self.say(3, Route(routing.Batch(beyond, fresh=True)))
        self.seq = 0

    def say(self, link: int, message: Message, up_to: int | None = None) -> list[Effect]:
        """What follows, once all that is written for it is on the disk."""
        pending = list(self.node.receive(link, message, AT, up_to=up_to))
        for each in pending:
            if isinstance(each, Append):
                pending += self.node.stored(each.ticket, AT)
        return [each for each in pending if not isinstance(each, Append)]

    def publish(self, parcel: Parcel) -> list[Any]:
        """What follows from a publication, as plain data."""
        self.seq += 1
        return [plain(each) for each in self.say(0, Publish(parcel, self.seq))]


def plain(effect: Effect) -> Any:
    assert isinstance(effect, Send)
    message = effect.message
    if isinstance(message, Deliver | Forward):
        parcel = message.parcel
        events = parcel.batch.to_pylist()
        assert len(parcel) == len(events)
        return effect.link, type(message), parcel.publisher, events, parcel.batch.schema
    return effect.link, message
