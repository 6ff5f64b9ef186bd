"""`HostCheck`: answers only requests that were sent to a name of the broker.

A page of `evil.example` may have its name lead to 127.0.0.1 a moment after it was loaded (DNS
rebinding). To the browser a broker on the reader's machine is then part of the page's own site,
and needs no token there. But every request says in `Host` by which name it was sent: none but the
names of the broker are answered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from cryptography import x509
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from palio.errors import InvalidConfiguration
from palio.server.configuring import is_any
from palio.server.hosts import Hosts
from palio.server.http.errors import Misdirected, answer
from palio.server.settings import Configuration

LOOPBACK: Final = ("localhost", "127.0.0.0/8", "::1")

ANY_ADDRESS: Final = ("0.0.0.0/0", "::/0")

_HOST: Final = re.compile(rb"(\[[0-9a-fA-F:.]+\]|[a-zA-Z0-9_.-]+)(?::[0-9]{1,5})?")


def own_names(configuration: Configuration) -> Iterator[str]:
    """By which names a broker can be called: loopback, where it listens, the names of its
    certificate, and what `http.allowed_hosts` adds.

    One that listens on all addresses answers to every address: no page can have one for its name.
    """
    listen = configuration.listen
    yield from LOOPBACK
    yield from ANY_ADDRESS if is_any(listen.host) else (listen.host,)
    yield from configuration.http.allowed_hosts
    if configuration.tls.cert:
        yield from _certified(Path(configuration.tls.cert))


def _certified(path: Path) -> Iterator[str]:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return
    except (OSError, ValueError) as error:
        raise InvalidConfiguration(f"tls.cert, tls.key: {error}") from None
    yield from names.get_values_for_type(x509.DNSName)
    yield from map(str, names.get_values_for_type(x509.IPAddress))


class HostCheck:
    """An ASGI application in front of another: it answers requests for other hosts with 421.

    Starlette's `TrustedHostMiddleware` knows no networks, and takes the first of two headers.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str]) -> None:
        self._app = app
        self.names = Hosts(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if its `Host` is one of ours (ASGI)."""
        given = [value for name, value in scope["headers"] if name == b"host"]
        is_own = len(given) == 1 and self._is_own(given[0])
        await (self._app if is_own else _refusal(given))(scope, receive, send)

    def _is_own(self, header: bytes) -> bool:
        read = _HOST.fullmatch(header)
        return read is not None and self.names.name(read[1].decode("ascii"))


def _refusal(given: list[bytes]) -> Response:
    if len(given) != 1:
        return answer(Misdirected("a request has one header Host, by which name it was sent"))
    return answer(
        Misdirected(
            f"the broker is not called {given[0].decode('latin-1')!r:.100}; its operator can "
            "add the name to http.allowed_hosts"
        )
    )
