"""`Questions`: what a broker says about itself and its network when asked.

A *trace* is an event that nobody receives: each broker says what it would have done with it, asks
the neighbours it would have sent it to, and answers for all beyond once they have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeAlias

from palio.errors import InvalidInput, NotPermitted
from palio.language.parsing import parse_filter
from palio.model.events import rows, stamped, to_batch
from palio.node.authority import narrow
from palio.node.core import Core
from palio.node.messages import Answer, Fact, Parcel, Probe, Probed
from palio.node.publishing import Publishing, check_numbered
from palio.node.sessions import Durable, Neighbour, Session, Subscription
from palio.routing.protocol import Events, Peer

__all__ = ["Questions"]


CATALOGUE_ROWS: Final = 10_000
"""Subscriptions of one answer..."""

CATALOGUE_BYTES: Final = 1 << 20
"""...and characters of their filters, unless a single one has more."""

_Listed: TypeAlias = tuple[str, str, Mapping[str, Any]]
"""Owner, filter with what its owner may hear, and values of a subscription."""


class _Open:
    """A probe that waits for the answers of neighbours."""

    __slots__ = ("answer_to", "hops", "id", "waiting")

    def __init__(self, answer_to: Session | Neighbour, id: int) -> None:
        self.answer_to = answer_to
        self.id = id
        self.hops: list[dict[str, Any]] = []
        self.waiting: dict[str, None] = {}


class Questions:
    """Answers of one broker."""

    def __init__(self, core: Core, publishing: Publishing) -> None:
        self._core = core
        self._publishing = publishing
        self._open: dict[int, _Open] = {}
        self._next_probe = 1

    def ask(self, session: Session, id: int, what: str, about: Any) -> None:
        """A client asks."""
        core = self._core
        match what:
            case "status":
                session.say(core.out, Answer(id, self.status()))
            case "topology":
                session.say(core.out, Answer(id, self.topology()))
            case "catalogue":
                session.say(core.out, Answer(id, self.catalogue(session, about)))
            case "trace" if isinstance(about, Mapping):
                batch = stamped(to_batch(about), 0, core.at.wall_us)
                name = f"$probe/{core.name}/{self._next_probe}"
                self._probe(session, id, Parcel(name, batch), ())
            case _:
                raise InvalidInput(
                    f"nobody can answer {what!r}; ask for status, topology, catalogue or trace "
                    "(with an event)"
                )

    # --- about this broker ---

    def status(self) -> dict[str, Any]:
        """Counts, by name."""
        core = self._core
        custody = core.durability.custody
        return {
            "broker": core.name,
            "epoch": core.durability.epoch,
            "sessions": len(core.sessions),
            "connected": sum(each.link is not None for each in core.sessions.values()),
            "subscriptions": sum(len(each.subscriptions) for each in core.sessions.values()),
            "durable_subscriptions": len(core.durability.here),
            "peers": {
                name: {
                    "up": each.link is not None,
                    "queued_bytes": each.queued_bytes,
                    "unseen_bytes": each.stream.unseen_bytes,
                    "dropped": each.dropped,
                }
                for name, each in core.neighbours.items()
            },
            "published": self._publishing.published,
            "routed": self._publishing.routed,
            "delivered": self._publishing.delivered,
            "dropped": sum(each.dropped for each in core.sessions.values()),
            "queued_bytes": core.budget.used,
            "custody_entries": custody.held,
            "custody_waiting": {name: custody.line(name) for name in core.durability.here},
        }

    def topology(self) -> dict[str, Any]:
        """All brokers that were heard of, their links, and where durable subscriptions live."""
        registry = self._core.durability.registry
        durable: dict[str, list[str]] = {}
        for fact in registry.facts():
            if _lives(fact):
                durable.setdefault(fact.origin, []).append(fact.subject)
        return {
            "asked": self._core.name,
            "brokers": {
                name: {
                    "links": list(registry.links(name)),
                    "reachable": name == self._core.name or registry.next_hop(name) is not None,
                    "durable_subscriptions": sorted(durable.get(name, [])),
                }
                for name in registry.brokers
            },
        }

    def catalogue(self, session: Session, about: Any = None) -> dict[str, Any]:
        """The subscriptions of this broker's clients, a page at a time, in the order of their ids.

        Whoever may hear everything is told of all, and others with `{"own": True}` of theirs. If
        there are more, `next` is their first id: ask again with `{"from": next}`.
        """
        wanted = dict(about) if isinstance(about, Mapping) else {}
        is_own, start = bool(wanted.get("own")), str(wanted.get("from", ""))
        if not is_own and not session.principal.hears_all:
            raise NotPermitted(
                f"{session.principal.name!r} may not hear everything, and so not be told what "
                "others hear; ask for its own subscriptions, with {'own': True}"
            )
        listed = self._listed(session.owner if is_own else "")
        page: list[dict[str, Any]] = []
        size = 0
        for id in sorted(each for each in listed if each >= start):
            owner, filter, values = listed[id]()
            size += len(filter)
            if page and (size > CATALOGUE_BYTES or len(page) == CATALOGUE_ROWS):
                return {"subscriptions": page, "next": id}
            said = {"subscriber": owner, "filter": filter, "parameters": dict(values)}
            page.append({"id": id, **said})
        return {"subscriptions": page, "next": ""}

    def _listed(self, owner: str) -> dict[str, Callable[[], _Listed]]:
        """What is said of each subscription, as this broker runs it; without an owner, of all."""
        found: dict[str, Callable[[], _Listed]] = {}
        for session in self._core.sessions.values():
            for key, each in session.subscriptions.items():
                if not each.durable and owner in ("", session.owner):
                    found[f"{session.owner}/{session.id}/{key}"] = partial(_live, session, each)
        for durable in self._core.durability.here.values():
            if owner in ("", durable.owner):
                found[durable.subject] = partial(_durable, durable)
        return found

    # --- traces ---

    def probe(self, neighbour: Neighbour, message: Probe) -> None:
        """A neighbour asks what would become of an event here and beyond."""
        check_numbered(neighbour, message.parcel)
        self._probe(neighbour, message.id, message.parcel, message.path)

    def _probe(
        self, asker: Session | Neighbour, id: int, parcel: Parcel, path: tuple[str, ...]
    ) -> None:
        core = self._core
        mine = self._next_probe
        self._next_probe += 1
        state = self._open[mine] = _Open(asker, id)
        here = (*path, core.name)
        hop: dict[str, Any] = {"broker": core.name, "path": list(here)}
        hop |= {name: [] for name in ("sessions", "matched", "forwards", "durable", "kept_for")}
        events = Events(parcel.publisher, [0], batch=parcel.batch)
        sender = core.outlet(asker) if isinstance(asker, Session) else asker.peer
        for peer in core.router.route(sender, events):
            self._would_send(peer, hop, state, Probe(mine, parcel, here))
        if not path:
            hop["durable"] = sorted(core.durability.homes(parcel))
            hop["kept_for"] = self._keepers(_event(parcel)) if hop["durable"] else []
        state.hops.append(hop)
        self._conclude(mine)

    def _would_send(self, peer: Peer, hop: dict[str, Any], state: _Open, message: Probe) -> None:
        core = self._core
        if peer.is_client:
            place = core.by_peer.get(peer)
            if place is not None:
                hop["sessions"].append(place[0].owner)
                hop["matched"] += _matched(*place, _event(message.parcel))
            return
        neighbour = core.neighbours.get(peer.name)
        if neighbour is not None:
            hop["forwards"].append(peer.name)
            state.waiting[peer.name] = None
            neighbour.say(core.out, message)

    def _keepers(self, event: Mapping[str, Any]) -> list[str]:
        """The durable subscriptions of the network that an event matches."""
        found = []
        for fact in self._core.durability.registry.facts():
            with suppress(InvalidInput):  # of a later version of the language
                if _lives(fact) and parse_filter(fact.filter).matches(event):
                    found.append(fact.subject)
        return sorted(found)

    def probed(self, neighbour: Neighbour, message: Probed) -> None:
        """A neighbour answers for itself and all beyond."""
        state = self._open.get(message.id)
        if state is not None and neighbour.name in state.waiting:
            del state.waiting[neighbour.name]
            state.hops += message.hops
            self._conclude(message.id)

    def lost(self, neighbour: Neighbour) -> None:
        """A neighbour is gone: it answers nothing."""
        for mine, state in list(self._open.items()):
            if neighbour.name in state.waiting:
                del state.waiting[neighbour.name]
                state.hops.append({"broker": neighbour.name, "unreachable": True})
                self._conclude(mine)

    def _conclude(self, mine: int) -> None:
        state = self._open[mine]
        if state.waiting:
            return
        del self._open[mine]
        asker, out = state.answer_to, self._core.out
        if isinstance(asker, Session):
            asker.say(out, Answer(state.id, {"hops": state.hops}))
        else:
            asker.say(out, Probed(state.id, tuple(state.hops)))


def _live(session: Session, each: Subscription) -> _Listed:
    filter = narrow(each.filter, each.values, session.principal)
    return session.owner, str(filter), each.values


def _durable(each: Durable) -> _Listed:
    return each.owner, str(each.filter), each.values


def _lives(fact: Fact) -> bool:
    """Whether a fact is about a durable subscription that lives at its origin."""
    return bool(fact.filter) and not fact.links


def _event(parcel: Parcel) -> dict[str, Any]:
    return next(rows(parcel.batch))


def _matched(session: Session, key: int, event: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The subscriptions of a session that an event matches; `key` is that of a durable one."""
    return [
        {
            "subscriber": session.owner,
            "filter": str(each.filter),
            "parameters": dict(each.values),
            "durable": each.durable,
        }
        for number, each in session.subscriptions.items()
        if (number == key if key >= 0 else not each.durable)
        and each.filter.matches(event, each.values)
    ]
