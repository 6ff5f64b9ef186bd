"""`Peers`: sessions of clients and of brokers begin and end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Final

from palio.errors import LimitExceeded, NotSupported
from palio.node.admin_queries import AdminQueries
from palio.node.authority import Principal
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
"""Steps that are done at once of much work: about 10 ms, then other inputs have their turn."""

LINK_COST_PACE_S: Final = 1.0
"""A broker reports its link costs once in so many seconds for each broker of the network, as every
report goes to all of them. Overloaded machines answer late, which changes many costs: 100 brokers
that reported at once took half of two processors. So the network reports one change a second.
"""


def circle(name: str, other: str, routing: str) -> NotSupported:
    """Why two brokers are not to be linked."""
    return NotSupported(
        f"a link between {name!r} and {other!r} would close a circle, as there is another way "
        f"between them, and {routing} needs a tree; leave the link out, or set "
        'broker.routing = "general" for all'
    )


class Peers:
    """Whoever has a session with this broker."""

    def __init__(
        self, core: Core, links: Links, admin_queries: AdminQueries, reroutes: Reroutes
    ) -> None:
        self._core = core
        self._reroutes = reroutes
        self._links = links
        self._admin_queries = admin_queries
        self.leaving: deque[Session] = deque()
        """Sessions that have ended, and whose subscriptions are yet to go from the tables."""
        self._looked_at = -1
        """The state of the cluster_state when circles were looked for last."""
        self._round_trips: dict[str, RoundTrips] = {}
        """By broker, also while it is away."""
        self._measured: dict[str, None] = {}
        """Neighbours whose link cost may have changed since it was reported."""
        self._costs_due_at = 0.0
        """When measured link costs may be reported next."""
        self._aside: int | None = None
        """The cost of each link while this broker is about to leave."""
        self._spared: dict[str, None] = {}
        """Neighbours whose links are to be taken only where there are no others."""

    def new_session(
        self, owner: str, identity: str, incarnation: str, principal: Principal, link: int
    ) -> Session:
        """A client begins a session."""
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
        """Make room for a principal that has no more: its sessions without a connection end, the
        longest away first. None of them if that is not enough, which is `False`.
        """
        mine = [self._core.sessions[each] for each in limiter.sessions]
        away = sorted(
            (s for s in mine if s.link is None), key=lambda session: session.disconnected_at
        )
        chosen: list[Session] = []
        for session in away:
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

    def part_with(self, party: PeerSession) -> None:
        """A session cannot go on; whoever comes back begins a new one."""
        if isinstance(party, Neighbour):
            self.end_neighbour(party)
        elif isinstance(party, Session):
            if party.link is not None:
                self._links.close(
                    party.link, Bye("closed", "the session cannot go on; begin a new one")
                )
            self.end_session(party)

    def left(self, party: PeerSession, *, in_order: bool) -> None:
        """Somebody has said goodbye, and forgets the session."""
        if isinstance(party, Neighbour):
            self.end_neighbour(party, in_order=in_order)
        elif isinstance(party, Session):
            self.end_session(party)

    def new_neighbour(self, id: str, name: str, principal: Principal, link: int) -> Neighbour:
        """A broker begins a session."""
        peer = self._core.settings.peer(name)
        stream = Stream(self._core.settings.window_bytes)
        neighbour = Neighbour(id, peer, principal, link, stream, self._core.budget)
        self._core.neighbours[name] = neighbour
        return neighbour

    def attach(self, neighbour: Neighbour) -> None:
        """A broker has been greeted: it is informed what is known here, and does the same."""
        core = self._core
        core.report("info", "peer_up", peer=neighbour.name)
        core.awaiting_digest[neighbour] = core.at.now
        core.durability.cluster_state.peer_up(neighbour.name, core.at)
        self._apply_link_cost(neighbour)

    def ask(self, neighbour: Neighbour, *, is_silent: bool = False) -> None:
        """Ask a neighbour for nothing but an answer: now and then, for how far is it, and when it
        is silent.
        """
        core, link = self._core, neighbour.link
        trips, every_s = self._round_trips[neighbour.name], core.settings.heartbeat_s
        if link is not None and trips.start(link, core.at.now, every_s, is_silent=is_silent):
            core.out.append(Send(link, Ping()))

    def measured(self, link: int, neighbour: Neighbour) -> None:
        """Take a round trip from a neighbour's answer. Only the first cost is reported at once."""
        trips = self._round_trips[neighbour.name]
        is_news = trips.link_cost == UNMEASURED
        if not trips.finish(link, self._core.at.now):
            return
        if is_news:
            self._apply_link_cost(neighbour)
        else:
            self._measured[neighbour.name] = None
        self.ask(neighbour)

    def report_link_costs(self) -> None:
        """Report the link costs that have changed, if it is time to."""
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
        """Set the cost of the link to a neighbour at the router."""
        core, name = self._core, neighbour.name
        trips = self._round_trips.setdefault(name, RoundTrips())
        cost = core.settings.link_costs.get(name, trips.link_cost)
        if name in self._spared:
            cost = MAX_LINK_COST
        elif self._aside is not None:
            cost = self._aside
        core.route(core.router.set_link_cost(neighbour.peer, cost))

    def step_aside(self, cost: int | None) -> None:
        """Give all links of this broker one cost, or their own again (None)."""
        self._aside = cost
        for neighbour in self._core.neighbours.values():
            self._apply_link_cost(neighbour)

    def spare(self, name: str) -> None:
        """The link to one neighbour is to be taken only where there are no others."""
        self._spared[name] = None
        if name in self._core.neighbours:
            self._apply_link_cost(self._core.neighbours[name])

    def spare_no_more(self, name: str) -> None:
        """It is a link like others again."""
        self._spared.pop(name, None)
        if name in self._core.neighbours:
            self._apply_link_cost(self._core.neighbours[name])

    def end_session(self, session: Session) -> None:
        """A client's session is over."""
        core = self._core
        for durable in list(session.durables.values()):
            core.release(durable)
        core.publisher_endpoints.end(session)
        del core.sessions[session.id], core.by_peer[session.peer]
        core.settling.end(session)
        limiter = session.limiter
        session.forget()
        core.rate_limiters.end(limiter, session.id)
        if len(session.subscriptions) <= STEPS:
            core.route(core.router.detach(session.peer))
        else:  # nothing goes to it any longer; its place goes piece by piece
            self.leaving.append(session)

    def ends_if_unseen(self, session: Session) -> bool:
        """End the session of a client that has left too much unseen, before it is answered more;
        whether it has.

        Events stop by themselves where a window is full; answers are made as often as they are
        asked for. What a client has not seen of them is kept, so there is a limit for each
        (`UNACKED_BYTES`). Where all together hold much, the limit is a fair share, so that they
        take
        no more from the others.
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
            self._links.hang_up(session.link, error)
        self.end_session(session)
        return True

    def end_unseen(self) -> Iterator[int]:
        """Time has passed: where much is held, end the sessions of those, too, who ask nothing
        more; session by session.
        """
        sessions = self._core.sessions
        for session in list(sessions.values()) if self._core.budget.is_strained else ():
            if sessions.get(session.id) is session:
                self.ends_if_unseen(session)
            yield 1

    def let_go(self) -> None:
        """Take a piece of the subscriptions of a session that has ended from the tables."""
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

    def open_circles(self) -> None:
        """Links that were made at once may close a circle that nobody saw before. Where the routing
        needs a tree, both ends of the one with the greatest names part.
        """
        core, cluster_state = self._core, self._core.durability.cluster_state
        if cluster_state.routing_version == self._looked_at:
            return
        self._looked_at = cluster_state.routing_version
        in_trees = [
            each
            for each in core.neighbours.values()
            if core.settings.graph_with(each.name) is GraphKind.TREE
        ]
        if not in_trees:
            return
        said = {broker: cluster_state.links(broker) for broker in cluster_state.brokers}
        links = {
            edge_of(broker, near)
            for broker, all_near in said.items()
            for near in all_near
            if broker in said.get(near, ())
        }
        surplus = links - forest(sorted(links))
        for neighbour in in_trees:
            routing = core.settings.routing_with(neighbour.name)
            if edge_of(core.name, neighbour.name) in surplus:
                if neighbour.link is not None:
                    self._links.hang_up(neighbour.link, circle(core.name, neighbour.name, routing))
                self.end_neighbour(neighbour)

    def missed(self) -> list[Neighbour]:
        """Neighbours whose connection has been gone for longer than a heartbeat."""
        core = self._core
        since = core.at.now - core.settings.peer_heartbeat_s
        return [
            each
            for each in core.neighbours.values()
            if each.link is None and each.disconnected_at < since
        ]

    def go_round(self) -> None:
        """The session with each neighbour that is missed ends, if another way leads to it, or to
        a neighbour of it: then all beyond it can be reached.
        """
        missed, core = self.missed(), self._core
        if not missed:
            return
        near = [each.name for each in core.neighbours.values() if each.link is not None]
        cluster_state = core.durability.cluster_state
        within_reach = cluster_state.reachable_over(near)
        for each in missed:
            is_on_graph = core.settings.graph_with(each.name) is GraphKind.GRAPH
            beyond = (each.name, *cluster_state.links(each.name))
            if is_on_graph and not within_reach.isdisjoint(beyond):
                self.end_neighbour(each)

    def end_neighbour(self, neighbour: Neighbour, *, in_order: bool = False) -> None:
        """A broker's session is over; `in_order` if it has seen to it that nothing is lost."""
        core = self._core
        core.report("warning", "peer_down", peer=neighbour.name)
        del core.neighbours[neighbour.name]
        core.awaiting_digest.pop(neighbour, None)
        self._links.replaced(neighbour, "a new session")
        unseen = neighbour.unseen
        neighbour.forget()
        core.table_sync.forget(neighbour)
        core.durability.cluster_state.peer_down(neighbour.name)
        if neighbour.is_taken_in:
            core.route(core.router.detach(neighbour.peer))
        self._reroutes.part(neighbour, unseen)
        self._reroutes.send_next()  # ahead of what tells others that the link is gone
        if not in_order:
            core.loss_reports.note(f"the session with {neighbour.name!r} ended")
        self._admin_queries.lost(neighbour)
