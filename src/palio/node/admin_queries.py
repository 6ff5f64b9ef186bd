"""`AdminQueries`: answers queries about a broker and its network.

A *trace* is an event that is routed but not delivered. Each broker reports how it would route the
event, queries the neighbours it would forward to, and answers once they all have.

Data of other clients needs the grant to monitor (`Principal.may_monitor`), for clients and for
neighbours alike. A neighbour's own grant counts, not that of the client behind it.

| query | without the grant |
|---|---|
| `status` | the asker's own sessions and subscriptions, and their backlog at this broker |
| `trace` | the asker's own subscriptions that match, at this broker; durable ones anywhere |
| `waiting` | the backlog of one durable subscription of the asker's session, by its key |
| `catalogue` | with `{"own": True}` the asker's own; else refused |
| `topology`, `peers` | refused |
| `source` | the same, of what the asker may receive |

An answer that lacks something for want of the grant has the reason under `limited`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import nsmallest
from typing import Any, Final, TypeAlias

import msgspec

from palio.errors import IllegalMessage, InvalidInput
from palio.model.events import rows, stamped, to_batch
from palio.node.authority import NO_MONITOR, narrow, receivable
from palio.node.core import Core
from palio.node.fact_verifier import FOUND, is_live_subscription
from palio.node.limits import MAX_HOPS, MAX_PROBES, PROBED_BYTES
from palio.node.publishing import Publishing
from palio.node.seeking import Seeking
from palio.node.sessions import Durable, Neighbour, Session, Subscription
from palio.protocol.legal_parcels import check_numbered
from palio.protocol.messages import Answer, Parcel, Probe, Probed
from palio.routing.protocol import Hierarchy, Peer

CATALOGUE_ROWS: Final = 1_000
"""Subscriptions of one answer, which take 10 ms to write..."""

CATALOGUE_BYTES: Final = 1 << 20
"""...and characters of their filters, unless a single one has more."""

PROBER: Final = "$probe/"
"""The prefix of the publishers of traces. Under a real publisher's name, routers would drop a trace
as a duplicate, or later the events with its numbers."""

_Listed: TypeAlias = tuple[str, str, Mapping[str, Any]]
"""Owner, filter with what its owner may receive, and values of a subscription."""


class _Open:
    """A probe that is pending until its neighbours have answered."""

    __slots__ = ("answer_to", "hops", "id", "waiting")

    def __init__(self, answer_to: Session | Neighbour, id: int) -> None:
        self.answer_to = answer_to
        self.id = id
        self.hops: list[dict[str, Any]] = []
        self.waiting: dict[str, None] = {}


class AdminQueries:
    """Answers the queries of clients and neighbours at one broker."""

    def __init__(self, core: Core, publishing: Publishing) -> None:
        self._core = core
        self._publishing = publishing
        self._open: dict[int, _Open] = {}
        self._next_probe = 1
        self._traces = 0
        self.seeking: Final = Seeking(core)
        self.peers: Callable[[], list[dict[str, Any]]] = list
        """Returns the state of neighbours and addresses (`Membership.peers`)."""

    def ask(self, session: Session, id: int, what: str, about: Any) -> None:
        """Answer a query of a client."""
        core, principal = self._core, session.principal
        match what:
            case "status":
                status = self.status() if principal.may_monitor else self._own_status(session)
                session.send(core.out, Answer(id, status))
            case "waiting":
                session.send(core.out, Answer(id, self._waiting(session, about)))
            case "topology":
                principal.check_monitor("the brokers and the durable subscriptions of all")
                session.send(core.out, Answer(id, self.topology()))
            case "peers":
                principal.check_monitor("which brokers this one is linked to, and where")
                session.send(core.out, Answer(id, self.peers()))
            case "catalogue":
                session.send(core.out, Answer(id, self.catalogue(session, about)))
            case "latest" if isinstance(about, Mapping):
                session.send(core.out, Answer(id, self._publishing.latest.query(session, about)))
            case "source" if isinstance(about, Mapping):
                self.seeking.query(session, id, about)
            case "trace" if isinstance(about, Mapping):
                batch = stamped(to_batch(about), 0, core.at.wall_us)
                parcel = Parcel(self._prober(), batch)
                if principal.may_monitor:
                    self._probe(session, id, parcel, ())
                else:
                    session.send(core.out, Answer(id, self._own_trace(session, parcel)))
            case _:
                raise InvalidInput(
                    f"unknown query {what!r}; ask for status, topology, peers, catalogue, "
                    "waiting (with the key of a durable subscription), source or latest (with a "
                    "filter and values) or trace (with an event)"
                )

    # --- about this broker ---

    def status(self) -> dict[str, Any]:
        """Return counts by name."""
        core = self._core
        events = core.durability.events
        return {
            "broker": core.name,
            "epoch": core.durability.epoch,
            "routing": core.settings.routing,
            "sessions": len(core.sessions),
            "connected": sum(session.link is not None for session in core.sessions.values()),
            "subscriptions": sum(len(session.subscriptions) for session in core.sessions.values()),
            "durable_subscriptions": len(core.durability.here),
            "peers": {
                name: {
                    "up": neighbour.link is not None,
                    "queued_bytes": neighbour.queued_bytes,
                    "unseen_bytes": neighbour.stream.unseen_bytes,
                    "dropped": neighbour.dropped,
                }
                for name, neighbour in core.neighbours.items()
            },
            "links": self.peers(),
            "published": self._publishing.published,
            "routed": self._publishing.routed,
            "delivered": self._publishing.delivered,
            "dropped": sum(session.dropped for session in core.sessions.values()),
            "queued_bytes": core.budget.used,
            **core.assembling.counts,
            "multicast": self._publishing.multicasting.status(),
            "leaving": list(
                filter(
                    core.durability.cluster_state.is_leaving, core.durability.cluster_state.brokers
                )
            ),
            "custody_entries": events.queues.entries,
            "custody_waiting": {name: len(events.backlog(name)) for name in core.durability.here},
            "custody_carried": events.queues.carried,
            "blocked": sum(each.is_blocked for each in core.durability.here.values()),
            "redelivered": core.consumers.redelivered,
            "dead_letters": core.consumers.dead_letters,
            "rejections": dict(core.rate_limited_log.totals),
        }

    def _own_status(self, session: Session) -> dict[str, Any]:
        """Return counts of the asker's own sessions and subscriptions at this broker. Counts of all
        would reveal what others publish, and whether it matches.
        """
        core, owner = self._core, session.owner
        events = core.durability.events
        mine = [own_session for own_session in core.sessions.values() if own_session.owner == owner]
        kept = [
            name
            for name, subscription in core.durability.here.items()
            if subscription.owner == owner
        ]
        return {
            "broker": core.name,
            "limited": _limited(owner),
            "sessions": len(mine),
            "connected": sum(session.link is not None for session in mine),
            "subscriptions": sum(len(session.subscriptions) for session in mine),
            "durable_subscriptions": len(kept),
            "dropped": sum(session.dropped for session in mine),
            "queued_bytes": sum(session.queued_bytes for session in mine),
            "custody_waiting": {name: len(events.backlog(name)) for name in kept},
        }

    def _waiting(self, session: Session, key: Any) -> dict[str, int]:
        """Return the number of entries in a backlog, how many of them were sent before this answer,
        and the last; 0 if it is empty. Each of the others follows as a delivery or a gap.
        """
        durable = session.durables.get(key) if isinstance(key, int) else None
        if durable is None:
            raise InvalidInput(
                f"this session has no durable subscription under the key {key!r:.40}"
            )
        backlog = self._core.durability.events.backlog(durable.subject)
        offsets = [offset for offset, _ in backlog if durable.deliveries.is_open(offset)]
        return {
            "entries": len(offsets),
            "sent": sum(offset <= durable.deliveries.sent for offset in offsets),
            "last": offsets[-1] if offsets else 0,
        }

    def topology(self) -> dict[str, Any]:
        """Return all known brokers with their links, durable subscriptions and state of the
        multicast plan.
        """
        cluster_state = self._core.durability.cluster_state
        durable: dict[str, list[str]] = {}
        for fact in cluster_state.facts():
            if is_live_subscription(fact):
                durable.setdefault(fact.origin, []).append(fact.subject)
        router = self._core.router
        hierarchy = router if isinstance(router, Hierarchy) else None
        parents = {} if hierarchy is None else hierarchy.parents()
        standings = self._publishing.multicasting.standings(cluster_state.brokers)
        return {
            "asked": self._core.name,
            "root": "" if hierarchy is None else hierarchy.root,
            "brokers": {
                name: {
                    "links": list(cluster_state.links(name)),
                    "parent": parents.get(name, ""),
                    "found": list(cluster_state.links(name, FOUND)),
                    "url": str(self._core.address_book.of(name) or ""),
                    "reachable": name == self._core.name
                    or cluster_state.next_hop(name) is not None,
                    "durable_subscriptions": sorted(durable.get(name, [])),
                    "multicast": standings[name],
                    "leaving": cluster_state.is_leaving(name),
                }
                for name in cluster_state.brokers
            },
            "plan": self._plan(),
        }

    def _plan(self) -> dict[str, Any] | None:
        """Return the plan of multicast groups that is in force."""
        current = self._core.plans.current
        if current is None:
            return None
        return {
            "id": current.id,
            "epoch_us": current.epoch_us,
            "origin": current.origin,
            "method": current.plan.method,
            "groups": current.plan.group_count,
            "brokers": list(current.plan.brokers),
            "replans": current.replans,
        }

    def catalogue(self, session: Session, about: Any = None) -> dict[str, Any]:
        """Return the subscriptions of this broker's clients in pages, in the order of their ids.

        With the grant to monitor these are all, else the asker's own (`{"own": True}`). `next` is
        the first id of the next page, for a query with `{"from": next}`; empty at the end.
        """
        wanted = dict(about) if isinstance(about, Mapping) else {}
        is_own, start = bool(wanted.get("own")), str(wanted.get("from", ""))
        if not is_own:
            session.principal.check_monitor("others' subscriptions, only its own ({'own': True})")
        listed = self._listed(session.owner if is_own else "", start)
        page: list[dict[str, Any]] = []
        size = 0
        for id in sorted(listed):
            owner, filter, values = _describe(listed[id])
            size += len(filter)
            if page and (size > CATALOGUE_BYTES or len(page) == CATALOGUE_ROWS):
                return {"subscriptions": page, "next": id}
            row = {"subscriber": owner, "filter": filter, "parameters": dict(values)}
            page.append({"id": id, **row})
        return {"subscriptions": page, "next": ""}

    def _listed(self, owner: str, start: str) -> dict[str, tuple[Session, Subscription] | Durable]:
        """Return what one page needs of the subscriptions of an owner, or of all owners for an
        empty name: the first ids from `start` on, and one more.

        Only the sessions that the page takes are looked through, and ids are made for its rows
        alone: 100,000 subscriptions of one session cost 25 ms a page.
        """
        enough = CATALOGUE_ROWS + 1
        listed: dict[str, tuple[Session, Subscription] | Durable] = {}
        sessions = {
            f"{session.owner}/{session.id}/": session
            for session in self._core.sessions.values()
            if owner in ("", session.owner)
        }
        for prefix in sorted(sessions):
            if len(listed) >= enough:
                break
            if prefix < start and not start.startswith(prefix):
                continue
            subscriptions = sessions[prefix].subscriptions
            named = (
                (f"{prefix}{key}", key)
                for key, subscription in subscriptions.items()
                if not subscription.durable
            )
            for id, key in nsmallest(enough, (each for each in named if each[0] >= start)):
                listed[id] = (sessions[prefix], subscriptions[key])
        here = self._core.durability.here.values()
        durables = {d.subject: d for d in here if owner in ("", d.owner) and d.subject >= start}
        for subject in nsmallest(enough, durables):
            listed[subject] = durables[subject]
        return listed

    # --- traces ---

    def probe(self, neighbour: Neighbour, message: Probe) -> None:
        """Trace an event for a neighbour, here and at the brokers behind this one."""
        check_numbered(neighbour.name, message.parcel)
        _check_path(neighbour, message.path)
        if not message.parcel.publisher.startswith(f"{PROBER}{message.path[0]}/"):
            reason = "a Probe with events that are not those of a trace of where it began"
            raise IllegalMessage(neighbour.name, reason)
        is_loop = self._core.name in message.path
        if neighbour.principal.may_monitor and not is_loop:
            self._probe(neighbour, message.id, message.parcel, message.path)
        else:
            why = "loop" if is_loop else "withheld"
            path = [*message.path, self._core.name]
            hop = {"broker": self._core.name, "path": path, why: True}
            neighbour.send(self._core.out, Probed(message.id, (hop,)))

    def _prober(self) -> str:
        """Return the publisher of the next trace. Routers for graphs drop duplicates by publisher
        and number, so each trace needs a new name, across restarts as well.
        """
        self._traces += 1
        return f"{PROBER}{self._core.name}/{self._core.durability.epoch}-{self._traces}"

    def _probe(
        self, asker: Session | Neighbour, id: int, parcel: Parcel, path: tuple[str, ...]
    ) -> None:
        core = self._core
        number = self._next_probe
        self._next_probe += 1
        if len(self._open) >= MAX_PROBES:
            self._give_up(next(iter(self._open)))
        state = self._open[number] = _Open(asker, id)
        here = (*path, core.name)
        hop = _hop(here)
        for peer in self._receivers(asker, parcel, here[0]):
            self._simulate_send(peer, hop, state, Probe(number, parcel, here))
        if not path:
            assert isinstance(asker, Session)
            sender, copy = core.publisher_endpoints.of(asker), Parcel(self._prober(), parcel.batch)
            hop["multicast"] = self._publishing.multicasting.explain(sender, copy)
            hop.update(self._durable_matches(parcel))
        state.hops.append(hop)
        self._conclude(number)

    def _own_trace(self, session: Session, parcel: Parcel) -> dict[str, Any]:
        """Trace an event for a client without the grant to monitor. No neighbour is queried, as
        the path of an event reveals what others receive.
        """
        hop, owner = _hop((self._core.name,)), session.owner
        for peer in self._receivers(session, parcel, self._core.name):
            endpoint = self._core.by_peer.get(peer)
            if peer.is_client and endpoint is not None and endpoint[0].owner == owner:
                _simulate_delivery(endpoint, hop, _event(parcel))
        hop.update(self._durable_matches(parcel, owner))
        return {"hops": [hop], "limited": _limited(owner)}

    def _receivers(self, asker: Session | Neighbour, parcel: Parcel, source: str) -> Iterable[Peer]:
        """Return the receivers that this broker would send an event to."""
        core = self._core
        sender = core.publisher_endpoints.of(asker) if isinstance(asker, Session) else asker.peer
        parcel.source = source
        patterned = core.assembling.router
        router = core.router if patterned is None else patterned.inner  # no pattern takes it
        return router.route(sender, parcel)

    def _simulate_send(self, peer: Peer, hop: dict[str, Any], state: _Open, message: Probe) -> None:
        core = self._core
        if peer.is_client:
            endpoint = core.by_peer.get(peer)
            if endpoint is not None:
                _simulate_delivery(endpoint, hop, _event(message.parcel))
            return
        neighbour = core.neighbours.get(peer.name)
        if neighbour is not None and not _may_receive(neighbour, message.parcel):
            hop.setdefault("withheld_from", []).append(peer.name)
        elif neighbour is not None:
            hop["forwards"].append(peer.name)
            state.waiting[peer.name] = None
            neighbour.send(core.out, message)

    def _durable_matches(self, parcel: Parcel, owner: str = "") -> dict[str, list[str]]:
        """Return the durable subscriptions that an event matches, of one owner or of the whole
        network, and their homes.
        """
        durability = self._core.durability
        matches = durability.homes(durability.interests.wanted(parcel))
        homes = {s: home for s, home in matches.items() if owner in ("", s.partition("/")[0])}
        return {"durable": sorted(set(homes.values())), "kept_for": sorted(homes)}

    def probed(self, neighbour: Neighbour, message: Probed) -> None:
        """Add the answer of a neighbour, for itself and the brokers behind it."""
        state = self._open.get(message.id)
        if state is not None and neighbour.name in state.waiting:
            del state.waiting[neighbour.name]
            state.hops += _bounded(neighbour, message.hops)
            self._conclude(message.id)

    def _give_up(self, number: int) -> None:
        """Answer a probe without the neighbours that have not answered yet."""
        state = self._open[number]
        state.hops += [{"broker": name, "unreachable": True} for name in state.waiting]
        state.waiting.clear()
        self._conclude(number)

    def lost(self, neighbour: Neighbour) -> None:
        """Answer for a neighbour that is gone."""
        self.seeking.peer_down(neighbour)
        for number, state in list(self._open.items()):
            if neighbour.name in state.waiting:
                del state.waiting[neighbour.name]
                state.hops.append({"broker": neighbour.name, "unreachable": True})
                self._conclude(number)

    def _conclude(self, number: int) -> None:
        state = self._open[number]
        if state.waiting:
            return
        del self._open[number]
        asker, out = state.answer_to, self._core.out
        if isinstance(asker, Session):
            asker.send(out, Answer(state.id, {"hops": state.hops}))
        else:
            asker.send(out, Probed(state.id, tuple(state.hops)))


def _may_receive(neighbour: Neighbour, parcel: Parcel) -> bool:
    principal = neighbour.principal
    return principal.may_receive_all or bool(receivable(principal, parcel).any())


def _check_path(neighbour: Neighbour, path: tuple[str, ...]) -> None:
    """Refuse a trace whose path does not end at its sender, or is too long."""
    if path[-1:] != (neighbour.name,) or len(path) > MAX_HOPS:
        reason = f"a Probe whose path does not end with it, or is longer than {MAX_HOPS} (MAX_HOPS)"
        raise IllegalMessage(neighbour.name, reason)


def _bounded(neighbour: Neighbour, hops: tuple[dict[str, Any], ...]) -> Iterable[dict[str, Any]]:
    """Return a neighbour's answer to a trace, if it may be passed on."""
    if len(msgspec.msgpack.encode(hops)) <= PROBED_BYTES:
        return hops
    return ({"broker": neighbour.name, "unreachable": True},)


def _limited(owner: str) -> str:
    return f"only what belongs to {owner!r}; {NO_MONITOR}"


def _hop(path: tuple[str, ...]) -> dict[str, Any]:
    """Return the entry of the last broker on a path, to be filled in."""
    hop: dict[str, Any] = {"broker": path[-1], "path": list(path)}
    return hop | {name: [] for name in ("sessions", "matched", "forwards", "durable", "kept_for")}


def _simulate_delivery(
    endpoint: tuple[Session, int], hop: dict[str, Any], event: Mapping[str, Any]
) -> None:
    hop["sessions"].append(endpoint[0].owner)
    hop["matched"] += _matched(*endpoint, event)


def _describe(listed: tuple[Session, Subscription] | Durable) -> _Listed:
    if isinstance(listed, Durable):
        return listed.owner, str(listed.filter), listed.values
    session, each = listed
    filter = narrow(each.filter, each.values, session.principal)
    return session.owner, str(filter), each.values


def _event(parcel: Parcel) -> dict[str, Any]:
    return next(rows(parcel.batch))


def _matched(session: Session, key: int, event: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a session's subscriptions that an event matches; `key` is that of a durable one."""
    return [
        {
            "subscriber": session.owner,
            "filter": str(subscription.filter),
            "parameters": dict(subscription.values),
            "durable": subscription.durable,
        }
        for number, subscription in session.subscriptions.items()
        if (number == key if key >= 0 else not (subscription.durable or subscription.assembled))
        and subscription.filter.matches(event, subscription.values)
    ]
