"""Clients of the virtual network: what an application would be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from palio.errors import InvalidInput
from palio.language.parsing import parse, parse_filter, read_advertisement
from palio.model.advertisements import Advertisement
from palio.model.filters import Filter
from palio.model.patterns import Occurrence, Pattern
from palio.model.relations import covers, covers_subscription
from palio.model.row_parcels import RowParcel
from palio.model.values import NO_VALUES, Bindings, Value
from palio.routing.messages import (
    Advertise,
    Batch,
    Cancel,
    Control,
    Request,
    Settled,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Update,
    Withdraw,
)
from palio.routing.normalized import Test, form_of
from palio.routing.parameters import bound
from palio.routing.patterns.messages import (
    CancelPattern,
    Composite,
    PatternControl,
    SubscribePattern,
    UnsubscribePattern,
)
from palio.routing.protocol import Peer


class Delivery(NamedTuple):
    """An event that a client took, and when."""

    time_us: int
    publisher: str
    seq: int
    event: Mapping[str, Any]


class Found(NamedTuple):
    """An occurrence of a pattern that a client took, and when."""

    time_us: int
    key: int
    parts: tuple[Occurrence, ...]


class Sending(Protocol):
    """What a client does with the network that it is in."""

    def control(self, client: Client, message: Batch | PatternControl) -> None:
        """Send a request to the client's broker."""

    def publish(self, client: Client, parcel: RowParcel) -> None:
        """Send events to the client's broker."""


class Client:
    """One identity at one broker. Make it with `Network.client`.

    Before it takes an event it tries it on the newest values of its own subscriptions, which is
    what makes strictness immediate (parametric 4.3); what fails is counted as spurious.
    """

    def __init__(self, network: Sending, name: str, broker: str, epoch: int = 0) -> None:
        self.name = name
        self.broker = broker
        self.peer = Peer.client(name)
        self.received: list[Delivery] = []
        self.found: list[Found] = []
        self.spurious = 0
        self.on_delivery: Callable[[Delivery], object] | None = None
        """What the application does with each event that it takes, besides finding it here. What
        it asks of the network in turn is better put off with `Network.after`: while an event is
        handed out, its brokers are at work.
        """
        self.settled: dict[int, tuple[str, ...]] = {}
        """Waves that were answered, with the brokers that were not reached."""
        self._network = network
        self._epoch = epoch
        self._filters: dict[int, tuple[Filter, Bindings]] = {}
        self._tests: dict[int, Test] = {}
        """Those of them that an event was tried on since they changed."""
        self._patterns: dict[int, Pattern] = {}
        self._versions: dict[int, int] = {}
        self._next_key = 0
        self._next_wave = 0
        self._next_seq = 0

    def subscribe(
        self, filter: Filter | str, values: Bindings = NO_VALUES, *, wave: bool = False
    ) -> int:
        """Ask for events; the subscription's key. `wave` asks to be told when it is in force."""
        key = self._new_key()
        self.request(Subscribe(key, _filter(filter), values), wave=wave)
        return key

    def update(self, key: int, **values: Value) -> None:
        """Change parameters of a subscription: `update(key, limit=5)`."""
        self.change(key, values)

    def change(self, key: int, values: Bindings, *, wave: bool = False) -> None:
        """The same with the values in a mapping."""
        version = self._versions[key] = self._versions.get(key, 0) + 1
        self.request(Update(key, values, version), wave=wave)

    def unsubscribe(self, key: int) -> None:
        """End a subscription."""
        self.request(Unsubscribe(key))

    def cancel(self, filter: Filter | str) -> None:
        """End every subscription that the filter covers."""
        self.request(Cancel(_filter(filter)))

    def subscribe_pattern(self, pattern: Pattern | str, values: Bindings = NO_VALUES) -> int:
        """Ask for the occurrences of a pattern, each in `found`; the subscription's key."""
        key = self._new_key()
        self._patterns[key] = _pattern(pattern).bind(values)
        self._network.control(self, SubscribePattern(key, _pattern(pattern), values))
        return key

    def unsubscribe_pattern(self, key: int) -> None:
        """End a pattern subscription."""
        self._patterns.pop(key, None)
        self._network.control(self, UnsubscribePattern(key))

    def cancel_pattern(self, pattern: Pattern | str) -> None:
        """End every pattern of this length that is covered position by position."""
        wide = _pattern(pattern)
        for key, narrow in list(self._patterns.items()):
            if covers_subscription(wide, narrow):
                del self._patterns[key]
        self._network.control(self, CancelPattern(wide))

    def advertise(self, text: str | Advertisement, *, wave: bool = False) -> int:
        """Announce what will be published; the key of the advertisement."""
        key = self._new_key()
        self.request(Advertise(key, read_advertisement(text, NO_VALUES)), wave=wave)
        return key

    def unadvertise(self, key: int) -> None:
        """End an advertisement."""
        self.request(Unadvertise(key))

    def withdraw(self, text: str | Advertisement) -> None:
        """End every advertisement that this one covers."""
        self.request(Withdraw(read_advertisement(text, NO_VALUES)))

    def request(self, *requests: Request, wave: bool = False) -> int | None:
        """Send requests in one batch; the number of its wave."""
        number = None
        if wave:
            number = self._next_wave
            self._next_wave += 1
        for each in requests:
            self._note(each)
        self._network.control(self, Batch(requests, wave=number))
        return number

    def publish(self, *events: Mapping[str, Any]) -> None:
        """Publish events, numbered on from those before."""
        batch = RowParcel(
            self.name,
            events,
            self._next_seq,
            source=self.broker,
            epoch=self._epoch,
        )
        self._next_seq += len(events)
        self._network.publish(self, batch)

    def wants(self, event: Mapping[str, Any]) -> bool:
        """Whether some subscription of its own matches now."""
        if len(self._tests) < len(self._filters):
            for key, (filter, values) in self._filters.items():
                if key not in self._tests:
                    self._tests[key] = form_of(bound(filter, values)).test
        for test in self._tests.values():  # noqa: SIM110  # a generator takes longer than a test
            if test(event):
                return True
        return False

    def take(self, message: Control | RowParcel, now_us: int) -> int:
        """What the broker delivers; how many notifications of it were wanted."""
        if not isinstance(message, RowParcel):
            if isinstance(message, Composite):
                return self._take_composite(message, now_us)
            if isinstance(message, Settled):
                self.settled[message.wave] = message.unreached
            return 0
        taken = 0
        for seq, row in zip(message.seqs, message.rows, strict=True):
            if self.wants(row):
                delivery = Delivery(now_us, message.publisher, seq, row)
                self.received.append(delivery)
                if self.on_delivery is not None:
                    self.on_delivery(delivery)
                taken += 1
            else:
                self.spurious += 1
        return taken

    def _take_composite(self, message: Composite, now_us: int) -> int:
        if message.key not in self._patterns:
            self.spurious += 1
            return 0
        self.found.append(Found(now_us, message.key, message.parts))
        return 1

    def _new_key(self) -> int:
        self._next_key += 1
        return self._next_key - 1

    def _note(self, request: Request) -> None:
        """Keep its own filters as the broker will."""
        match request:
            case Subscribe(key, filter, values):
                self._filters[key] = (filter, dict(values))
                self._tests.pop(key, None)
            case Update(key, values):
                filter, known = self._filters[key]
                self._filters[key] = (filter, {**known, **values})
                self._tests.pop(key, None)
            case Unsubscribe(key):
                self._filters.pop(key, None)
                self._tests.pop(key, None)
            case Cancel(filter, values):
                wide = filter.bind(values)
                for key, (known_filter, known) in list(self._filters.items()):
                    if covers(wide, known_filter.bind(known)):
                        del self._filters[key]
                        self._tests.pop(key, None)


def _filter(given: Filter | str) -> Filter:
    return parse_filter(given) if isinstance(given, str) else given


def _pattern(given: Pattern | str) -> Pattern:
    parsed = parse(given) if isinstance(given, str) else given
    if not isinstance(parsed, Pattern):
        raise InvalidInput(f"{str(parsed)!r} is a filter; a pattern has THEN between filters")
    return parsed
