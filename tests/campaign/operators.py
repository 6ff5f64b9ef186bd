"""`Operators`: what people do to a network while it runs: they drain brokers, make and end links.

Where ways lead round it, nothing breaks by that. So what is promised for times in which nothing
breaks is promised meanwhile, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from palio.protocol.messages import AddPeer, Answer, Drain, RemovePeer
from palio.protocol.requests import Outcome, Request
from palio.simulation.agenda import FAULT, US
from palio.simulation.cluster import address_of
from palio.simulation.member import Member
from palio.simulation.topologies import Topology
from palio.simulation.world import World
from tests.campaign.actors import Actor

if TYPE_CHECKING:
    from tests.campaign.faults import Faults

OPERATOR: Final = "operator"
"""What those are called who do it, with a number. They may do everything."""

AFTERWARDS: Final = ("undo", "restart", "replace")
"""What becomes of a broker that is drained: it is in service again, starts again, or starts again
with an empty disk: all that it had is elsewhere."""

AGAIN_S: Final = 1.0
"""How long an operator waits until it asks again."""

LEAVE_S: Final = 5.0
"""How long a broker that is to stop, as a service is stopped, waits for ways round it."""

GOODBYE_S: Final = 0.1
"""How long it has to say goodbye then."""

DOWN_S: Final = 1.5
"""How long a drained broker is stopped: its neighbours miss it, and start to look for others."""


class _Operator(Member):
    """Who sees to one broker, and stays with it."""

    def redirected(self, urls: Sequence[str]) -> None:
        """It is there because the broker is about to go."""


class Operators:
    """Who sees to the brokers of a world.

    Of each thing that is done the end is awaited, however long that takes: see `under_way`.
    """

    def __init__(
        self,
        world: World,
        edges: tuple[tuple[str, str], ...],
        faults: Faults,
        *,
        is_smooth: bool = True,
    ) -> None:
        self.world = world
        self.edges = edges
        self.is_smooth = is_smooth
        """Whether ways change without loss of live events."""
        self.faults = faults
        self._open: dict[tuple[str, ...], None] = {}
        """What is under way."""
        self._operators = 0
        self._lacking: dict[tuple[str, ...], None] = {}
        """Links that are parted, brokers that are stopped, and what else is done."""
        self._apart_s: float | None = None
        """Since when others cannot reach each other for that, or may lose live events."""

    @property
    def under_way(self) -> list[tuple[str, ...]]:
        """What was begun and has not come to its end."""
        return list(self._open)

    def _begins(self, what: tuple[str, ...]) -> bool:
        if what in self._open or what[1] not in self.world.nodes or not self._can_be_reached:
            return False
        self._open[what] = None
        self._lack(what)
        return True

    @property
    def _can_be_reached(self) -> bool:
        return self.world.settings.discovery

    def _ends(self, what: tuple[str, ...], operator: Member) -> None:
        self._open.pop(what, None)
        self._lack(what, is_back=True)
        operator.vanish()

    def _operator(self, broker: str) -> _Operator:
        self._operators += 1
        name = f"{OPERATOR}{self._operators}"
        operator = _Operator(self.world, name, broker)
        self.world.clients[name] = operator
        operator.connect()
        return operator

    def _later(self, seconds: float, what: Callable[[], object]) -> None:
        agenda = self.world.agenda
        agenda.at(agenda.now_us + round(seconds * US), FAULT, what)

    # --- brokers ---

    def drain(self, broker: str, afterwards: str, seconds: float) -> None:
        """Drain a broker. One that has not handed over all it has by then stays in service."""
        what = ("drain", broker)
        if not self._begins(what):
            return
        for client in self.world.clients.values():
            if isinstance(client, Actor) and client.broker == broker:
                client.note_move()
        operator = self._operator(broker)
        is_over = is_done = False

        def ask() -> None:
            if not is_over:
                operator.core.table.ask(Drain(0, broker), answered)

        def answered(outcome: Outcome) -> None:
            nonlocal is_done
            if is_over:
                return
            is_empty = isinstance(outcome, Answer) and bool(outcome.data["done"])
            is_done = is_empty and afterwards != "undo" and self._is_empty(broker)
            if is_done:
                self._ends(what, operator)
                self._stop(broker, partial(self._start_again, broker, afterwards == "replace"))
            else:
                self._later(AGAIN_S, ask)

        def undo() -> None:
            nonlocal is_over
            is_over = True
            if not is_done:
                end = partial(self._ends, what, operator)
                self._until_done(operator, lambda: Drain(0, broker, undo=True), end)

        ask()
        self.faults.lasts(seconds, (*what, operator.name), undo)

    def _is_empty(self, broker: str) -> bool:
        """Whether nobody came in the moment since the broker said so."""
        node = self.world.nodes.get(broker)
        status = {} if node is None else node.status()
        return bool(status) and not (status["custody_entries"] or status["durable_subscriptions"])

    def _stop(self, broker: str, then: Callable[[], None]) -> None:
        """A broker is stopped as a service is: it steps aside, and says goodbye."""
        world = self.world
        until = world.now + LEAVE_S

        def ask() -> None:
            node = world.nodes.get(broker)
            if node is not None and not node.is_free_to_go and world.now < until:
                self.faults.lasts(GOODBYE_S, ("restart", broker, "leaves"), ask)
                return
            if node is not None:
                world.host(broker).close("the broker is stopped")
            self.faults.lasts(GOODBYE_S, ("restart", broker, "goodbye"), then)

        world.host(broker).leave()
        ask()

    def _start_again(self, broker: str, is_new: bool) -> None:
        """A broker that is empty, and has said goodbye, stops, and starts again."""
        world = self.world
        if broker in world.nodes:
            world.kill(broker)
        self.faults.stopped(broker)
        self._lack((broker,))
        if is_new:
            self.faults.replaced(broker)

        def start() -> None:
            if broker not in world.nodes:
                world.start(broker)
            self._lack((broker,), is_back=True)

        self.faults.lasts(DOWN_S, ("restart", broker), start)

    def _lack(self, what: tuple[str, ...], *, is_back: bool = False) -> None:
        """A link or a broker is gone, or back: whether others can reach each other without it."""
        if is_back:
            self._lacking.pop(what, None)
        else:
            self._lacking[what] = None
        names = tuple(each for each in self.world.disks if (each,) not in self._lacking)
        edges = tuple(
            edge
            for edge in self.edges
            if not {edge, edge[::-1], edge[:1], edge[1:]} & self._lacking.keys()
        )
        is_apart = not Topology(names, edges).is_connected
        is_apart = is_apart or (bool(self._lacking) and not self.is_smooth)
        if is_apart and self._apart_s is None:
            self._apart_s = self.world.now
        elif not is_apart and self._apart_s is not None:
            self.faults.broken(self._apart_s)
            self._apart_s = None

    # --- links ---

    def part(self, one: str, other: str, seconds: float) -> None:
        """A broker is told to part from a neighbour, and to link to it again after a while."""
        what = ("part", one, other)
        if not self._is_edge(one, other) or not self._begins(what):
            return
        operator = self._operator(one)
        dialled: list[tuple[str, str]] = []
        is_parted = False
        self._lack((one, other))

        def parted(outcome: Outcome) -> None:
            nonlocal is_parted
            is_parted = True
            wires = ((one, other), (other, one))
            if isinstance(outcome, Answer):
                dialled.extend(wire for wire in wires if self.world.disconnect(*wire))

        def linked() -> None:
            for wire in dialled:
                self.world.connect(*wire)
            self._lack((one, other), is_back=True)
            self._ends(what, operator)

        def end() -> None:
            if is_parted:
                self._until_done(
                    operator,
                    partial(AddPeer, 0, address_of(other)),
                    linked,
                    lambda: self._is_up(one, other),  # who was added at the other end is let in
                )
            else:
                self._later(AGAIN_S, end)

        operator.core.table.ask(RemovePeer(0, other), parted)
        self.faults.lasts(seconds, what, end)

    def _is_edge(self, one: str, other: str) -> bool:
        return (one, other) in self.edges or (other, one) in self.edges

    def _is_up(self, one: str, other: str) -> bool:
        """Whether a broker has the other for a neighbour now."""
        node = self.world.nodes.get(one)
        state = None if node is None else node.status()["peers"].get(other)
        return state is not None and bool(state["up"])

    def link(self, one: str, other: str, seconds: float) -> None:
        """A broker is told to link to another as well, and to part from it after a while."""
        what = ("link", one, other)
        if one == other or self._is_edge(one, other) or not self._begins(what):
            return
        operator, url = self._operator(one), address_of(other)
        is_answered = False

        def answered(_outcome: Outcome) -> None:
            nonlocal is_answered
            is_answered = True

        def end() -> None:
            if is_answered:
                self._until_done(
                    operator,
                    partial(RemovePeer, 0, other),
                    partial(self._ends, what, operator),
                    lambda: one in self.world.nodes and not self.world.calls(one, url),
                )
            else:
                self._later(AGAIN_S, end)

        operator.core.table.ask(AddPeer(0, url), answered)
        self.faults.lasts(seconds, what, end)

    def _until_done(
        self,
        operator: Member,
        request: Callable[[], Request],
        done: Callable[[], object],
        is_moot: Callable[[], bool] = lambda: False,
    ) -> None:
        """Ask for something again until it is answered, or there is nothing to be done."""

        def answered(outcome: Outcome) -> None:
            if isinstance(outcome, Answer):
                done()
            else:
                self._later(AGAIN_S, ask)

        def ask() -> None:
            if is_moot():
                done()
            else:
                operator.core.table.ask(request(), answered)

        ask()
