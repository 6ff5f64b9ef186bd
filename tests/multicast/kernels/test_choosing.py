"""The kernel that finds the group of an event, against plain Python."""

from __future__ import annotations

import numpy as np
import pytest

from palio.multicast.broker_sets import words_of
from palio.multicast.listed import ListedGroups


@pytest.mark.parametrize("brokers", [5, 64, 130])
def test_the_first_group_with_all_of_a_set_is_found(brokers: int) -> None:
    random = np.random.default_rng(brokers)
    groups = random.random((40, brokers)) < random.random((40, 1))
    groups = groups[groups.any(axis=1)]
    plan = ListedGroups("ideal", tuple(map(str, range(brokers))), words_of(groups))
    wanted = random.random((300, brokers)) < random.random((300, 1)) ** 3
    wanted[0] = False
    sends = plan.sends(words_of(wanted))
    sizes = groups.sum(axis=1)
    for row in range(300):
        able = sizes[~(wanted[row] & ~groups).any(axis=1)]
        found = sends.groups[sends.starts[row] : sends.starts[row + 1]]
        if wanted[row].any() and len(able):
            assert int(np.bitwise_count(plan.groups[found[0]]).sum()) == able.min()
        else:
            assert not len(found)
