"""`Catalogue`: the subscriptions of a broker's clients, as a set to match with.

    standing = palio.spark.subscriptions("palio://broker:7400", "sets/live")
    with standing.follow("palio://broker:7400"):
        palio.spark.match(stream, standing, ...)

A broker tells its subscriptions to principals with the grant `monitor` (docs/howto/authority.md),
each filter as it runs it: with what its owner may hear. The asker's own are left out, such as the
durable subscription that a pipeline reads its events from.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from palio.client.answers import CatalogueEntry
from palio.client.blocking import SyncClient
from palio.protocol.addresses import parse_address
from palio.spark.connection import TIMEOUT_S, Door
from palio.spark.options import default_token

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

    def rows(self) -> list[CatalogueEntry]:
        """Each subscription: `id`, `subscriber`, `filter`, `parameters`."""
        token = self.token or default_token()
        tls = Door(self.url, ca=self.ca).tls
        with SyncClient(
            self.url, name=self.name, token=token, tls=tls, timeout=self.timeout_s
        ) as client:
            own = client.publisher.rpartition("/")[0]
            return [entry for entry in client.catalogue() if entry["subscriber"] != own]
