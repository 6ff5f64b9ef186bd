"""How many nodes a search visits at most on average: gryphon 3's theorem, as numbers.

The setting is the paper's: the equality version with a level for each of K attributes, V values
each, events whose attributes are independent, any set of N subscriptions. A node is visited with
the probability of the values on its path: V**-i for i of them if all values are equally likely.
There are comb(d, i) * V**i such nodes at depth d, and at most N nodes at a depth. So the worst set
has the likeliest nodes, and no set makes a search visit more than these. With other events the same
holds, but the nodes of a depth differ in more than the number of their values.

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

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from math import comb, log, prod


def visits_at_most(attributes: int, values: int | Sequence[float], subscriptions: int) -> float:
    """The most nodes, leaves included, that a search visits on average over all events: of so many
    equally likely values, or of values with these probabilities.

    >>> visits_at_most(3, 2, 1), visits_at_most(3, 2, 3**3)
    (4.0, 15.0)
    >>> visits_at_most(3, [0.5, 0.5], 7) == visits_at_most(3, 2, 7)
    True
    """
    likely = Counter([1 / values] * values if isinstance(values, int) else values)
    visits = 0.0
    for depth in range(attributes + 1):
        left = subscriptions
        for probability, count in _likeliest(depth, sorted(likely.items(), reverse=True)):
            nodes = min(left, count)
            visits += nodes * probability
            left -= nodes
            if not left:
                break
    return visits


def _likeliest(depth: int, values: list[tuple[float, int]]) -> Iterator[tuple[float, int]]:
    """The nodes that may be at a depth, the likeliest first, as (probability, how many).

    `values` are probabilities and how many values have each. A node is known by how often its path
    takes a value of each probability; moving one edge to the next lower one makes it less likely.
    """
    chances = [1.0, *(chance for chance, _ in values)]
    widths = [1, *(width for _, width in values)]
    first = (depth, *[0] * len(values))
    heap, seen = [(-1.0, first)], {first}
    while heap:
        negated, taken = heappop(heap)
        left, count = depth, 1
        for times, width in zip(taken, widths, strict=True):
            count *= comb(left, times) * width**times
            left -= times
        yield -negated, count
        for place in range(len(taken) - 1):
            if taken[place]:
                moved = list(taken)
                moved[place] -= 1
                moved[place + 1] += 1
                found = tuple(moved)
                if found not in seen:
                    seen.add(found)
                    probability = prod(map(pow, chances, found))
                    heappush(heap, (-probability, found))


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
