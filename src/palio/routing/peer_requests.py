"""`Ledger`: the requests of each peer by key, and the requests to neighbours that follow from them.

The ledger applies requests to the table of `forwarding` and to the selector, and turns the changes
of the table into requests again. It applies a batch in two steps, so that an illegal one changes
nothing: `plan` checks and binds everything, and in `apply` only the selector may refuse.

siena's rules within one identity hold for clients: a subscription replaces those of the same client
that it covers, and is dropped if one of them covers it. The rules apply to subscriptions without
variables. A parametric one may cover another today and not tomorrow, so those stay separate.
Brokers only send filters that nothing else they sent covers, so the rules would not change
anything for them.

A broker's filter that this one cannot evaluate counts as TRUE, so that the broker receives too much
rather than too little. Either its text could not be parsed here (`UnreadFilter`), then its
`Update`s are ignored; or the selector takes no more filters of its kind (`MAX_SCANS`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, TypeAlias

from palio.errors import InvalidInput, LimitExceeded
from palio.model.events import RowMask
from palio.model.filters import TRUE, Filter, UnreadFilter
from palio.model.limits import MAX_COMPARISONS, Effort
from palio.model.masks import ONE_ROW
from palio.model.relations import overlaps
from palio.model.values import NO_VALUES, Bindings
from palio.routing.forwarding import Aim, FilterDelta, Forwarding
from palio.routing.messages import (
    Advertise,
    Cancel,
    Request,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Update,
    Withdraw,
)
from palio.routing.normalized import Stated
from palio.routing.parameters import bound, changes, lift, refilled
from palio.routing.poset import ADVERTISEMENTS, SUBSCRIPTIONS, Poset
from palio.routing.protocol import IllegalMessage, Peer, Role, Routes, Selector

MOST_OVERLAPS: Final = 4 * MAX_COMPARISONS
"""Effort of a search for an advertisement that overlaps a filter: 10 to 30 ms, enough for some
1,000 advertisements."""

COMPARISON_OVERHEAD: Final = 64
"""The fixed cost of comparing one advertisement, in comparisons."""

_NONE: Final[dict[str, Any]] = {}
"""The values of all requests without variables, shared; never changed."""


class PeerRequest:
    """One key of one peer: a filter, the values of its variables, and both together (`bound`).

    For an advertisement, which has no variables, `filter` and `bound` are the advertisement.
    """

    __slots__ = (
        "bound",
        "filter",
        "handle",
        "is_lifted",
        "is_true_here",
        "key",
        "peer",
        "values",
        "version",
    )

    def __init__(
        self, peer: Peer, key: int, filter: Stated, values: Bindings, bound: Stated
    ) -> None:
        self.peer = peer
        self.key = key
        self.filter = filter
        self.values = dict(values) if values else _NONE
        self.bound = bound
        self.version = 0  # of the last update: an older one that arrives later is dropped
        self.handle = -1  # the selector's key: keys of peers may be equal
        self.is_lifted = False
        self.is_true_here = False
        """True if the selector has TRUE instead of the filter, which it refused."""


class Put(NamedTuple):
    """Add or replace the filter of a key."""

    key: int
    filter: Stated
    values: Bindings
    bound: Stated


class PutValues(NamedTuple):
    """Change values of a key's filter."""

    key: int
    values: Bindings
    version: int
    bound: Filter


class Drop(NamedTuple):
    """End a key."""

    key: int


class DropCovered(NamedTuple):
    """End every key whose filter is covered."""

    bound: Stated


def _never(_general: Stated, _specific: Stated) -> bool:
    """The relation of a table without covering."""
    return False


Step: TypeAlias = Put | PutValues | Drop | DropCovered

_OWN: Final[dict[bool, frozenset[type]]] = {
    False: frozenset((Subscribe, Update, Unsubscribe, Cancel)),
    True: frozenset((Advertise, Unadvertise, Withdraw)),
}


class Ledger:
    """The subscriptions of all peers, or (with `advertising`) their advertisements.

    Without `covering` neighbours are sent all filters. Without `parametric` changes are sent as in
    siena, by SUB and USUB only: the baseline for parametric subscriptions.
    """

    def __init__(
        self,
        selector: Selector | None = None,
        *,
        advertising: bool = False,
        aim: Aim | None = None,
        covering: bool = True,
        parametric: bool = True,
    ) -> None:
        self._relation = ADVERTISEMENTS if advertising else SUBSCRIPTIONS
        self.table = Forwarding(self._relation if covering else _never, aim)
        self.entries: dict[Peer, dict[int, PeerRequest]] = {}
        self._selector = selector
        self._advertising = advertising
        self._kinds = _OWN[advertising]
        self._parametric = parametric
        # By client, its filters without variables, to which siena's rules apply, and their keys.
        self._own: dict[Peer, tuple[Poset, dict[Stated, int]]] = {}
        self._numbers: dict[Peer, int] = {}
        self._peers: dict[int, Peer] = {}
        self._by_handle: dict[int, PeerRequest] = {}  # by the selector's keys
        self._next_handle = 0
        self._next_number = 0
        self._sent_keys: dict[Peer, dict[Stated, int]] = {}
        self._versions: dict[Peer, dict[int, int]] = {}
        self._next_key: dict[Peer, int] = {}

    # --- peers ---

    def add_peer(self, peer: Peer) -> None:
        """Add a peer that may send requests."""
        self.entries[peer] = {}
        self._numbers[peer] = self._next_number
        self._peers[self._next_number] = peer
        self._next_number += 1
        # A session's subscriptions are identities of their own, and brokers have covered theirs.
        if peer.role is Role.CLIENT:
            self._own[peer] = (Poset(self._relation), {})

    def add_neighbour(self, neighbour: Peer) -> None:
        """Add a peer that is to be sent the requests of others."""
        self.table.connect(neighbour)
        # Keys on a link are this broker's own: its summary has filters of many peers' keys.
        self._sent_keys[neighbour] = {}
        self._versions[neighbour] = {}
        self._next_key[neighbour] = 0

    def remove_peer(self, peer: Peer) -> None:
        """Forget a peer and all its requests."""
        self.table.disconnect(peer)
        self.forget(peer)
        for by_peer in (self.entries, self._own, self._sent_keys, self._versions, self._next_key):
            by_peer.pop(peer, None)
        del self._peers[self._numbers.pop(peer)]

    def forget(self, peer: Peer) -> None:
        """Drop all requests of a peer; it stays."""
        for key in list(self.entries[peer]):
            self._drop(peer, key)

    def peer_of(self, destination: int) -> Peer:
        """Return the peer behind a destination of the selector."""
        return self._peers[destination]

    def routes(self, handles: Iterable[int], *, is_named: bool = True) -> dict[Peer, RowMask]:
        """Return the destinations of an event by its matches in the selector. With `is_named` they
        name the matching requests of sessions.
        """
        routes, by_handle = Routes(), self._by_handle
        if not is_named:
            return dict.fromkeys([by_handle[handle].peer for handle in handles], ONE_ROW)
        for handle in handles:
            entry = by_handle[handle]
            routes.add(entry.peer, entry.key)
        return routes

    def offers(self, filter: Filter) -> bool:
        """Return whether an advertisement overlaps a filter; also if the search takes too long."""
        effort = Effort(MOST_OVERLAPS)
        return any(
            not effort.spend(COMPARISON_OVERHEAD) or overlaps(advertisement, filter, effort=effort)
            for advertisement in self.table.nodes
        )

    # --- reading requests ---

    def handles(self, request: Request) -> bool:
        """Return whether a request is for this ledger rather than for the other one."""
        return type(request) in self._kinds

    def relevant(self, requests: Iterable[Request]) -> list[Request]:
        """Select the requests that are for this ledger rather than for the other one."""
        kinds = self._kinds
        return [request for request in requests if type(request) in kinds]

    def apply_requests(self, peer: Peer, requests: Iterable[Request], *, fresh: bool) -> None:
        """Apply requests of a peer; `fresh` ones replace all earlier ones. An illegal one raises
        `IllegalMessage` and changes nothing.
        """
        steps = self.plan(peer, requests, fresh=fresh)
        if fresh:
            self.forget(peer)
        self.apply(peer, steps)

    def plan(self, peer: Peer, requests: Iterable[Request], *, fresh: bool = False) -> list[Step]:
        """Check requests and bind their filters. Raises `IllegalMessage`; changes nothing."""
        # The state of keys as the steps so far leave them: later requests may update these.
        planned: dict[int, tuple[Filter, Bindings, Filter] | None] = {}
        if fresh:
            planned = dict.fromkeys(self.entries[peer])
        steps: list[Step] = []
        for request in requests:
            try:
                step = self._plan(peer, request, planned)
            except InvalidInput as error:
                raise IllegalMessage(peer, f"{type(request).__name__}: {error}") from None
            if step is not None:
                steps.append(step)
        return steps

    def _plan(
        self,
        peer: Peer,
        request: Request,
        planned: dict[int, tuple[Filter, Bindings, Filter] | None],
    ) -> Step | None:
        match request:
            case Update(key, values, version):  # the first: it is the most frequent
                if not self._parametric:
                    raise IllegalMessage(peer, "this broker supports no Update; subscribe again")
                replaced = self._planned_update(peer, request, planned)
                return None if replaced is None else PutValues(key, values, version, replaced)
            case Subscribe(key, filter, values):
                values = NO_VALUES if isinstance(filter, UnreadFilter) else values
                filled = bound(filter, values)
                planned[key] = (filter, values, filled)
                return Put(key, filter, values, filled)
            case Advertise(key, advertisement):
                return Put(key, advertisement, NO_VALUES, advertisement)
            case Unsubscribe(key) | Unadvertise(key):
                planned[key] = None
                return Drop(key)
            case Cancel(filter, values):
                if not peer.is_client:
                    raise IllegalMessage(peer, "Cancel is for clients; a broker names keys")
                return DropCovered(filter.bind(values))
            case Withdraw(advertisement):
                if not peer.is_client:
                    raise IllegalMessage(peer, "Withdraw is for clients; a broker names keys")
                return DropCovered(advertisement)

    def _planned_update(
        self,
        peer: Peer,
        update: Update,
        planned: dict[int, tuple[Filter, Bindings, Filter] | None],
    ) -> Filter | None:
        """Return the filter after an update; None if it stays TRUE."""
        if update.key in planned:
            state = planned[update.key]
        else:
            entry = self.entries[peer].get(update.key)
            state = None if entry is None else (entry.filter, entry.values, entry.bound)
        if state is None:
            raise IllegalMessage(peer, f"Update of key {update.key}, which is not subscribed")
        filter, values, filled = state
        if filled == TRUE and not peer.is_client:
            return None  # some broker on the path, or this one, could not read it
        replaced: Filter | None = None
        if not filter.variables:
            replaced = refilled(filled, update.values)
        elif update.values.keys() <= filter.variables:
            values = {**values, **update.values}
            replaced = bound(filter, values)
        if replaced is None:
            names = filter.variables or lift(filled).names.keys()
            name = next(name for name in update.values if name not in names)
            raise IllegalMessage(peer, f"Update of key {update.key}: it has no :{name}")
        planned[update.key] = (filter if filter.variables else replaced, values, replaced)
        return replaced

    def apply(self, peer: Peer, steps: Iterable[Step]) -> None:
        """Apply planned steps, each one whole or, if the selector refuses it, not at all."""
        for step in steps:
            match step:
                case PutValues():
                    self._update(peer, step)
                case Put():
                    self._put(peer, step)
                case Drop(key):
                    self._drop(peer, key)
                case DropCovered(bound):
                    self._drop_covered(peer, bound)

    def _put(self, peer: Peer, step: Put) -> None:
        entry = PeerRequest(peer, step.key, step.filter, step.values, step.bound)
        self._select(entry)  # first, as it may be refused: the key keeps its filter then
        self._drop(peer, step.key)
        own = self._own.get(peer)
        if own is not None and not step.filter.variables:
            poset, keys = own
            if step.bound in poset or next(poset.coverers(step.bound), None) is not None:
                self._deselect(entry)  # the client receives the events by the wider one
                return
            for narrower in list(poset.covered(step.bound)):
                self._drop(peer, keys[narrower])
            poset.add(step.bound)
            keys[step.bound] = step.key
        self.entries[peer][step.key] = entry
        self.table.add(peer, step.bound)

    def _select(self, entry: PeerRequest) -> None:
        """Add a request to the selector, before anything else changes, as the selector may refuse
        it (`MAX_SCANS`).
        """
        if self._selector is None:
            return
        entry.handle = self._next_handle
        destination = self._numbers[entry.peer]
        try:
            self._selector.add(entry.handle, entry.filter, entry.values, destination)
        except LimitExceeded:
            if entry.peer.is_client:
                raise
            self._add_true(self._selector, entry)
        self._next_handle += 1
        self._by_handle[entry.handle] = entry

    def _deselect(self, entry: PeerRequest) -> None:
        if self._selector is not None:
            self._selector.remove(entry.handle)
            del self._by_handle[entry.handle]

    def _update(self, peer: Peer, step: PutValues) -> None:
        entry = self.entries[peer].get(step.key)
        if entry is None or step.version <= entry.version:
            return  # a wider subscription of the batch replaced it, or a later update came first
        if peer in self._own and not entry.filter.variables:
            # siena's rules apply to the filter that it becomes.
            self._put(peer, Put(step.key, step.bound, NO_VALUES, step.bound))
            if step.key in self.entries[peer]:
                self.entries[peer][step.key].version = step.version
            return
        if self._selector is not None and not entry.is_true_here:
            self._rebind(self._selector, entry, step)
        entry.version = step.version
        if entry.filter.variables:
            entry.values.update(step.values)
        else:
            entry.filter = step.bound
        if step.bound is not entry.bound and step.bound != entry.bound:
            # Added before the old one is removed, so that neighbours see one change, an UPD.
            self.table.add(peer, step.bound)
            self.table.remove(peer, entry.bound)
            entry.bound = step.bound

    def _rebind(self, selector: Selector, entry: PeerRequest, step: PutValues) -> None:
        """Bind other values in the selector. From its first change on, a filter's constants are
        variables there: a filter that changed once is likely to change again.
        """
        destination = self._numbers[entry.peer]
        if not entry.filter.variables and not entry.is_lifted:
            lifted = lift(entry.bound)
            selector.remove(entry.handle)
            selector.add(entry.handle, lifted.skeleton, lifted.names, destination)
            entry.is_lifted = True
        try:
            selector.bind(entry.handle, step.values, step.bound)
        except LimitExceeded:
            if entry.peer.is_client:
                raise
            selector.remove(entry.handle)
            self._add_true(selector, entry)

    def _add_true(self, selector: Selector, entry: PeerRequest) -> None:
        """Put TRUE in place of a broker's filter that the selector refuses."""
        entry.is_true_here = True
        selector.add(entry.handle, TRUE, NO_VALUES, self._numbers[entry.peer])

    def _drop(self, peer: Peer, key: int) -> None:
        entry = self.entries[peer].pop(key, None)
        if entry is None:
            return
        own = self._own.get(peer)
        if own is not None and not entry.filter.variables:
            poset, keys = own
            poset.discard(entry.bound)
            keys.pop(entry.bound, None)
        self.table.remove(peer, entry.bound)
        self._deselect(entry)

    def _drop_covered(self, peer: Peer, bound: Stated) -> None:
        for key, entry in list(self.entries[peer].items()):
            if entry.bound == bound or self._relation(bound, entry.bound):
                self._drop(peer, key)

    # --- writing requests ---

    def outgoing(self) -> dict[Peer, list[Request]]:
        """Take the requests to send to each neighbour for changes since the last call."""
        write = self._write_advertisements if self._advertising else self._write_subscriptions
        return {peer: write(peer, delta) for peer, delta in self.table.changes().items()}

    def sent_count(self, neighbour: Peer) -> int:
        """Return how many filters a neighbour has been sent."""
        return len(self._sent_keys[neighbour])

    def standing(self, neighbour: Peer) -> list[Request]:
        """List the current requests to a neighbour."""
        return [Subscribe(key, filter) for filter, key in self._sent_keys[neighbour].items()]

    def standing_of(self, peer: Peer) -> list[Request]:
        """List the current requests of a peer."""
        return [Subscribe(key, entry.bound) for key, entry in self.entries[peer].items()]

    def _write_advertisements(self, peer: Peer, delta: FilterDelta) -> list[Request]:
        keys = self._sent_keys[peer]
        dropped: list[Request] = [Unadvertise(keys.pop(offer)) for offer in delta.dropped]
        return [Advertise(self._new_key(peer, offer), offer) for offer in delta.added] + dropped

    def _write_subscriptions(self, peer: Peer, delta: FilterDelta) -> list[Request]:
        """PROPAGATE (parametric 4.3): one UPD where the structure stays, else SUB and USUB."""
        keys = self._sent_keys[peer]
        updates: list[Request] = []
        added, dropped = delta
        if self._parametric and len(added) == len(dropped) == 1:
            (old,), (new,) = dropped, added
            values = changes(old, new)
            if values is not None:
                return [self._write_update(peer, old, new, values)]
        elif self._parametric and added and dropped:
            reusable: dict[Filter, list[Filter]] = {}
            for old in dropped:
                reusable.setdefault(lift(old).skeleton, []).append(old)
            added = []
            for new in delta.added:
                olds = reusable.get(lift(new).skeleton)
                if olds:
                    old = olds.pop(0)
                    values = changes(old, new)
                    assert values is not None  # they have one skeleton
                    updates.append(self._write_update(peer, old, new, values))
                else:
                    added.append(new)
            dropped = [old for olds in reusable.values() for old in olds]
        # Filters end last, so that the neighbour never lacks one that a new one covers.
        ended: list[Request] = [Unsubscribe(keys.pop(old)) for old in dropped]
        return [*updates, *(Subscribe(self._new_key(peer, new), new) for new in added), *ended]

    def _write_update(self, peer: Peer, old: Filter, new: Filter, values: Bindings) -> Update:
        keys, versions = self._sent_keys[peer], self._versions[peer]
        key = keys[new] = keys.pop(old)
        version = versions[key] = versions.get(key, 0) + 1
        return Update(key, values, version)

    def _new_key(self, peer: Peer, filter: Stated) -> int:
        key = self._sent_keys[peer][filter] = self._next_key[peer]
        self._next_key[peer] += 1
        return key
