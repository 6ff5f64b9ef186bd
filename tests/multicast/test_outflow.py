from palio.multicast.limits import BACKOFF_S, JUDGED, MOST_BACKOFF_S
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
        flow.move_to_links(now)
        waits.append(flow.retry_at - now)
        now = flow.retry_at + 1
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    flow.move_to_links(now + MOST_BACKOFF_S)
    assert flow.backoff_s == BACKOFF_S


def test_a_receiver_is_judged_by_enough_events() -> None:
    flow = Outflow("b2", 5, 0)
    flow.number = JUDGED - 1
    flow.repaired = JUDGED
    assert not flow.lacks_half()
    flow.number = JUDGED
    assert flow.lacks_half()
    assert not flow.lacks_half()
    flow.number += JUDGED
    flow.repaired = JUDGED // 2
    assert not flow.lacks_half()
