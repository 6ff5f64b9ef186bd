"""Begin and end the sessions of clients and of peers, and keep the costs of links.

Quotas bind when a session begins. A session ends by itself when its client leaves too much without
an ack. Long work, such as removing a session of many subscriptions from the tables, goes in steps,
so that other inputs have their turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from palio.errors import LimitExceeded, NotSupported
from palio.node.admin_queries import AdminQueries
from palio.node.authority import Principal
from palio.node.consumers import Consumers
from palio.node.core import Core
from palio.node.effects import Send
from palio.node.limits import LEAST_SHARE, MAX_SESSIONS_OF_ONE, UNACKED_BYTES
from palio.node.links import Links
from palio.node.rate_limiters import RateLimiter
from palio.node.reroutes import Reroutes
from palio.node.round_trips import RoundTrips
from palio.node.sessions import Neighbour, PeerSession, Session
from palio.protocol.messages import Bye, Ping
from palio.protocol.streams import Stream
from palio.routing.algorithms import GraphKind
from palio.routing.messages import Batch, Unsubscribe
from palio.routing.protocol import Peer
from palio.routing.trees import MAX_LINK_COST, UNMEASURED, edge_of, forest

STEPS: Final = 1_000
"""Steps of long work in one turn: about 10 ms, then other inputs have their turn."""

LINK_COST_PACE_S: Final = 1.0
"""Seconds between two reports of a broker's link costs, times the brokers of the network, as each
report goes to all of them. So the whole network reports about once a second. Overloaded machines
answer late, which changes many costs: 100 brokers that reported at once took half of two CPUs.
"""


def cycle_error(name: str, other: str, routing: str) -> NotSupported:
    """Return the error for a link that would close a cycle."""
    return NotSupported(
        f"a link between {name!r} and {other!r} would close a circle, as there is another way "
        f"between them, and {routing} needs a tree; leave the link out, or set "
        'broker.routing = "general" for all'
    )


class Peers:
    """Begin, drain and end sessions with this broker."""

    def __init__(
        self,
        core: Core,
        links: Links,
        admin_queries: AdminQueries,
        reroutes: Reroutes,
        consumers: Consumers,
    ) -> None:
        self._core = core
        self._consumers = consumers
        self._reroutes = reroutes
        self._links = links
        self._admin_queries = admin_queries
        self.leaving: deque[Session] = deque()
        """Ended sessions whose subscriptions are still in the routing tables."""
        self._checked_version = -1  # the routing version of the last search for cycles
        self._round_trips: dict[str, RoundTrips] = {}
        """By broker; kept while it is disconnected, so that its cost is known when it returns."""
        self._measured: dict[str, None] = {}
        """Neighbours whose link cost may have changed since the last report."""
        self._costs_due_at = 0.0
        """The earliest time of the next report of link costs."""
        self._aside: int | None = None
        """The cost of every link while this broker drains or stops."""
        self._spared: dict[str, None] = {}
        """Neighbours whose links drain: paths use them only where there are no others."""

    def new_session(
        self, owner: str, identity: str, incarnation: str, principal: Principal, link: int
    ) -> Session:
        """Begin a client's session, within the quotas of the broker and of its principal."""
        core = self._core
        if len(core.sessions) >= core.settings.max_sessions:
            raise LimitExceeded(
                "the number of sessions of this broker",
                limit="MAX_SESSIONS",
                maximum=core.settings.max_sessions,
                remedy="try another broker",
            )
        limiter = core.rate_limiters.of(principal)
        most = principal.limits.sessions or MAX_SESSIONS_OF_ONE
        if len(limiter.sessions) >= most and not self.end_disconnected(limiter, sessions=1):
            raise LimitExceeded(
                f"the number of sessions of {principal.name!r} at this broker",
                limit="limits.sessions",
                maximum=most,
                remedy="close one, or have a grant with more",
            )
        id = core.new_id()
        stream = Stream(core.settings.window_bytes)
        publisher = f"{owner}/{incarnation or id}"
        session = Session(
            id,
            Peer.session(id),
            principal,
            link,
            stream,
            core.budget,
            owner=owner,
            publisher=publisher,
        )
        session.identity, session.limiter = identity, limiter
        core.rate_limiters.begin(limiter, id)
        core.sessions[id] = session
        core.by_peer[session.peer] = (session, -1)
        return session

    def end_disconnected(
        self, limiter: RateLimiter, *, sessions: int = 0, subscriptions: int = 0, cost: int = 0
    ) -> bool:
        """Free the quota of a principal: end its disconnected sessions, the longest disconnected
        first. Return False, and end none, if that frees too little.
        """
        mine = [self._core.sessions[id] for id in limiter.sessions]
        disconnected = sorted(
            (s for s in mine if s.link is None), key=lambda session: session.disconnected_at
        )
        chosen: list[Session] = []
        for session in disconnected:
            if (
                sessions > 0
                or (subscriptions > 0 and session.subscriptions)
                or (cost > 0 and session.cost)
            ):
                chosen.append(session)
                sessions -= 1
                subscriptions -= len(session.subscriptions)
                cost -= session.cost
        if max(sessions, subscriptions, cost) > 0:
            return False
        for session in chosen:
            self.end_session(session)
        return True

    def part_with(self, session: PeerSession) -> None:
        """End a session that cannot continue; a reconnection begins a new one."""
        if isinstance(session, Neighbour):
            self.end_neighbour(session)
        elif isinstance(session, Session):
            if session.link is not None:
                self._links.close(
                    session.link, Bye("closed", "the session cannot continue; begin a new one")
                )
            self.end_session(session)

    def left(self, session: PeerSession, *, in_order: bool) -> None:
        """End a session after the `Bye` of its other end, which does not resume it."""
        if isinstance(session, Neighbour):
            self.end_neighbour(session, in_order=in_order)
        elif isinstance(session, Session):
            self.end_session(session)

    def new_neighbour(self, id: str, name: str, principal: Principal, link: int) -> Neighbour:
        """Begin a session with a broker."""
        peer = self._core.settings.peer(name)
        stream = Stream(self._core.settings.window_bytes)
        neighbour = Neighbour(id, peer, principal, link, stream, self._core.budget)
        self._core.neighbours[name] = neighbour
        return neighbour

    def attach(self, neighbour: Neighbour) -> None:
        """Exchange digests of the cluster state with a broker that completed the handshake."""
        core = self._core
        core.report("info", "peer_up", peer=neighbour.name)
        core.awaiting_digest[neighbour] = core.at.now
        core.durability.cluster_state.peer_up(neighbour.name, core.at)
        self._apply_link_cost(neighbour)

    def ask(self, neighbour: Neighbour, *, is_silent: bool = False) -> None:
        """Ping a neighbour: once in a heartbeat to measure the round trip, and when it is idle."""
        core, link = self._core, neighbour.link
        trips, every_s = self._round_trips[neighbour.name], core.settings.heartbeat_s
        if link is not None and trips.start(link, core.at.now, every_s, is_silent=is_silent):
            core.out.append(Send(link, Ping()))

    def measured(self, link: int, neighbour: Neighbour) -> None:
        """Record a round trip at a neighbour's `Pong`. Only the first cost is applied at once."""
        trips = self._round_trips[neighbour.name]
        is_first = trips.link_cost == UNMEASURED
        if not trips.finish(link, self._core.at.now):
            return
        if is_first:
            self._apply_link_cost(neighbour)
        else:
            self._measured[neighbour.name] = None
        self.ask(neighbour)

    def report_link_costs(self) -> None:
        """Apply and report the link costs that have changed, if a report is due."""
        core = self._core
        if not self._measured or core.at.now < self._costs_due_at:
            return
        measured, self._measured = self._measured, {}
        self._costs_due_at = core.at.now + LINK_COST_PACE_S * len(
            core.durability.cluster_state.brokers
        )
        for name in measured:
            if name in core.neighbours:
                self._apply_link_cost(core.neighbours[name])

    def _apply_link_cost(self, neighbour: Neighbour) -> None:
        """Set a link's cost at the router: that of a drain, else the configured or measured one."""
        core, name = self._core, neighbour.name
        trips = self._round_trips.setdefault(name, RoundTrips())
        cost = core.settings.link_costs.get(name, trips.link_cost)
        if name in self._spared:
            cost = MAX_LINK_COST
        elif self._aside is not None:
            cost = self._aside
        core.route(core.router.set_link_cost(neighbour.peer, cost))

    def step_aside(self, cost: int | None) -> None:
        """Give all links of this broker one cost; None restores their own."""
        self._aside = cost
        for neighbour in self._core.neighbours.values():
            self._apply_link_cost(neighbour)

    def spare(self, name: str) -> None:
        """Give the link to a neighbour the greatest cost, so that paths avoid it if they can."""
        self._spared[name] = None
        if name in self._core.neighbours:
            self._apply_link_cost(self._core.neighbours[name])

    def spare_no_more(self, name: str) -> None:
        """Restore the link's own cost."""
        self._spared.pop(name, None)
        if name in self._core.neighbours:
            self._apply_link_cost(self._core.neighbours[name])

    def end_session(self, session: Session) -> None:
        """End a client's session, and release its durable subscriptions."""
        core = self._core
        for durable in list(session.durables.values()):
            self._consumers.release(durable, session)
        core.publisher_endpoints.end(session)
        del core.sessions[session.id], core.by_peer[session.peer]
        core.settling.end(session)
        limiter = session.limiter
        session.forget()
        core.rate_limiters.end(limiter, session.id)
        if len(session.subscriptions) <= STEPS:
            core.route(core.router.detach(session.peer))
        else:  # it receives nothing any more, so its subscriptions may leave the tables in steps
            self.leaving.append(session)

    def ends_if_unseen(self, session: Session) -> bool:
        """End the session of a client with too many unacked bytes; return whether it had.

        A full window stops events, but a client causes answers by its requests, and unacked answers
        stay in memory. So each session has a limit (`UNACKED_BYTES`). While all unacked answers
        take much of the budget, the limit is a fair share, to protect the other sessions.
        """
        budget, stream = self._core.budget, session.stream
        maximum = UNACKED_BYTES
        if stream.unseen_bytes <= maximum:
            if not budget.is_strained:
                return False
            maximum = max(budget.fair_share, LEAST_SHARE)
            if stream.unseen_answers <= maximum:
                return False
        self._core.has_follow_up = True
        if session.link is not None:
            what = "what a session was sent and has not seen"
            error = LimitExceeded(what, limit="UNACKED_BYTES", maximum=maximum)
            self._links.reject(session.link, error)
        self.end_session(session)
        return True

    def end_unacked(self) -> Iterator[int]:
        """End sessions with too many unacked bytes, also those that send no more requests; check
        one session in each step.
        """
        sessions = self._core.sessions
        for session in list(sessions.values()) if self._core.budget.is_strained else ():
            if sessions.get(session.id) is session:
                self.ends_if_unseen(session)
            yield 1

    def let_go(self) -> None:
        """Remove the next subscriptions of an ended session from the routing tables."""
        if not self.leaving:
            return
        core, session = self._core, self.leaving[0]
        keys = list(islice(session.subscriptions, STEPS))
        for key in keys:
            session.let_go(key)
        changes = tuple(Unsubscribe(key) for key in keys)
        core.route(core.router.receive(session.peer, Batch(changes)))
        if not session.subscriptions:
            core.route(core.router.detach(session.peer))
            self.leaving.popleft()

    def break_cycles(self) -> None:
        """Close links that make a cycle where the routing needs a tree.

        Links made at the same time may close a cycle that the check of neither could see. All
        brokers choose the same surplus link, the one with the greatest names; its ends close it.
        """
        core, cluster_state = self._core, self._core.durability.cluster_state
        if cluster_state.routing_version == self._checked_version:
            return
        self._checked_version = cluster_state.routing_version
        in_trees = [
            neighbour
            for neighbour in core.neighbours.values()
            if core.settings.graph_with(neighbour.name) is GraphKind.TREE
        ]
        if not in_trees:
            return
        stated = {broker: cluster_state.links(broker) for broker in cluster_state.brokers}
        links = {  # those that both ends state
            edge_of(broker, near)
            for broker, all_near in stated.items()
            for near in all_near
            if broker in stated.get(near, ())
        }
        surplus = links - forest(sorted(links))
        for neighbour in in_trees:
            routing = core.settings.routing_with(neighbour.name)
            if edge_of(core.name, neighbour.name) in surplus:
                if neighbour.link is not None:
                    error = cycle_error(core.name, neighbour.name, routing)
                    self._links.reject(neighbour.link, error)
                self.end_neighbour(neighbour)

    def missed(self) -> list[Neighbour]:
        """Return the neighbours that have been disconnected for longer than a heartbeat."""
        core = self._core
        since = core.at.now - core.settings.peer_heartbeat_s
        return [
            neighbour
            for neighbour in core.neighbours.values()
            if neighbour.link is None and neighbour.disconnected_at < since
        ]

    def bypass_broken_links(self) -> None:
        """End the session with each unreachable neighbour of a graph, if another path leads to it
        or to a neighbour of it. Paths then avoid the broken link; on a tree there is no other path.
        """
        missed, core = self.missed(), self._core
        if not missed:
            return
        near = [peer.name for peer in core.neighbours.values() if peer.link is not None]
        cluster_state = core.durability.cluster_state
        within_reach = cluster_state.reachable_over(near)
        for neighbour in missed:
            is_on_graph = core.settings.graph_with(neighbour.name) is GraphKind.GRAPH
            beyond = (neighbour.name, *cluster_state.links(neighbour.name))
            if is_on_graph and not within_reach.isdisjoint(beyond):
                self.end_neighbour(neighbour)

    def end_neighbour(self, neighbour: Neighbour, *, in_order: bool = False) -> None:
        """End a broker's session; `in_order` if paths avoided the link before, so none is lost."""
        core = self._core
        core.report("warning", "peer_down", peer=neighbour.name)
        del core.neighbours[neighbour.name]
        core.awaiting_digest.pop(neighbour, None)
        self._links.close_replaced(neighbour, "a new session")
        unseen = neighbour.unseen
        neighbour.forget()
        core.table_sync.forget(neighbour)
        core.durability.cluster_state.peer_down(neighbour.name)
        if neighbour.is_taken_in:
            core.route(core.router.detach(neighbour.peer))
        self._reroutes.part(neighbour, unseen)
        self._reroutes.send_next()  # ahead of the messages that report the link as gone
        if not in_order:
            core.loss_reports.note(f"the session with {neighbour.name!r} ended")
        self._admin_queries.lost(neighbour)
