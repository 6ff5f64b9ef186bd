"""Plans in files."""

from __future__ import annotations

import json

import numpy as np
import pytest

from palio.errors import FileDamaged
from palio.multicast.broker_sets import masks_of
from palio.multicast.documents import decode, encode
from palio.multicast.plans import received
from tests.multicast.plans import every_plan, some_traffic


def test_a_plan_that_was_read_sends_as_the_one_that_was_written() -> None:
    traffic = some_traffic(1)
    plans = every_plan(traffic, groups=64)
    assert len(plans) == 7
    for made in plans:
        again, report = decode(encode(made, {"sends": 1.0}))
        assert (again.method, again.brokers, report) == (made.method, made.brokers, {"sends": 1.0})
        assert again.group_count == made.group_count
        one, other = made.sends(traffic.sets), again.sends(traffic.sets)
        assert (masks_of(received(made, one), 9) == masks_of(received(again, other), 9)).all()
        assert np.array_equal(one.groups, other.groups)


@pytest.mark.parametrize(
    "damage",
    [
        {"format": 2},
        {"method": "nonsense"},
        {"method": "clustered"},
        {"brokers": []},
        {"brokers": ["b1", "b1"]},
        {"brokers": [f"b{place}" for place in range(5_000)]},
        {"content": {"groups": [[0]]}},
        {"content": {"groups": "b1"}},
        {"content": {"groups": "AQ=="}},
        {"content": {"groups": "AAA="}},
        {"content": {"groups": "AAI="}},
        {"content": {"groups": "AQA=", "prices": [1e999, "x"]}},
        {"content": {"groups": "AQA=", "prices": [1.0]}},
        {"method": "neighbours", "content": {"graph": {"b0": {"b1": "far"}}}},
        {"method": "neighbours", "content": {"graph": {"b0": 1}}},
        {"method": "clustered", "content": {"clusters": [["b1"]]}},
        {"method": "clustered", "content": {"clusters": [[0.0, *range(1, 9)]]}},
        {"method": "clustered", "content": {"clusters": [[False, True, *range(2, 9)]]}},
        {"method": "clustered", "content": {"clusters": [[*range(9)]], "threshold": 0}},
        {"content": {}},
        {"more": 1},
    ],
)
def test_what_is_no_plan_is_refused(damage: dict[str, object]) -> None:
    (made,) = [each for each in every_plan(some_traffic(1)) if each.method == "flooding"]
    document = {**json.loads(encode(made)), **damage}
    with pytest.raises(FileDamaged, match="no plan"):
        decode(json.dumps(document).encode())
    with pytest.raises(FileDamaged, match="no plan"):
        decode(b"[")
    with pytest.raises(FileDamaged, match="no plan"):
        decode(encode(made).replace(b'"/wE="', b"[" * 100_000))


def test_no_method_has_more_groups_than_are_asked_for() -> None:
    for made in every_plan(some_traffic(1)):
        if made.method == "neighbours":  # its groups are known to neighbours only
            continue
        data = encode(made)
        assert decode(data, made.group_count + 1)[0].group_count == made.group_count
        assert decode(data, made.group_count)[0].group_count == made.group_count
        with pytest.raises(FileDamaged, match="number of groups"):
            decode(data, made.group_count - 1)
