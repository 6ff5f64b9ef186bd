"""`PeerDiscovery`: dials other brokers when the link to a peer is lost, so that a partitioned
network heals.

It uses facts of brokers: their addresses (`ADDRESS`), their links (`LINKS`), and those of their
links that are fallback links (`FOUND`).

1. A peer is lost once it has been disconnected for a `peer_heartbeat_s`. A broker that lost one
   dials brokers that it cannot reach: first the peers of the lost one, then all others, at last the
   lost one itself. Each broker has an order of its own, so that not all dial the same.
2. Of brokers that reach each other and lost the same peer, one begins. The others wait for some
   heartbeats.
3. An announced address may be false, so the broker that answers must have the expected name. Of
   `CALLS` addresses at a time each is dialed `TRIES` times or for `CALL_HEARTBEATS`, then rests for
   `REST_S`, and longer each time. After the first `FAST_CALLS` there is one a second.
4. A broker accepts such a call only from one that it cannot reach itself, and at most
   `MAX_ACCEPTED_CALLS` in a heartbeat: all lost brokers dial the one that is back, though one link
   leads to all of them.
5. A link made by discovery is a fallback link. Once no peer is lost, it ends if its other end is
   reachable without it (`palio.node.link_drain`). Where several fallback links replace each other,
   they end in an order on which all brokers agree.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from functools import partial
from hashlib import blake2b
from heapq import nsmallest
from math import inf
from typing import Final

from palio.errors import IllegalMessage
from palio.node.core import Core
from palio.node.effects import Dial, StopDialing
from palio.node.fact_store import ShortestPaths
from palio.node.fact_verifier import FOUND
from palio.node.limits import MAX_PEERS
from palio.node.link_drain import LinkDrain
from palio.node.links import Links
from palio.protocol.addresses import Address, parse_address
from palio.protocol.messages import Bye
from palio.routing.algorithms import GraphKind
from palio.routing.trees import edge_of

CALLS: Final = 2
"""Addresses that are dialed at a time, until one answers."""

TRIES: Final = 3
"""Attempts at an address before another one has its turn..."""

CALL_HEARTBEATS: Final = 5
"""...or this number of heartbeats, if it accepts connections and sends nothing."""

REST_S: Final = 2.0
"""Seconds before it is dialed once more, and twice as long each time..."""

MAX_REST_S: Final = 60.0
"""...up to this: a broker that is gone for good costs others little."""

FAST_CALLS: Final = 10
"""Addresses that are dialed without a pause: more of them may be forged."""

PACE_S: Final = 1.0
"""Seconds between two of those after them."""

MAX_ACCEPTED_CALLS: Final = 3
"""Calls of other brokers' `PeerDiscovery` that a broker accepts in a heartbeat."""

MAX_WAIT_HEARTBEATS: Final = 10
"""Heartbeats that a broker waits for others that lost the same peer and may reconnect it first."""

STABLE_HEARTBEATS: Final = 3
"""Heartbeats without a lost peer, before a fallback link ends."""

CHECKS_PER_HEARTBEAT: Final = 5

MAX_LOST_CONSIDERED: Final = 3
"""Of many peers that are lost at once, those considered for the order of rule 2."""

_NO_REST: Final = (0.0, 0.0)

MAX_CANDIDATES: Final = 50
"""Brokers, in the order in which they are dialed, whose addresses are read at once."""


class _Call:
    """A broker that is being dialed."""

    __slots__ = ("is_up", "name", "since", "tries", "url")

    def __init__(self, name: str, url: str, now: float) -> None:
        self.name = name
        self.url = url
        self.since = now
        self.tries = 0
        self.is_up = False


class PeerDiscovery:
    """Reconnects one broker to those that it has lost."""

    def __init__(self, core: Core, links: Links, link_drain: LinkDrain) -> None:
        self._core = core
        self._links = links
        self._link_drain = link_drain
        self._cluster_state = core.durability.cluster_state
        settings = core.settings
        self._is_on = (
            settings.discovery
            and settings.outside is None
            and settings.graph_with("") is GraphKind.GRAPH
        )
        self.kept = {str(parse_address(url)) for url in settings.peers}
        """Addresses that are dialed whether or not a peer is lost."""
        self.blocked_peers: dict[str, None] = {}
        """Brokers that must not be linked to this one."""
        # By peer, connected or lost: whether its link is a fallback link.
        self._is_fallback: dict[str, bool] = {}
        # By peer that is not connected, the time since when.
        self._down_since: dict[str, float] = {}
        # By name, brokers that are being dialed.
        self._calls: dict[str, _Call] = {}
        # By broker that is not dialed for a while, the end of that time, and its length.
        self._rests: dict[str, tuple[float, float]] = {}
        # The times at which this broker accepted calls of others.
        self._accepted_at: deque[float] = deque(maxlen=MAX_ACCEPTED_CALLS)
        # The fallback link that this broker is draining, if any. It stays if a peer is lost.
        self._spare = ""
        self._alone_since = 0.0
        self._healthy_since = 0.0
        # Calls since a peer was lost.
        self._call_count = 0
        self._next_call_at = 0.0
        self._next_check_at = 0.0
        self._reached_key: object = None
        # The brokers that can be reached, for that version of the links.
        self._reached_cache: Collection[str] = ()

    @property
    def wake_at(self) -> float:
        """The time at which `tick` is due."""
        is_at_work = self._link_drain or (self._is_on and not self._cluster_state.is_alone)
        return self._next_check_at if is_at_work else inf

    @property
    def urls(self) -> list[str]:
        """The addresses that are dialed to replace a lost link."""
        return [call.url for call in self._calls.values()]

    def seeks(self, url: str) -> bool:
        """Return whether an address is dialed only because a peer is lost."""
        return url not in self.kept and url in self.urls

    def begin(self) -> None:
        """Start with the peers of the broker's earlier incarnation, if its disk has them."""
        cluster_state, name = self._cluster_state, self._core.name
        self._alone_since = self._healthy_since = self._next_check_at = self._core.at.now
        self._is_fallback = dict.fromkeys(cluster_state.links(name), False)
        self._is_fallback.update(dict.fromkeys(cluster_state.links(name, FOUND), True))

    def block(self, name: str) -> None:
        """Keep a broker from being linked to this one, until an operator asks for the link."""
        self.forget(name)
        self.blocked_peers[name] = None
        if len(self.blocked_peers) > MAX_PEERS:
            del self.blocked_peers[next(iter(self.blocked_peers))]

    def forget(self, name: str) -> None:
        """Forget a peer whose link was ended on purpose, so that it is not lost."""
        self._is_fallback.pop(name, None)
        self._down_since.pop(name, None)

    # --- results of calls ---

    def note_connection(self, url: str) -> None:
        """Count a connection to an address as an attempt, until the other end has a name."""
        for call in list(self._calls.values()):
            if call.url == url:
                call.tries += 1
                if call.tries > TRIES:
                    self._give_up(call)

    def unreachable(self, url: str) -> None:
        """Count a failed attempt at an address."""
        for call in list(self._calls.values()):
            if call.url == url:
                call.tries += 1
                if call.tries >= TRIES:
                    self._give_up(call)

    def check(self, url: str, name: str) -> None:
        """Refuse a broker that answers where another was expected (`IllegalMessage`)."""
        for call in list(self._calls.values()):
            if call.url == url and call.name != name:
                self._give_up(call)
                raise IllegalMessage(name, f"{call.name!r} is expected there, at {url}")

    def accepts_call(self, name: str) -> bool:
        """Return whether to accept the call of another broker's `PeerDiscovery`: if that broker
        cannot be reached otherwise, unless there were `MAX_ACCEPTED_CALLS` calls in this heartbeat.
        """
        now, accepted_at = self._core.at.now, self._accepted_at
        is_many = (
            len(accepted_at) == MAX_ACCEPTED_CALLS and now - accepted_at[0] < self._heartbeat_s
        )
        if is_many or name in self._reached(self._up):
            return False
        accepted_at.append(now)
        return True

    def _give_up(self, call: _Call) -> None:
        """End a call, and dial its broker again only after a pause."""
        self._end(call)
        _, before = self._rests.get(call.name, (0.0, REST_S / 2))
        rest = min(2 * before, MAX_REST_S)
        self._rests[call.name] = (self._core.at.now + rest, rest)
        self._core.report("debug", "discovery_failed", broker=call.name, url=call.url)

    def _end(self, call: _Call) -> None:
        del self._calls[call.name]
        if call.url not in self.kept:
            self._core.out.append(StopDialing(call.url))

    # --- checks ---

    def tick(self) -> bool:
        """Check peers and calls if it is time; return whether it was."""
        core = self._core
        if core.at.now < self.wake_at:
            return False
        self._next_check_at = core.at.now + self._heartbeat_s / CHECKS_PER_HEARTBEAT
        self._link_drain.tick()
        if self._is_on:
            self._check()
        return True

    def _check(self) -> None:
        up = self._up
        self._check_calls()
        self._update_down(up)
        lost = self._lost(up)
        if lost is None:
            self._call_count, self._next_call_at = 0, 0.0
            self._rests.clear()
            self._end_fallback(up)
        else:
            self._healthy_since = self._core.at.now
            if self._spare in self._calls:
                self._link_drain.cancel(self._spare)
                self._spare = ""
            self._seek(up, lost)
        self._announce_found()

    def _check_calls(self) -> None:
        now = self._core.at.now
        timeout_s = CALL_HEARTBEATS * self._heartbeat_s
        for call in list(self._calls.values()):
            neighbour = self._core.neighbours.get(call.name)
            link = None if neighbour is None or neighbour.link is None else neighbour.link
            state = None if link is None else self._links.get(link)
            was_up, call.is_up = call.is_up, state is not None and state.url == call.url
            if call.is_up:
                call.tries = 0
                if not was_up:
                    self._core.report(
                        "info", "fallback_link_opened", broker=call.name, url=call.url
                    )
            elif state is not None:  # that broker has dialed this one meanwhile
                self._end(call)
            elif was_up:
                call.since = now
            elif now - call.since > timeout_s:
                self._give_up(call)

    def _update_down(self, up: Collection[str]) -> None:
        """Update which links are fallback links, and which peers are down."""
        cluster_state, now = self._cluster_state, self._core.at.now
        for name in up:
            # Discovery may link a broker that then dials this one by its configuration. The
            # configured link replaces the fallback link, and is none.
            is_theirs = self._core.name in cluster_state.links(name, FOUND)
            self._is_fallback[name] = is_theirs or self._is_found(name)
            self._down_since.pop(name, None)
        for name in [name for name in self._is_fallback if name in cluster_state.removed]:
            self.forget(name)
        for name in self._is_fallback:
            neighbour = self._core.neighbours.get(name)
            if neighbour is None:
                self._down_since.setdefault(name, now)
            elif name not in up:  # it may have been up since the last check
                self._down_since[name] = neighbour.disconnected_at

    def _lost(self, up: Collection[str]) -> list[str] | None:
        """Return the peers that are lost; None if there is no need to dial any broker. The list is
        empty if this broker has no link, and has lost none that it remembers.
        """
        now, beat = self._core.at.now, self._heartbeat_s
        if up or len(self._cluster_state.brokers) < 2:
            self._alone_since = now
        for neighbour in self._core.neighbours.values():
            self._alone_since = max(self._alone_since, neighbour.disconnected_at)
        lost = [name for name, since in self._down_since.items() if now - since > beat]
        if not lost and now - self._alone_since <= beat:
            return None
        return lost

    def _seek(self, up: list[str], lost: list[str]) -> None:
        """Dial one more broker that cannot be reached, if it is time."""
        now = self._core.at.now
        reached = self._reached(up)
        for call in list(self._calls.values()):
            if not call.is_up and call.name in reached:
                self._end(call)
        for name in [name for name in lost if name in reached and self._is_replaced(name, up)]:
            self.forget(name)
            lost.remove(name)
        under_way = sum(not call.is_up for call in self._calls.values())
        if under_way >= CALLS or now < self._next_call_at or self._must_yield(lost, reached):
            return
        candidate = self._next_candidate(lost, reached)
        if candidate is not None:
            name, address = candidate
            self._calls[name] = _Call(name, str(address), now)
            self._call_count += 1
            self._next_call_at = now + PACE_S if self._call_count >= FAST_CALLS else 0.0
            self._core.out.append(Dial(str(address), name))
            missed = lost[:MAX_LOST_CONSIDERED]
            level = "debug" if name in self._rests else "info"
            self._core.report(
                level, "discovery_started", broker=name, url=str(address), missed=missed
            )

    def _is_replaced(self, name: str, up: list[str]) -> bool:
        """Return whether a lost peer, which can be reached, need not be linked again: its link was
        a fallback link, or it is reached without one of the own ones. The other end may have ended
        a fallback link that it had not announced here.
        """
        fallbacks = [neighbour for neighbour in self._own_fallbacks if neighbour in up]
        if self._is_fallback[name] or not fallbacks:
            return self._is_fallback[name]
        if self._core.at.now - self._down_since[name] <= self._stable_s:
            return False
        # If it is reached without any own fallback link, then without the one that ends first.
        # Counting the peer as lost would keep that link for ever.
        first = max(fallbacks, key=partial(edge_of, self._core.name))
        return name in self._reached_without(first, up)

    def _reached(self, up: list[str]) -> Collection[str]:
        key = (self._cluster_state.routing_version, tuple(up))
        if key != self._reached_key:
            self._reached_key, self._reached_cache = key, self._cluster_state.reachable_over(up)
        return self._reached_cache

    def _must_yield(self, lost: list[str], reached: Collection[str]) -> bool:
        """Return whether another broker that lost the same peer is still to dial first."""
        now, beat = self._core.at.now, self._heartbeat_s
        start_times = []
        for name in lost[:MAX_LOST_CONSIDERED]:
            # The peers of a lost broker draw lots, each waiting a heartbeat longer than the one
            # before it: mostly the first has reconnected by the time of the second.
            own_lot = _lot(name, self._core.name)
            rivals = (broker for broker in self._cluster_state.links(name) if broker in reached)
            rank = sum(_lot(name, rival) < own_lot for rival in rivals)
            start_times.append(self._down_since[name] + beat * (1 + min(rank, MAX_WAIT_HEARTBEATS)))
        return bool(start_times) and min(start_times) > now

    def _next_candidate(
        self, lost: list[str], reached: Collection[str]
    ) -> tuple[str, Address] | None:
        """Return the next broker to dial, and its address; None if there is none."""
        core, cluster_state = self._core, self._cluster_state
        near = {name for broker in lost for name in cluster_state.links(broker)}

        def order(name: str) -> tuple[float, int, bytes]:
            nearness = 2 if name in lost else int(name not in near)
            return self._rests.get(name, _NO_REST)[1], nearness, _lot(core.name, name)

        unreached = [
            name
            for name in cluster_state.brokers
            if name not in reached
            and name != core.name
            and name not in self._calls
            and name not in self.blocked_peers
            and not cluster_state.is_leaving(name)
            and self._rests.get(name, _NO_REST)[0] <= core.at.now
        ]
        for name in nsmallest(MAX_CANDIDATES, unreached, order):
            address = self._address(name)
            if address is not None:
                return name, address
            self._rests[name] = (core.at.now + MAX_REST_S, MAX_REST_S)
        return None

    def _address(self, name: str) -> Address | None:
        """Return the address at which to dial a broker; None if it is unknown or not allowed."""
        core = self._core
        own, address = core.address_book.of(core.name), core.address_book.of(name)
        if address is None or address == own or str(address) in self.kept:
            return None
        # A false address must not lead a broker with TLS to a connection without it.
        is_stripped = own is not None and own.is_secure and not address.is_secure
        return None if is_stripped else address

    # --- fallback links ---

    def _end_fallback(self, up: list[str]) -> None:
        """Drain a fallback link that is needed no longer, if there is one."""
        fallbacks = self._own_fallbacks
        if not fallbacks or self._core.at.now - self._healthy_since < self._stable_s:
            return
        if any(name in self._link_drain for name in fallbacks):
            return
        spare = next((name for name in fallbacks if name in self._reached_without(name, up)), None)
        if spare is not None:
            done = partial(self._fallback_ended, spare)
            bye = Bye("closed", "the link is needed no longer")
            self._link_drain.begin(spare, bye, done)
            self._spare = spare

    @property
    def _own_fallbacks(self) -> list[str]:
        """The peers that this broker has dialed for fallback links."""
        return [
            name
            for name, is_fallback in self._is_fallback.items()
            if is_fallback and self._is_found(name)
        ]

    @property
    def _up(self) -> list[str]:
        """The peers that are connected."""
        return [
            name for name, neighbour in self._core.neighbours.items() if neighbour.link is not None
        ]

    @property
    def _heartbeat_s(self) -> float:
        return self._core.settings.peer_heartbeat_s

    @property
    def _stable_s(self) -> float:
        return STABLE_HEARTBEATS * self._heartbeat_s

    def _reached_without(self, name: str, up: list[str]) -> Collection[str]:
        """Return the brokers that can be reached without one fallback link, and without those
        before it in the order of all links. So of a circle of fallback links only one ends: two
        brokers that decide at once, each by itself, do not partition the network.
        """
        first = edge_of(self._core.name, name)

        def stays(one: str, other: str) -> bool:
            return edge_of(one, other) < first

        def links(broker: str) -> tuple[str, ...]:
            lasting = self._lasting_links(broker)
            every = self._cluster_state.links(broker)
            return tuple(other for other in every if other in lasting or stays(broker, other))

        own = [name for name in up if not self._is_fallback[name] or stays(self._core.name, name)]
        return ShortestPaths(self._core.name, own, links).hops

    def _lasting_links(self, broker: str) -> tuple[str, ...]:
        """Return the peers of a broker by links that are no fallback links."""
        cluster_state = self._cluster_state
        fallback = cluster_state.links(broker, FOUND)
        return tuple(
            link
            for link in cluster_state.links(broker)
            if link not in fallback and broker not in cluster_state.links(link, FOUND)
        )

    def _fallback_ended(self, name: str) -> None:
        call = self._calls.get(name)
        if call is not None:
            self._end(call)
        self._spare = ""
        self.forget(name)
        self._core.report("info", "fallback_link_closed", broker=name)

    def _announce_found(self) -> None:
        """Announce which links of this broker are fallback links that it has dialed."""
        before = self._cluster_state.links(self._core.name, FOUND)
        # A link that is down stays announced: it may be up before any broker acts on that.
        fallbacks = [
            name
            for name, is_fallback in self._is_fallback.items()
            if is_fallback
            and (name in before if name in self._down_since else self._is_found(name))
        ]
        self._cluster_state.announce_links(FOUND, tuple(sorted(fallbacks)))

    def _is_found(self, name: str) -> bool:
        """Return whether this broker has dialed a peer for a fallback link, and it is up."""
        call = self._calls.get(name)
        return call is not None and call.is_up


def _lot(one: str, other: str) -> bytes:
    """Return a key by which each broker orders all others differently, and always the same."""
    return blake2b(f"{len(one)} {one} {other}".encode(), digest_size=8).digest()
