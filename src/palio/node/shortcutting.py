"""`Shortcutting`: when a broker's router looks whether shortcuts pay, and who is told of them."""

from __future__ import annotations

from palio.node.core import Core
from palio.node.sessions import Neighbour
from palio.node.vouching import SHORTCUTS
from palio.routing.protocol import Shortening

__all__ = ["Shortcutting"]


class Shortcutting:
    """The shortcuts of one broker, if its routing has any (docs/concepts/routing-proxies.md)."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._router = core.router if isinstance(core.router, Shortening) else None
        self._told: list[str] = []
        """Those that people were told of."""

    def meet(self, neighbour: Neighbour) -> None:
        """A neighbour is about to be attached."""
        principal = neighbour.principal
        if self._router is not None and not (principal.hears_all and principal.publishes_all):
            self._router.bar(neighbour.peer)

    def look(self) -> None:
        """Time has passed. People are told in the log, and all brokers by a fact."""
        if self._router is None:
            return
        core = self._core
        core.route(self._router.look(core.at.now))
        found, before = self._router.shortcuts, self._told
        if found == before:
            return
        self._told = found
        for name in sorted({*found, *before}):
            if name not in before:
                core.report("info", "shortcut_opened", broker=name)
            elif name not in found:
                core.report("info", "shortcut_closed", broker=name)
        core.durability.registry.say_links(SHORTCUTS, tuple(found))
