"""`Seeking`: does anybody offer what a filter wants?

The broker that is asked answers from the advertisements that it has. By some algorithms those are
not all (`Router.sources`), and it asks the broker above, which may ask further.
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
    """A question that a neighbour has yet to answer."""

    asker: Session | Neighbour
    id: int
    asked: str


class Seeking:
    """The questions of one broker that are open. Where nobody answers, there may be a
    source.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._open: dict[int, _Open] = {}
        self._next = 1

    def query(self, session: Session, id: int, about: Mapping[str, Any]) -> None:
        """A client asks: of a filter with its values, as far as it may receive that."""
        if not self._core.router.takes_advertisements:
            raise NotSupported(
                "by this broker's routing nobody says what will be published, so that nobody "
                "knows whether there is a source"
            )
        what, values = parse(str(about.get("filter"))), about.get("values")
        if not isinstance(what, Filter) or not isinstance(values, Mapping):
            raise InvalidInput("sources are sought for a filter, with the values of its parameters")
        self._seek(session, id, narrow(what, values, session.principal).bind(values))

    def receive_seek(self, neighbour: Neighbour, message: Seek) -> None:
        """A neighbour asks, as far as it may receive that."""
        if message.filter.variables:
            raise IllegalMessage(neighbour.name, "a Seek with a parameter that has no value")
        try:
            narrowed = narrow(message.filter, {}, neighbour.principal)
        except PalioError as error:  # it may receive nothing of it, or that is too long to say
            is_possible = not isinstance(error, NotPermitted)
            neighbour.say(self._core.out, Sought(message.id, is_possible))
        else:
            self._seek(neighbour, message.id, narrowed)

    def receive_sought(self, neighbour: Neighbour, message: Sought) -> None:
        """A neighbour answers."""
        known = self._open.get(message.id)
        if known is not None and known.asked == neighbour.name:
            self._answer(message.id, has_source=message.has_source)

    def peer_down(self, neighbour: Neighbour) -> None:
        """A neighbour is gone, and answers nothing."""
        for mine in [mine for mine, each in self._open.items() if each.asked == neighbour.name]:
            self._answer(mine, has_source=True)

    def _seek(self, asker: Session | Neighbour, id: int, filter: Filter) -> None:
        core, mine = self._core, self._next
        self._next += 1
        if len(self._open) >= MAX_PROBES:
            self._answer(next(iter(self._open)), has_source=True)
        found = core.router.sources(filter)
        above = core.neighbours.get(found.name) if isinstance(found, Peer) else None
        self._open[mine] = _Open(asker, id, "" if above is None else above.name)
        if above is not None and above is not asker:
            above.say(core.out, Seek(mine, filter))
        else:
            self._answer(mine, has_source=found is True)

    def _answer(self, mine: int, *, has_source: bool) -> None:
        asker, id, _ = self._open.pop(mine)
        if isinstance(asker, Session):
            asker.say(self._core.out, Answer(id, has_source))
        else:
            asker.say(self._core.out, Sought(id, has_source))
