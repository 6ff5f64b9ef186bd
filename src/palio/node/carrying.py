"""`Carrying`: handles durable events, and their acks, that come over a link.

A message for another broker is forwarded to the next hop; one for this broker is handed to
`DurableEvents`. Brokers between origin and home store nothing: the origin retransmits losses.
"""

from __future__ import annotations

import msgspec

from palio.errors import IllegalMessage
from palio.model.masks import pack_mask
from palio.node.authority import publishable
from palio.node.core import Core
from palio.node.limits import AHEAD_US, SHOWN_CHARS
from palio.node.loss_markers import LossMarker
from palio.node.sessions import Neighbour
from palio.node.streams import UNREAD, without
from palio.protocol.legal_parcels import check_numbered
from palio.protocol.messages import Carry, EntriesStored, Parcel


class Carrying:
    """One broker on the paths of durable events."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def carry(self, neighbour: Neighbour, message: Carry) -> None:
        """Forward an entry, or store it if this broker is its home."""
        core = self._core
        if not self._are_known(neighbour, message.origin, message.home):
            return
        if any(share.number > core.at.wall_us + AHEAD_US for share in message.shares):
            raise IllegalMessage(neighbour.name, "a claim that its owner could not supersede")
        message = self._permitted(neighbour, message)
        if message.home != core.name:
            core.send_towards(message.home, message, neighbour.name)
        else:
            matched = core.durability.history.carried(self._match_unparsed(message))
            core.perform(core.durability.events.carry(core.at.now, core.at.wall_us, matched))

    def stored(self, neighbour: Neighbour, message: EntriesStored) -> None:
        """Forward the ack of a home, or apply it if this broker is the origin."""
        core = self._core
        if not self._are_known(neighbour, message.origin, message.home):
            return
        if message.origin != core.name:
            core.send_towards(message.origin, message, neighbour.name)
        else:
            core.perform(core.durability.events.has_stored(core.at.now, message))

    def admitted(self, neighbour: Neighbour, parcel: Parcel) -> Parcel:
        """Return the live events that the neighbour may bring here."""
        mask = publishable(neighbour.principal, parcel)
        self._warn_denied(neighbour, parcel, len(mask) - int(mask.sum()))
        return parcel.select(mask)

    def _permitted(self, neighbour: Neighbour, message: Carry) -> Carry:
        """Return an entry without events that the neighbour may not publish. It is forwarded even
        without any: the home accepts the entries behind it only after this one (D1).
        """
        parcel = message.parcel
        try:
            marker = LossMarker.of(parcel)
        except ValueError as error:
            raise IllegalMessage(neighbour.name, str(error)) from None
        principal = neighbour.principal
        if marker is not None and principal.publishes_something:
            self._core.warn("loss_reported", neighbour.name, 1, homes=[message.home])
            if principal.publishes_all:
                return message
            return msgspec.structs.replace(message, parcel=marker.anonymous.parcel)
        if not len(parcel):  # a grant on the path left no event of it
            return msgspec.structs.replace(message, shares=())
        check_numbered(neighbour.name, parcel)
        for share in message.shares:
            if share.rows and len(share.rows) != (len(parcel) + 7) // 8:
                reason = f"rows for {share.subject!r:.80} that are not those of the entry"
                raise IllegalMessage(neighbour.name, reason)
        if principal.publishes_all:
            return message
        mask = publishable(principal, parcel)
        self._warn_denied(neighbour, parcel, len(mask) - int(mask.sum()))
        return without(message, mask)

    def _match_unparsed(self, message: Carry) -> Carry:
        """Match the events for shares whose filters the origin could not parse."""
        if not any(share.rows == UNREAD for share in message.shares):
            return message
        durability, shares = self._core.durability, []
        wanted = durability.interests.wanted(message.parcel)
        for share in message.shares:
            if share.rows != UNREAD or share.subject not in durability.here:
                shares.append(share)
            elif share.subject in wanted:
                shares.append(share._replace(rows=pack_mask(wanted[share.subject])))
        return msgspec.structs.replace(message, shares=tuple(shares))

    def _warn_denied(self, neighbour: Neighbour, parcel: Parcel, denied: int) -> None:
        if denied:
            self._core.warn("grant_exceeded", neighbour.name, denied, publisher=parcel.publisher)

    def _are_known(self, neighbour: Neighbour, *brokers: str) -> bool:
        """Return whether these brokers are known here. Facts of a new one may arrive late: then
        the message is dropped, and its origin retransmits.
        """
        cluster_state = self._core.durability.cluster_state
        unknown = [broker for broker in brokers if not cluster_state.knows(broker)]
        if unknown:
            named = [name[:SHOWN_CHARS] for name in unknown]
            self._core.warn("broker_unknown", neighbour.name, len(unknown), brokers=named)
        return not unknown
