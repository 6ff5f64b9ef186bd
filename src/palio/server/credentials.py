"""`Credentials`: what a broker reads from the files that its settings name, checked together.

`mistakes` finds all that keeps a broker from starting with a configuration but for what others hold
now, its ports and the lock of its journal; `load` refuses all of that at once. So `palio serve`,
`palio config check` and a reload agree.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from palio import files
from palio.errors import PalioError
from palio.node.authority import Authority, NamedAuthority, OpenAuthority, Principal
from palio.node.effects import Moment
from palio.node.identity import NOBODY, Identity
from palio.server.configuring import Problem, problems, refuse, worded
from palio.server.limits import TLS_1_2_CIPHERS
from palio.server.multicast.sockets import read_group_key
from palio.server.settings import Configuration, Tls

KEYS: Final = "name a public key, or a directory of them (palio keys create NAME makes NAME.pub)"
"""The remedy for keys that cannot be read."""

REVOKED: Final = "list the ids of tokens, one a line; an empty file revokes none"
"""The remedy for a file of revocations."""

TOKEN: Final = (
    "sign one for this broker and its key (palio token create NAME --broker-key NAME.pub)"
)
"""The remedy for a token and a key that do not go together."""


class Credentials(NamedTuple):
    """Certificates, keys and grants of a broker."""

    accepting: ssl.SSLContext | None = None
    """For clients and brokers that connect; None without TLS."""
    serving: ssl.SSLContext | None = None
    """For HTTP, which asks for no certificate; None without TLS."""
    dialling: ssl.SSLContext | None = None
    """For brokers that this one dials; None where nothing vouches for them."""
    authority: Authority = OpenAuthority()
    identity: Identity = NOBODY
    """Of this broker: its bound token, if it has one."""


def load(configuration: Configuration) -> Credentials:
    """Read every file that a configuration names; `InvalidConfiguration` lists all mistakes."""
    loader = _Loader(configuration)
    credentials = loader.load()
    refuse([worded(problem) for problem in loader.mistakes])
    return credentials


def mistakes(configuration: Configuration) -> Sequence[Problem]:
    """Find all that keeps a broker from starting: settings that contradict each other, and files,
    keys, certificates, tokens and directories that cannot be used.
    """
    loader = _Loader(configuration)
    loader.load()
    return loader.mistakes


class _Loader:
    """Reads all files, and collects an error for each that cannot be read."""

    def __init__(self, configuration: Configuration) -> None:
        self.mistakes = [*problems(configuration)]
        self._configuration = configuration

    @contextmanager
    def _reading(self, setting: str, remedy: str = "") -> Iterator[None]:
        """Note what fails as a mistake of the setting."""
        try:
            yield
            return
        except ImportError as error:
            problem = f"it needs a package that is not installed ({error})"
            remedy = "pip install 'palio[server]'"
        except ssl.SSLError as error:
            problem = f"it cannot be loaded ({error.reason or 'not PEM'})"
        except UnicodeDecodeError:
            problem = "it is not UTF-8"
        except OSError as error:
            problem = f"cannot read {error.filename!r}: {error.strerror}"
            remedy = remedy or "name a file that this user may read"
        except PalioError as error:
            problem = str(error).partition("\n")[0]
        self.mistakes.append((setting, f"{problem}; {remedy}" if remedy else problem))

    def load(self) -> Credentials:
        """Read all there is."""
        broker, multicast = self._configuration.broker, self._configuration.multicast
        if broker.data_dir:
            with self._reading("broker.data_dir", "give a directory that this user may write"):
                files.check_can_make(Path(broker.data_dir))
        if multicast.key:
            with self._reading("multicast.key"):
                read_group_key(Path(multicast.key))
        if self._configuration.http.port is not None:
            with self._reading("http.port"):
                import palio.server.http.app
                import palio.server.metrics  # noqa: F401  # their packages are there
        authority = self._authority()
        return Credentials(*self._contexts(), authority, self._identity(authority))

    def _contexts(
        self,
    ) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None, ssl.SSLContext | None]:
        tls = self._configuration.tls
        accepting = serving = dialling = None
        before = len(self.mistakes)
        for setting in ("cert", "key", "ca"):
            if path := getattr(tls, setting):
                with self._reading(f"tls.{setting}"), open(path, "rb"):
                    pass
        if len(self.mistakes) == before:
            if tls.cert and tls.key:
                with self._reading("tls.key", "give the key of tls.cert, both in PEM, unencrypted"):
                    serving = _context(tls)
            if tls.ca:
                with self._reading("tls.ca", "give CA certificates in PEM"):
                    dialling = _context(Tls(ca=tls.ca))
                    accepting = serving and _context(tls, asks=True)
        return accepting or serving, serving, dialling

    def _authority(self) -> Authority:
        """Make the authority: everyone may do everything, unless tokens or grants are set."""
        auth = self._configuration.auth
        named: dict[str, Principal] = {}
        for name, grant in auth.grants.items():
            with self._reading(f"auth.grants.{name}"):
                named[name] = grant.granted_to(name)
        if not auth.keys:
            return NamedAuthority(named) if auth.grants else OpenAuthority()
        authority: Authority = OpenAuthority()  # stays where there is a mistake
        with self._reading("auth.keys", KEYS):
            from palio.server.tokens import TokenAuthority, load_revoked

            revoked = None
            if auth.revoked:
                with self._reading("auth.revoked", REVOKED):
                    load_revoked(Path(auth.revoked))
                    revoked = Path(auth.revoked)
            keys = Path(auth.keys)
            authority = TokenAuthority(keys, network=auth.network, revoked=revoked, named=named)
        return authority  # noqa: RET504  # an open one where it could not be read

    def _identity(self, authority: Authority) -> Identity:
        """Read the token of this broker, which others must take, and the key it is bound to."""
        auth, name = self._configuration.auth, self._configuration.broker.name
        token, before = "", len(self.mistakes)
        identity: Identity = NOBODY
        if not (auth.token_file and auth.broker_key):
            return identity
        with self._reading("auth.token_file", TOKEN):
            from palio.server.tokens import BoundToken, inspect

            token = files.read_secret(Path(auth.token_file), "the token").decode().strip()
            inspect(token)
        with self._reading("auth.broker_key", TOKEN):
            from palio.server.keyfiles import load_private_key

            key = load_private_key(Path(auth.broker_key))
            if len(self.mistakes) == before:
                identity = bound = BoundToken(token, key)
                if bound.name != name:
                    problem = f"the token is of the broker {bound.name!r}, and this is {name!r}"
                    self.mistakes.append(("auth.token_file", f"{problem}; {TOKEN}"))
                elif not isinstance(authority, OpenAuthority):
                    with self._reading("auth.token_file", "see auth.keys"):
                        signature = bound.sign(b"palio")
                        authority.verified(token, b"palio", signature, Moment(0.0, 0))
        return identity


def _context(tls: Tls, *, asks: bool = False) -> ssl.SSLContext:
    """For those that connect here; or, without a certificate, for connecting to others: there this
    broker shows none, as it is known by its key. One that `asks` takes certificates of clients.
    """
    purpose = ssl.Purpose.CLIENT_AUTH if tls.cert else ssl.Purpose.SERVER_AUTH
    context = ssl.create_default_context(purpose)
    if tls.cert:
        context.load_cert_chain(tls.cert, tls.key, password="")  # asks nobody for one
    if asks or not tls.cert:
        context.load_verify_locations(tls.ca)
    if asks:
        # Those without a certificate may still show a token.
        context.verify_mode = ssl.CERT_OPTIONAL
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(TLS_1_2_CIPHERS)
    return context


def expiries(tls: Tls, identity: Identity) -> dict[str, float]:
    """Return the expiry of each credential that a broker has loaded, in seconds since 1970."""
    from cryptography import x509

    from palio.server.tokens import inspect

    expiry = {}
    if tls.cert:
        certificate = x509.load_pem_x509_certificates(Path(tls.cert).read_bytes())[0]
        expiry["certificate"] = certificate.not_valid_after_utc.timestamp()
    if identity.token:
        expiry["token"] = float(inspect(identity.token)[1].exp)
    return expiry
