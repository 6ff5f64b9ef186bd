"""Plans of multicast groups that the campaign applies, and whether brokers go by the newest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palio.multicast.broker_sets import numbered, rows_of
from palio.multicast.documents import pack
from palio.multicast.listed import ListedGroups
from palio.node.node import Node


def packed_plan(members: tuple[str, ...], groups: tuple[tuple[str, ...], ...]) -> str:
    """A plan with these groups of these brokers; without groups, that there is to be none.

    >>> packed_plan(("b1", "b2"), ()), len(packed_plan(("b1", "b2"), (("b1", "b2"),))) > 0
    ('', True)
    """
    if not groups:
        return ""
    return pack(ListedGroups("ideal", members, rows_of(groups, numbered(members))))


def out_of_use(nodes: Mapping[str, Node]) -> dict[str, Any]:
    """What brokers say of the plan that counts, if they do not all know and use the same.

    >>> out_of_use({})
    {}
    """
    found = {name: node.status()["multicast"] for name, node in nodes.items()}
    plans = {each["plan"]["id"] if each["plan"] else 0 for each in found.values()}
    used = {each["used"] for each in found.values()}
    return {} if used == plans and len(plans) <= 1 else found
