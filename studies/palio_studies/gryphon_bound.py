"""How many nodes a search visits at most on average: gryphon 3's theorem, as numbers.

The setting is the paper's: the equality version with a level for each of K attributes, V values
each, uniform events, any set of N subscriptions. A node is visited with the probability of the
values on its path: V**-i for i of them. There are comb(d, i) * V**i
such nodes at depth d, and at most N nodes at a depth. So the worst set has the likeliest nodes, and
no set makes a search visit more than these.

Ranges are here, not in the paper. Let each attribute have T different tests, equalities and ranges
with one end, and let none be satisfied with a probability above s. Call what a path asks of the
attributes before a node its *prefix*. A prefix with i tests is satisfied with s**i at the most, and
there are at most min(N, comb(K, i) * T**i) of them, since a subscription has one with i tests. Each
leaf is reached if its own prefix is satisfied; each node asks for a test that ends some prefix, and
is reached only if that prefix without its last test is satisfied. So the visits are at most the sum
over i of the prefixes times s**i + s**(i - 1): O(N**(1 - l)) with l = ln(1 / s) / ln(K T), which is
the paper's l if s = 1 / V and T = V. Towards s = 1 the bound goes to N and nothing better can: N
ranges that nearly all events satisfy are N matches. It is for trees whose chains are collapsed.
"""

from __future__ import annotations

from math import comb, log


def visits_at_most(attributes: int, values: int, subscriptions: int) -> float:
    """Return the most nodes, leaves included, that a search visits on average over all events.

    >>> visits_at_most(3, 2, 1), visits_at_most(3, 2, 3**3)
    (4.0, 15.0)
    """
    visits = 0.0
    for depth in range(attributes + 1):
        left = subscriptions
        for asked in range(depth + 1):
            nodes = min(left, comb(depth, asked) * values**asked)
            visits += nodes * values**-asked
            left -= nodes
    return visits


def exponent(attributes: int, values: int) -> float:
    """1 - l of the closed form O((K N)**(1 - l)), with l = ln V / (ln V + ln K).

    >>> round(exponent(30, 10), 3)
    0.596
    """
    return range_exponent(attributes, values, 1 / values)


def range_visits_at_most(
    attributes: int, tests: int, satisfied: float, subscriptions: int
) -> float:
    """The same for `tests` different equalities and one-sided ranges of each attribute, none of
    which is satisfied with a higher probability than `satisfied`.

    >>> range_visits_at_most(3, 4, 0.5, 1)
    3.625
    """
    visits = 1.0  # the leaf of a subscription without any test, or the root
    for asked in range(1, attributes + 1):
        prefixes = min(subscriptions, comb(attributes, asked) * tests**asked)
        visits += prefixes * (satisfied**asked + satisfied ** (asked - 1))
    return visits


def range_exponent(attributes: int, tests: int, satisfied: float) -> float:
    """1 - l of the closed form O(N**(1 - l)), with l = ln(1 / s) / ln(K T).

    >>> round(range_exponent(30, 200, 0.5), 3)
    0.92
    """
    return 1 - log(1 / satisfied) / log(attributes * tests)
