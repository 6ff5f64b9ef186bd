"""`Catalogue`: the subscriptions of a broker's clients, as a set to match with.

    standing = palio.spark.subscriptions("palio://broker:7400", "sets/live")
    with standing.follow("palio://broker:7400"):
        palio.spark.match(stream, standing, ...)

A broker tells its subscriptions to principals with the grant `monitor` (docs/howto/authority.md),
each filter as it runs it: with what its owner may hear. The asker's own are left out, such as the
durable subscription that a pipeline reads its events from.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from palio.protocol.addresses import parse_address
from palio.spark.connection import TIMEOUT_S, Connection, Door
from palio.spark.options import TOKEN_VARIABLE

__all__ = ["Catalogue"]

ASKER: Final = "spark"


@dataclass(frozen=True)
class Catalogue:
    """The subscriptions at a broker, now.

    `token` is what shows who asks, by default `$PALIO_TOKEN`; `name` is who asks where nobody needs
    to show it; `ca` is the file of the authorities to trust, by default those of the system.

    >>> Catalogue("palio://localhost").url
    'palio://localhost:7400'
    """

    url: str
    token: str = field(default="", repr=False)
    name: str = ASKER
    ca: str = ""
    timeout_s: float = TIMEOUT_S

    def __post_init__(self) -> None:
        object.__setattr__(self, "url", str(parse_address(self.url)))

    def rows(self) -> list[dict[str, Any]]:
        """Each subscription: `id`, `subscriber`, `filter`, `parameters`."""
        return list(self._rows())

    def _rows(self) -> Iterator[dict[str, Any]]:
        token = self.token or os.environ.get(TOKEN_VARIABLE, "")
        door = Door(self.url, self.name, token, self.ca)
        connection = Connection(door, timeout_s=self.timeout_s)
        try:
            own = connection.publisher.rpartition("/")[0]
            start = ""
            while True:
                page = connection.ask("catalogue", {"from": start})
                yield from (row for row in page["subscriptions"] if row["subscriber"] != own)
                start = page["next"]
                if not start:
                    return
        finally:
            connection.close()
