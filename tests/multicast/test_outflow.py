from palio.multicast.outflow import FlowState, Outflow


def test_a_flow_says_how_it_stands() -> None:
    flow = Outflow("b2", 5, 3)
    flow.number = 9
    assert flow.state == FlowState("b2", 5, 0, 9, 3, is_cast=False)
