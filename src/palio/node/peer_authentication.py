"""`PeerAuthentication`: authenticates two brokers to each other as they connect.

```
  dialer                                                           listener
  Hello(token, nonce 1)                        ->
                                               <-                  Challenge(name, nonce 2)
  Hello(token, nonce 1, proof over both)       ->
                                               <-  Welcome(token, proof over both)
```

1. To be a broker is a grant of its own: a token bound to a broker's key.
2. Anybody who has seen a bound token can send it. So it counts only with a proof: a signature by
   its key over two nonces, one from each end, and both names.
3. Authentication is mutual. Where there is an authority, both ends send a token: certificates
   authenticate clients, and no brokers.
"""

from __future__ import annotations

import msgspec

from palio.errors import IllegalMessage, NotAuthenticated
from palio.node.authority import NO_BROKER, OpenAuthority, Principal
from palio.node.core import Core
from palio.node.identity import handshake_text
from palio.protocol.limits import PROTOCOL_VERSION
from palio.protocol.messages import Challenge, Hello, Welcome


class PeerAuthentication:
    """One handshake between this broker and another, on one connection."""

    __slots__ = ("_core", "_hello", "_nonce", "_peer_nonce")

    def __init__(self, core: Core) -> None:
        self._core = core
        # The nonce of this end.
        self._nonce = ""
        self._hello: Hello | None = None
        self._peer_nonce = ""

    @property
    def is_open(self) -> bool:
        """True if the other end may take any name."""
        return isinstance(self._core.authority, OpenAuthority)

    # --- the dialer ---

    def hello(self, session: str, received: int, *, seeks: bool) -> Hello:
        """Return the first message of a dialer."""
        core = self._core
        self._nonce = core.new_id()
        self._hello = Hello(
            "broker",
            core.name,
            PROTOCOL_VERSION,
            core.identity.token,
            "",
            session,
            received,
            self._nonce,
            # A gateway does not know yet in which of its networks the other end is.
            routing="" if core.settings.outside else core.settings.routing,
            seeks=seeks,
            parents=core.settings.parents,
        )
        return self._hello

    def prove(self, challenge: Challenge) -> Hello:
        """Return the `Hello` once more, with the proof that a challenge asks for; only once."""
        core, hello = self._core, self._hello
        if hello is None or not hello.token or self._peer_nonce:
            raise IllegalMessage(challenge.name, "unexpected Challenge")
        if not challenge.nonce or challenge.name == core.name:
            raise IllegalMessage(challenge.name, "a Challenge without a nonce, or in our own name")
        self._peer_nonce = challenge.nonce
        text = handshake_text(core.name, core.name, challenge.name, self._nonce, challenge.nonce)
        return msgspec.structs.replace(hello, proof=core.identity.sign(text))

    def verify_welcome(self, welcome: Welcome) -> Principal:
        """Authenticate the broker that answered (`NotAuthenticated`)."""
        core = self._core
        if core.name == welcome.name:
            raise IllegalMessage(welcome.name, "it has the name of this broker")
        principal = self._authenticate(welcome.name, welcome.token)
        if principal.key:
            text = handshake_text(
                welcome.name, core.name, welcome.name, self._nonce, self._peer_nonce
            )
            core.authority.verified(welcome.token, text, welcome.proof, core.at)
        return principal

    # --- the listener ---

    def verify_hello(self, hello: Hello) -> Principal | Challenge:
        """Authenticate the broker that dialed, or challenge it (`NotAuthenticated`)."""
        core = self._core
        if hello.name == core.name:
            raise IllegalMessage(hello.name, f"it is called {core.name!r}, as this broker is")
        principal = self._authenticate(hello.name, hello.token)
        if principal.key:
            if not self._nonce:
                self._nonce = core.new_id()
                return Challenge(core.name, self._nonce)
            text = handshake_text(hello.name, hello.name, core.name, hello.nonce, self._nonce)
            core.authority.verified(hello.token, text, hello.proof, core.at)
        self._peer_nonce = hello.nonce
        return principal

    def token_and_proof(self, dialer: str) -> tuple[str, bytes]:
        """Return what authenticates this broker to a dialer: its token and its proof."""
        core = self._core
        text = handshake_text(core.name, dialer, core.name, self._peer_nonce, self._nonce)
        return core.identity.token, core.identity.sign(text)

    # --- both ends ---

    def _authenticate(self, name: str, token: str) -> Principal:
        """Return the broker that a token names. It has yet to prove that it has the key."""
        core = self._core
        if not self.is_open and not (token and core.identity.token):
            bare = name if core.identity.token else core.name
            raise NotAuthenticated(f"the broker {bare!r:.80} has no token to show; {NO_BROKER}")
        principal = core.authority.authenticate_broker(token, core.at)
        if not self.is_open and principal.name != name:
            raise NotAuthenticated(f"{principal.name!r} is not the broker {name!r:.80}")
        return principal
