"""Links to neighbours, and their use by the one tree of a graph (`general`).

A link is in use from when both ends said `Join`, and agreed on which is above, until one says
`Leave`. A `Leave` is answered by `Leave`, and only then may the link be joined again, so what is
said within one use never meets the next. A link that turns is left and joined anew.
"""

from __future__ import annotations

from collections.abc import Iterator

from palio.routing.messages import Join, Leave, Reached

__all__ = ["TreeLink"]


class TreeLink:
    """One end of a link: what the tree wants of it, and what was said.

    >>> link = TreeLink()
    >>> link.wanted = True
    >>> list(link.to_say(calm=False)), link.is_joined
    ([Join(calm=False, upward=None)], False)
    >>> link.theirs = Join()
    >>> link.is_joined
    True
    """

    __slots__ = ("answered", "closing", "heard", "mine", "theirs", "up", "upward", "wanted")

    def __init__(self) -> None:
        self.wanted = False
        """Our tree holds it..."""
        self.upward: bool | None = None
        """...and the way up that it has there; None where trees have no root."""
        self.mine: Join | None = None
        """We said this."""
        self.theirs: Join | None = None
        """They said this."""
        self.closing = False
        """We said Leave and were not yet answered."""
        self.up = False
        """Both joined, and the inner router knows."""
        self.heard: Reached | None = None
        """What they said last in this use..."""
        self.answered = ("", 0)
        """...and of which plan it was answered from outside its change."""

    @property
    def is_joined(self) -> bool:
        """Whether both ends joined, and agree on which is above."""
        mine, theirs = self.mine, self.theirs
        if mine is None or theirs is None:
            return False
        return mine.upward is None or mine.upward != theirs.upward

    def to_say(self, *, calm: bool) -> Iterator[Join | Leave]:
        """What makes the link what the tree wants, as far as the other end allows: that is said."""
        if self.wanted and self.mine is None and not self.closing:
            self.mine = Join(calm, self.upward)
            yield self.mine
        if self.mine is not None and not (self.wanted and self.mine.upward == self.upward):
            self.mine, self.theirs, self.closing = None, None, True
            yield Leave(calm)

    def forget(self) -> None:
        """A use of the link is over, and what was said of plans in it."""
        self.heard, self.answered = None, ("", 0)
