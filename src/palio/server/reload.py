"""`Reloader`: gives a running broker the certificates, keys, grants and limits of now (SIGHUP).

1. All is read and checked before anything is changed: a mistake leaves everything as it is.
2. Sessions continue. What the change no longer permits ends at the next sweep of the node.
3. A setting that cannot be changed in a running broker keeps its value, and is named in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from palio.node.node import Node
from palio.server.configuring import known_settings
from palio.server.credentials import Credentials, expiries, load
from palio.server.server import Server
from palio.server.settings import Configuration

if TYPE_CHECKING:
    from palio.server.http.app import HttpFront

logger: Final = logging.getLogger("palio.server")

LIVE: Final = frozenset(
    {
        *("tls.cert", "tls.key", "tls.ca", "http.allowed_hosts"),
        *("auth.keys", "auth.network", "auth.revoked", "auth.grants"),
        *("limits.max_connections", "limits.max_sessions", "limits.max_subscriptions"),
        *("limits.queue_bytes", "limits.lease_s", "limits.history_s"),
        *("limits.handshake_timeout_s",),
        *("limits.http_head_s", "limits.http_body_s", "limits.http_idle_s"),
    }
)
"""Settings that change in a running broker. Not heartbeats, graces and windows: both ends of a
session have agreed on them as it began."""

NODE_LIMITS: Final = (
    *("max_sessions", "max_subscriptions", "queue_bytes", "lease_s", "history_s"),
    "handshake_timeout_s",
)
"""Those of them that the node has."""


class ConfigurationChange(NamedTuple):
    """The differences between two configurations."""

    configuration: Configuration
    """The old one with the live settings of the new one."""
    applied: list[str]
    ignored: list[str]


def change(old: Configuration, new: Configuration) -> ConfigurationChange:
    """Find what a running broker can take of a new configuration.

    >>> from palio.server.settings import Limits, Listen
    >>> limits = Limits(max_sessions=7)
    >>> change(Configuration(), Configuration(limits=limits, listen=Listen(port=1)))[1:]
    (['limits.max_sessions'], ['listen.port'])
    """
    fixed: tuple[str, ...] = ()
    if bool(old.tls.cert) != bool(new.tls.cert):  # addresses would be others
        fixed += ("tls.",)
    if bool(old.auth.keys or old.auth.grants) != bool(new.auth.keys or new.auth.grants):
        fixed += ("auth.",)  # links of an open network prove nothing
    applied, ignored = list[str](), list[str]()
    sections: dict[str, Any] = {}
    for name in known_settings():
        section, _, key = name.partition(".")
        before, after = (getattr(getattr(each, section), key) for each in (old, new))
        if before == after:
            continue
        if name in LIVE and not name.startswith(fixed):
            applied.append(name)
            sections[section] = replace(
                sections.get(section, getattr(old, section)), **{key: after}
            )
        else:
            ignored.append(name)
    return ConfigurationChange(replace(old, **sections), applied, ignored)


class Reloader:
    """Knows what a broker runs with."""

    def __init__(
        self,
        configuration: Configuration,
        credentials: Credentials,
        node: Node,
        server: Server,
        http: HttpFront | None,
        ends: dict[str, float],
    ) -> None:
        self._configuration = configuration
        self._token = credentials.identity.token
        self._node = node
        self._server = server
        self._http = http
        self._ends = ends
        """When credentials expire, as the metrics show it."""

    async def reload(self, read: Callable[[], Configuration]) -> None:
        """Read the configuration and its files again; a mistake is logged and changes nothing."""
        try:
            changed = change(self._configuration, read())
            credentials = load(changed.configuration)
            await self._listen(changed.configuration, credentials)
        except Exception as error:  # noqa: BLE001  # whatever it is, the broker continues
            details: dict[str, Any] = {"reason": str(error), "effect": "nothing has changed"}
            logger.error("reload_failed", extra={"details": details})
            return
        self._apply(changed.configuration, credentials)
        ignored = changed.ignored
        if credentials.identity.token != self._token:
            ignored.append("auth.token_file")
        logger.info("reload_applied", extra={"details": {"settings": changed.applied}})
        if ignored:
            details = {"settings": ignored, "remedy": "restart the broker"}
            logger.warning("reload_ignored", extra={"details": details})

    async def _listen(self, configuration: Configuration, credentials: Credentials) -> None:
        await self._server.renew(
            credentials.accepting,
            credentials.dialling,
            max_connections=configuration.limits.max_connections,
            greeting_s=configuration.limits.handshake_timeout_s,
        )
        if self._http is not None:
            await self._http.renew(configuration, credentials.authority, credentials.serving)

    def _apply(self, configuration: Configuration, credentials: Credentials) -> None:
        limits = {name: getattr(configuration.limits, name) for name in NODE_LIMITS}
        self._node.renew(credentials.authority, **limits)
        if self._http is not None:
            self._ends.update(expiries(configuration.tls, credentials.identity))
        self._configuration = configuration
