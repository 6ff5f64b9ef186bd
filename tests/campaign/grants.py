"""What clients of the campaign may hear and publish, where they need a grant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from palio.language.parsing import parse_filter
from palio.model.filters import TRUE, Filter
from palio.node.authority import NamedAuthority, Principal
from palio.simulation.doors import Doors
from tests.campaign.operators import OPERATOR

__all__ = ["MAY_HEAR", "MAY_PUBLISH", "TEAM", "doors_with"]

TEAM: Final = "team"
"""The identity under which several clients act."""

MAY_HEAR: Final[Filter] = parse_filter("x < 4")
MAY_PUBLISH: Final[Filter] = parse_filter("kind < 2")


class _Anyone(NamedAuthority):
    """Whoever shows a certificate is let in: the campaign's brokers and clients have one each."""

    def __init__(self, brokers: Mapping[str, Principal]) -> None:
        super().__init__(brokers)
        self._known = dict(brokers)

    def authenticate(self, token: str, transport_name: str, at: object) -> Principal:  # noqa: ARG002  # certificates only
        return self._known.setdefault(
            transport_name,
            Principal(transport_name, TRUE, TRUE)
            if transport_name.startswith(OPERATOR)
            else Principal(transport_name, MAY_PUBLISH, MAY_HEAR, identities=frozenset({TEAM})),
        )

    def check(self, principal: Principal, at: object) -> None:
        """Nobody is struck off."""


def doors_with(brokers: tuple[str, ...]) -> Doors:
    """Brokers and operators may do everything, clients what is granted here.

    >>> door = doors_with(("b1",)).authority("b1")
    >>> from palio.node.effects import Moment
    >>> print(door.authenticate("", "alice", Moment(0.0, 0)).may_hear)
    x < 4
    """
    all_granted = {name: Principal(name, TRUE, TRUE, may_link=True) for name in brokers}
    return Doors(lambda _: _Anyone(all_granted), certificates=True)
