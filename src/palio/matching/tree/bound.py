"""How many nodes a search visits at most on average: gryphon 3's theorem, as numbers.

The setting is the paper's: the equality version with a level for each of K attributes, V values
each, all events equally likely, any set of N subscriptions. A node whose path has i values is
visited by one event in V**i; there are at most comb(d, i) * V**i such nodes at depth d; and there
are at most N nodes at a depth. So the worst set has the likeliest nodes, and no set makes a search
visit more than these.
"""

from __future__ import annotations

from math import comb, log

__all__ = ["exponent", "visits_at_most"]


def visits_at_most(attributes: int, values: int, subscriptions: int) -> float:
    """The most nodes, leaves included, that a search visits on average over all events.

    >>> visits_at_most(3, 2, 1), visits_at_most(3, 2, 3**3)
    (4.0, 15.0)
    """
    visits = 0.0
    for depth in range(attributes + 1):
        left = subscriptions
        for asked in range(depth + 1):
            nodes = min(left, comb(depth, asked) * values**asked)
            visits += nodes / values**asked
            left -= nodes
    return visits


def exponent(attributes: int, values: int) -> float:
    """1 - l of the closed form O((K N)**(1 - l)), with l = ln V / (ln V + ln K).

    >>> round(exponent(30, 10), 3)
    0.596
    """
    return 1 - log(values) / (log(values) + log(attributes))
