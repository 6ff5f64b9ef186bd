"""Who is where in the study of parametric subscriptions, how clients change values, and what work
is to brokers of either kind (parametric 5).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from palio.model.row_parcels import RowParcel
from palio.routing.acyclic import Acyclic
from palio.routing.general import General
from palio.routing.hierarchical import Hierarchical
from palio.routing.messages import Batch, Subscribe, Unsubscribe
from palio.routing.protocol import Router
from palio.simulation import (
    Client,
    Randomness,
    Service,
    Topology,
    connected_random,
    tree,
)
from palio.simulation.inbox import Letter
from palio.simulation.network import RouterFactory
from palio.simulation.poset_selector import PosetSelector

__all__ = [
    "BROKERS",
    "ENGINES",
    "RESUBSCRIPTIONS",
    "RETE_EVENT_US",
    "RETE_REQUEST_US",
    "SIENA_FILTER_US",
    "UPD",
    "WAYS",
    "Broking",
    "Way",
    "Workload",
    "broking",
    "workload",
]

BROKERS: Final = 20

# --- ways to change a value ---


class Way(NamedTuple):
    """How a client changes a value, and what its brokers know of it."""

    name: str
    change: Callable[[Client, int, str, int], int]
    """Of a client, the key of a subscription, its guard and the new value: the key from then on."""
    parametric: bool


def by_update(client: Client, key: int, _guard: str, value: int) -> int:
    """The parametric way."""
    client.update(key, x=value)
    return key


def subscribe_first(client: Client, key: int, guard: str, value: int) -> int:
    """Re-subscription without a gap. (siena's own rules for one identity stay out of the way: a
    filter with a variable stands beside others of its client.)
    """
    new = client.subscribe(guard, {"x": value})
    client.unsubscribe(key)
    return new


def unsubscribe_first(client: Client, key: int, guard: str, value: int) -> int:
    """Re-subscription without overlap."""
    client.unsubscribe(key)
    return client.subscribe(guard, {"x": value})


UPD: Final = "UPD"
RESUBSCRIPTIONS: Final = ("SUB, USUB", "USUB, SUB")
WAYS: Final[Mapping[str, Way]] = {
    way.name: way
    for way in (
        Way(UPD, by_update, parametric=True),
        Way(RESUBSCRIPTIONS[0], subscribe_first, parametric=False),
        Way(RESUBSCRIPTIONS[1], unsubscribe_first, parametric=False),
    )
}

# --- kinds of brokers ---

SIENA_FILTER_US: Final = 5
"""What the Siena of the paper takes for one filter of its poset: a request looks at all of them, an
event at those on which it is tried. With the 130 or so that a broker of the scaling workload has,
a request takes 0.65 ms, and 7.5 subscribers fill a broker with 100 re-subscriptions a second each:
where the paper says that Siena ends.
"""

RETE_REQUEST_US: Final = 70
"""...and what EventJava takes for a request: at ten times that rate it had lost half."""

RETE_EVENT_US: Final = 50
"""...and for an event, whatever filters there are: it delivered more than 9,000 a second to each
subscriber, so 110 is the most.
"""


class Broking(NamedTuple):
    """The brokers of a network: their routers, and how long they work."""

    routing: RouterFactory
    service: Service


class _Requests:
    """Which requests are work. One that ends what has never begun is none: of re-subscriptions that
    waited and were joined, all but the last leave nothing else.
    """

    def __init__(self) -> None:
        self._keys: dict[tuple[str, str], set[int]] = {}

    def work_of(self, broker: str, letter: Letter) -> int:
        """How many changes of its table a message means to a broker, if its turn has come."""
        message = letter.message
        if not isinstance(message, Batch):
            return 1
        known = self._keys.setdefault((broker, letter.source), set())
        if message.fresh:
            known.clear()
        work = 0
        for request in message.requests:
            if isinstance(request, Subscribe):
                known.add(request.key)
            elif isinstance(request, Unsubscribe):
                if request.key not in known:
                    continue
                known.discard(request.key)
            work += 1
        return work


class SienaService:
    """One poset for everything, so one line: requests rearrange it, events walk it."""

    def __init__(self) -> None:
        self.posets: dict[str, PosetSelector] = {}
        self._requests = _Requests()

    def line(self, letter: Letter) -> int:
        """See `Service`."""
        del letter
        return 0

    def time_us(self, broker: str, letter: Letter) -> int:
        """See `Service`."""
        poset, message = self.posets[broker], letter.message
        if isinstance(message, RowParcel):
            looks = sum(max(1, poset.tried(row)) for row in message.rows)
        else:
            looks = self._requests.work_of(broker, letter) * max(1, len(poset))
        return looks * SIENA_FILTER_US


class SteadyWork:
    """The same time for each request, and for each event, in one line or in two: EventJava has a
    network of events apart from its poset, and ran on machines of two processors.
    """

    def __init__(self, request_us: int, event_us: int, *, lines: int) -> None:
        self._request_us = request_us
        self._event_us = event_us
        self._lines = lines
        self._requests = _Requests()

    def line(self, letter: Letter) -> int:
        """See `Service`."""
        return int(isinstance(letter.message, RowParcel)) % self._lines

    def time_us(self, broker: str, letter: Letter) -> int:
        """See `Service`."""
        if isinstance(letter.message, RowParcel):
            return self._event_us * len(letter.message)
        return self._request_us * self._requests.work_of(broker, letter)


ENGINES: Final = ("siena", "rete", "steady")
"""The paper's two, and one that takes the same time for everything."""


def broking(engine: str, load: Workload, *, parametric: bool, service_us: int = 0) -> Broking:
    """The brokers of a workload. `service_us` is what steady ones take for a request or event."""
    kind = Hierarchical if load.is_tree else Acyclic
    if engine == "siena":
        walking = SienaService()

        def routing(name: str) -> Router:
            poset = walking.posets[name] = PosetSelector()
            return _among(load, kind(name, lambda: poset, parametric=parametric))

        return Broking(routing, walking)
    return Broking(
        lambda name: _among(load, kind(name, parametric=parametric)),
        SteadyWork(RETE_REQUEST_US, RETE_EVENT_US, lines=2)
        if engine == "rete"
        else SteadyWork(service_us, service_us, lines=1),
    )


def _among(load: Workload, router: Hierarchical | Acyclic) -> Router:
    """A router of a hierarchy as it is, another within one for any graph."""
    return router if load.is_tree else General(router.name, lambda _: router)


# --- workloads ---


class Workload(NamedTuple):
    """Who is where, and what they ask for; `each` says whose rate the updates are."""

    name: str
    topology: Topology
    publishers: tuple[str, ...]
    subscribers: tuple[str, ...]
    types: int
    operators: tuple[str, ...]
    each: str

    @property
    def is_tree(self) -> bool:
        """Whether its brokers are a hierarchy."""
        return self.topology.is_tree

    def rate_of_one(self, rate: float) -> float:
        """Updates a second of one subscriber."""
        if self.each == "subscriber":
            return rate
        return rate * len(set(self.subscribers)) / len(self.subscribers)


def workload(name: str, random: Randomness, *, subscribers: int = 0) -> Workload:
    """HTM, AT or scaling; `subscribers` in all, if not as many as usual."""
    if name == "AT":
        hierarchy = tree(BROKERS, 3)
        sources, ends = _far_apart(hierarchy)
        return Workload(
            name,
            hierarchy,
            publishers=_round(sources, 5),
            subscribers=_round(ends, subscribers or 150),
            types=200,
            operators=("<=", ">=", "="),
            each="broker",
        )
    mesh = connected_random(BROKERS, BROKERS, random)
    if name == "HTM":
        return Workload(
            name,
            mesh,
            publishers=_round(mesh.brokers, 10 * BROKERS),
            subscribers=_round(mesh.brokers, subscribers or 5 * BROKERS),
            types=20,
            operators=(">=", ">=", "<=", "<=", "="),
            each="broker",
        )
    return Workload(
        name,
        mesh,
        publishers=_round(mesh.brokers, 100),
        subscribers=_round(mesh.brokers, subscribers or 150),
        types=200,
        operators=("<=", ">=", "="),
        each="subscriber",
    )


def _round(brokers: tuple[str, ...] | list[str], count: int) -> tuple[str, ...]:
    return tuple(brokers[number % len(brokers)] for number in range(count))


def _far_apart(topology: Topology) -> tuple[list[str], list[str]]:
    """Some brokers, and all that have at least three others between them and each of these."""
    source = topology.brokers[-1]
    far = [each for each, hops in _hops(topology, source).items() if hops >= 4]
    near = [
        each
        for each in topology.brokers
        if all(hops >= 4 for other, hops in _hops(topology, each).items() if other in far)
    ]
    return near, far


def _hops(topology: Topology, start: str) -> dict[str, int]:
    hops, queue = {start: 0}, deque([start])
    while queue:
        here = queue.popleft()
        for edge in topology.edges:
            if here in edge:
                other = edge[1] if edge[0] == here else edge[0]
                if other not in hops:
                    hops[other] = hops[here] + 1
                    queue.append(other)
    return hops
