"""`Seeking`: finds out whether any publisher advertises events that a filter matches.

The broker that is asked answers from its advertisements. With some algorithms it has not all of
them (`Router.sources`); then it asks the broker above, which may ask further.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from palio.errors import IllegalMessage, InvalidInput, NotPermitted, NotSupported, PalioError
from palio.language.parsing import parse
from palio.model.filters import Filter
from palio.node.authority import narrow
from palio.node.core import Core
from palio.node.limits import MAX_PROBES
from palio.node.sessions import Neighbour, Session
from palio.protocol.messages import Answer, Seek, Sought
from palio.routing.protocol import Peer


class _Open(NamedTuple):
    """A query that a peer has yet to answer."""

    asker: Session | Neighbour
    id: int
    asked: str


class Seeking:
    """The open queries of one broker. Without an answer it assumes that there is a source."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._open: dict[int, _Open] = {}
        self._next = 1

    def query(self, session: Session, id: int, about: Mapping[str, Any]) -> None:
        """Serve a client's query: a filter with its values, narrowed to the client's grant."""
        if not self._core.router.takes_advertisements:
            raise NotSupported(
                "this broker's routing has no advertisements, so it cannot find sources"
            )
        self._seek(session, id, filter_of_query(session, about))

    def receive_seek(self, neighbour: Neighbour, message: Seek) -> None:
        """Serve a peer's query, narrowed to the peer's grant."""
        if message.filter.variables:
            raise IllegalMessage(neighbour.name, "a Seek with a parameter that has no value")
        try:
            narrowed = narrow(message.filter, {}, neighbour.principal)
        except PalioError as error:  # nothing of it is granted, or it is too long when narrowed
            is_possible = not isinstance(error, NotPermitted)
            neighbour.send(self._core.out, Sought(message.id, is_possible))
        else:
            self._seek(neighbour, message.id, narrowed)

    def receive_sought(self, neighbour: Neighbour, message: Sought) -> None:
        """Handle a peer's answer."""
        query = self._open.get(message.id)
        if query is not None and query.asked == neighbour.name:
            self._answer(message.id, has_source=message.has_source)

    def peer_down(self, neighbour: Neighbour) -> None:
        """Answer the queries that a lost peer had yet to answer."""
        for mine in [mine for mine, query in self._open.items() if query.asked == neighbour.name]:
            self._answer(mine, has_source=True)

    def _seek(self, asker: Session | Neighbour, id: int, filter: Filter) -> None:
        core, mine = self._core, self._next
        self._next += 1
        if len(self._open) >= MAX_PROBES:
            self._answer(next(iter(self._open)), has_source=True)
        sources = core.router.sources(filter)
        above = core.neighbours.get(sources.name) if isinstance(sources, Peer) else None
        self._open[mine] = _Open(asker, id, "" if above is None else above.name)
        if above is not None and above is not asker:
            above.send(core.out, Seek(mine, filter))
        else:
            self._answer(mine, has_source=sources is True)

    def _answer(self, mine: int, *, has_source: bool) -> None:
        asker, id, _ = self._open.pop(mine)
        if isinstance(asker, Session):
            asker.send(self._core.out, Answer(id, has_source))
        else:
            asker.send(self._core.out, Sought(id, has_source))


def filter_of_query(session: Session, about: Mapping[str, Any]) -> Filter:
    """Return the filter of a client's query with its values, narrowed to the client's grant."""
    filter, values = parse(str(about.get("filter"))), about.get("values")
    if not isinstance(filter, Filter) or not isinstance(values, Mapping):
        raise InvalidInput("the query takes a filter, with the values of its parameters")
    return narrow(filter, values, session.principal).bind(values)
