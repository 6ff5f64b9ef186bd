"""Whole brokers that fail, against what their settings say."""

from __future__ import annotations

from typing import Any

import pytest

from palio.node.limits import PEER_GRACE_S
from palio_studies.proxy_groups import FAULT_S, FAULTS, LATE_S, STEP_S, mend_group
from palio_studies.study import Point, Value


def mended(fault: str, *, spare: bool, brokers: int = 4) -> dict[str, Any]:
    given: dict[str, Value] = {"brokers": brokers, "fault": fault, "spare": spare}
    return dict(mend_group(Point("groups", given, 1))[0])


def test_without_a_fault_nothing_is_noticed_missed_or_mended() -> None:
    row = mended("none", spare=False)
    assert not row["is_noticed"]
    assert row["mending_messages"] == 0
    assert row["others_missed_s"] == row["back_after_s"] == 0


@pytest.mark.parametrize("fault", [each for each in FAULTS if each != "none"])
def test_a_lone_link_is_given_up_after_its_grace(fault: str) -> None:
    row = mended(fault, spare=False)
    assert row["is_noticed"]
    assert PEER_GRACE_S <= row["noticed_s"] < FAULT_S
    assert row["mending_messages"] > 0


def test_a_child_that_fails_takes_nothing_from_its_sisters() -> None:
    for fault in ("child silent", "child killed"):
        row = mended(fault, spare=False)
        assert row["others_missed_s"] == 0
        assert 0 < row["back_after_s"] < 10


def test_without_the_parent_all_is_missed_unless_another_is_found() -> None:
    alone, spare = (mended("parent killed", spare=spare) for spare in (False, True))
    assert FAULT_S <= alone["others_missed_s"] <= FAULT_S + LATE_S
    assert STEP_S <= spare["others_missed_s"] < FAULT_S / 2
    assert spare["others_after_s"] == 0


def test_heartbeats_are_for_links() -> None:
    few, many = (mended("none", spare=False, brokers=size) for size in (3, 6))
    per_link = [row["beats_per_s"] / links for row, links in ((few, 2), (many, 5))]
    assert per_link[0] == pytest.approx(per_link[1], rel=0.1)
    assert mended("none", spare=True)["beats_per_s"] > mended("none", spare=False)["beats_per_s"]


def test_where_all_hear_all_each_receives_from_all_others() -> None:
    assert mended("none", spare=False, brokers=6)["multicast_beats_per_s"] == 6 * 5
