from palio.multicast import flow_limits as limits


def test_limits_go_together() -> None:
    """A receiver speaks before its silence shuts a window, and asks before a sender says it all."""
    assert limits.HEARD_EVENTS <= limits.FIRST_WINDOW // 2
    assert limits.LEAST_WINDOW < limits.FIRST_WINDOW < limits.MOST_WINDOW
    assert limits.HEARD_S < limits.LACK_S < limits.TAIL_S < limits.MOST_TAIL_S
    assert limits.MOST_LACK_S <= limits.SLOW_S
