"""`Introductions`: how two brokers come to know who is at the other end.

```
  who dials                                                        who listens
  Hello(token, nonce 1)                        ->
                                               <-                  Challenge(name, nonce 2)
  Hello(token, nonce 1, proof over both)       ->
                                               <-  Welcome(token, proof over both)
```

1. To be a broker is a grant of its own: a token bound to a broker's key.
2. A bound token is shown by whoever has seen it, so it counts only with a proof by its key over two
   nonces, one of each end, and both names.
3. Whom we dialled is known as whoever dialled us is. Where there is an authority both show a token:
   certificates prove who a client is, and no broker.
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
    """One greeting between this broker and another, on one connection."""

    __slots__ = ("_core", "_hello", "_nonce", "_peer_nonce")

    def __init__(self, core: Core) -> None:
        self._core = core
        self._nonce = ""
        """Ours."""
        self._hello: Hello | None = None
        self._peer_nonce = ""

    @property
    def is_open(self) -> bool:
        """True if the other end may call itself whatever it likes."""
        return isinstance(self._core.authority, OpenAuthority)

    # --- who dials ---

    def hello(self, session: str, received: int, *, seeks: bool) -> Hello:
        """The first word."""
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
            # A gateway does not know yet on which side of it the other end is.
            routing="" if core.settings.outside else core.settings.routing,
            seeks=seeks,
            parents=core.settings.parents,
        )
        return self._hello

    def prove(self, challenge: Challenge) -> Hello:
        """The same word again, with the proof that was asked for; once."""
        core, said = self._core, self._hello
        if said is None or not said.token or self._peer_nonce:
            raise IllegalMessage(challenge.name, "a Challenge that nothing asked for")
        if not challenge.nonce or challenge.name == core.name:
            raise IllegalMessage(challenge.name, "a Challenge without a nonce, or in our own name")
        self._peer_nonce = challenge.nonce
        text = handshake_text(core.name, core.name, challenge.name, self._nonce, challenge.nonce)
        return msgspec.structs.replace(said, proof=core.identity.sign(text))

    def verify_welcome(self, welcome: Welcome) -> Principal:
        """Identify the party that answered. `NotAuthenticated` if it does not prove itself."""
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

    # --- who listens ---

    def verify_hello(self, hello: Hello) -> Principal | Challenge:
        """Identify the party that dialled, or ask for a proof. `NotAuthenticated` for no broker."""
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
        """Return what this broker shows to one that has dialled it: token and proof."""
        core = self._core
        text = handshake_text(core.name, dialer, core.name, self._peer_nonce, self._nonce)
        return core.identity.token, core.identity.sign(text)

    # --- both ---

    def _authenticate(self, name: str, token: str) -> Principal:
        """The broker that a token names, which has yet to prove that it has the key."""
        core = self._core
        if not self.is_open and not (token and core.identity.token):
            bare = name if core.identity.token else core.name
            raise NotAuthenticated(f"the broker {bare!r:.80} has no token to show; {NO_BROKER}")
        principal = core.authority.authenticate_broker(token, core.at)
        if not self.is_open and principal.name != name:
            raise NotAuthenticated(f"{principal.name!r} is not the broker {name!r:.80}")
        return principal
