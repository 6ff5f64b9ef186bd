"""What clients of the campaign may receive and publish, where they need a grant."""

from __future__ import annotations

from typing import Final

from palio.language.parsing import parse_filter
from palio.model.filters import TRUE, Filter
from palio.node.authority import Principal
from palio.simulation.computers import AccessPolicy
from tests.campaign.operators import OPERATOR
from tests.node.badges import Badge, Names, broker

TEAM: Final = "team"
"""The identity under which several clients act."""

MAY_HEAR: Final[Filter] = parse_filter("x < 4")
MAY_PUBLISH: Final[Filter] = parse_filter("kind < 2")


class _Anyone(Names):
    """Whoever has a name is let in: the campaign's brokers and clients have one each."""

    def authenticate(self, token: str, transport_name: str, at: object) -> Principal:  # noqa: ARG002  # by name only
        return self.known.setdefault(
            token,
            Principal(token, TRUE, TRUE, may_operate=True)
            if token.startswith(OPERATOR)
            else Principal(token, MAY_PUBLISH, MAY_HEAR, identities=frozenset({TEAM})),
        )


def access_with(brokers: tuple[str, ...]) -> AccessPolicy:
    """Brokers and operators may do everything, clients what is granted here.

    >>> door = access_with(("b1",)).authority("b1")
    >>> from palio.node.effects import Moment
    >>> print(door.authenticate("alice", "", Moment(0.0, 0)).allow_subscribe)
    x < 4
    """
    return AccessPolicy(lambda _: _Anyone(*map(broker, brokers)), Badge, str)
