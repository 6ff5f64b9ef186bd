from palio.multicast.limits import AWAY_S, JUDGED, MOST_AWAY_S
from palio.multicast.outflow import FlowState, Outflow


def test_a_flow_says_how_it_stands() -> None:
    flow = Outflow("b2", 5, 3)
    flow.number = 9
    assert flow.state == FlowState("b2", 5, 0, 9, 3, is_cast=False)


def test_a_receiver_that_is_moved_again_and_again_is_away_for_longer() -> None:
    flow = Outflow("b2", 5, 0)
    now = 100.0
    waits = []
    for _ in range(8):
        flow.move(now)
        waits.append(flow.back_at - now)
        now = flow.back_at + 1
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    flow.move(now + MOST_AWAY_S)
    assert flow.away_s == AWAY_S


def test_a_receiver_is_judged_by_enough_events() -> None:
    flow = Outflow("b2", 5, 0)
    flow.number = JUDGED - 1
    flow.repaired = JUDGED
    assert not flow.lacks_most()
    flow.number = JUDGED
    assert flow.lacks_most()
    assert not flow.lacks_most()
    flow.number += JUDGED
    flow.repaired = JUDGED // 2
    assert not flow.lacks_most()
