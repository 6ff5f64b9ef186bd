from palio.multicast import limits


def test_limits_go_together() -> None:
    """A receiver speaks before its silence shuts a window, asks before a sender says it all, and is
    asked before it speaks by itself, unless more events follow.
    """
    assert limits.ACK_EVENTS <= limits.FIRST_WINDOW // 2
    assert limits.LEAST_WINDOW < limits.FIRST_WINDOW < limits.MOST_WINDOW
    assert limits.LACK_S < limits.TAIL_S < limits.ACK_S < limits.MOST_TAIL_S
    assert limits.MOST_LACK_S <= limits.SLOW_S
