"""Reads settings from their sources, notes where each came from, and checks them together."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias, get_origin

import msgspec

from palio.config import Document, bare, explain, hint
from palio.errors import InvalidConfiguration, InvalidInput
from palio.protocol.addresses import parse_address
from palio.protocol.limits import (
    MAX_URL_CHARS,
)
from palio.protocol.names import check_name
from palio.routing.algorithms import ALGORITHMS, GraphKind
from palio.server.hosts import Hosts, Origins
from palio.server.multicast.interfaces import GroupAddresses
from palio.server.settings import Auth, Broker, Configuration, Gateway, Tls

PREFIX: Final = "PALIO__"
"""How variables of the environment begin that set something: `PALIO__LISTEN__PORT`."""

ENVIRONMENT: Final = "environment"
"""How the origin of a setting begins that such a variable has set."""

Problem: TypeAlias = tuple[str, str]
"""A setting, and what is wrong with it: "problem; remedy"."""


class Setting(NamedTuple):
    """A value, and where it was set: a flag, a variable, a file and line, or `default`."""

    name: str
    value: Any
    origin: str


class Configured(NamedTuple):
    """The outcome: what to run with, and each setting with its origin."""

    configuration: Configuration
    settings: tuple[Setting, ...]


def known_settings() -> dict[str, Any]:
    """Every setting, `section.key`, with its type.

    >>> "listen.port" in known_settings()
    True
    """
    return {
        f"{section.name}.{field.name}": field.type
        for section in msgspec.structs.fields(Configuration)
        for field in msgspec.structs.fields(section.type)
    }


def described(name: str) -> str:
    """Describe a setting in a few words."""
    kind = msgspec.inspect.type_info(known_settings()[name])
    if isinstance(kind, msgspec.inspect.Metadata):
        return str((kind.extra_json_schema or {}).get("description", ""))
    return ""


def configure(
    *,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Iterable[Setting] = (),
    find: Callable[[Configuration], Iterable[Problem]] | None = None,
) -> Configured:
    """Put the sources together; `InvalidConfiguration` lists all mistakes, a line each: values that
    a setting cannot have, and what `find` finds (by default `problems`).

    >>> found = configure(environment={"PALIO__LISTEN__PORT": "7401"})
    >>> found.configuration.listen.port
    7401
    """
    given: dict[str, Setting] = {}
    sources = (
        _from_file(file) if file is not None else (),
        _from_environment(environment or {}),
        flags,
    )
    for source in sources:
        given.update({setting.name: setting for setting in source})
    sections: dict[str, dict[str, Any]] = {}
    unread: dict[str, str] = {}
    for setting in given.values():
        section, _, key = setting.name.partition(".")
        try:
            sections.setdefault(section, {})[key] = _converted(setting)
        except InvalidConfiguration as error:
            unread[setting.name] = str(error)
    configuration = Configuration(
        **{
            field.name: field.type(**sections.get(field.name, {}))
            for field in msgspec.structs.fields(Configuration)
        }
    )
    origins = {name: setting.origin for name, setting in given.items()}
    contradictions = [
        worded(problem, origins)
        for problem in (find or problems)(configuration)
        # What names a setting that cannot be read may be right once that can.
        if not any(name in " ".join(problem) for name in unread)
    ]
    refuse([*unread.values(), *contradictions])
    return Configured(configuration, tuple(_all(configuration, given)))


def _all(configuration: Configuration, given: Mapping[str, Setting]) -> Iterator[Setting]:
    for name in known_settings():
        section, _, key = name.partition(".")
        value = msgspec.to_builtins(getattr(getattr(configuration, section), key))
        yield Setting(name, value, given[name].origin if name in given else "default")


def _converted(setting: Setting) -> Any:
    kinds = known_settings()
    if setting.name not in kinds:
        words = hint(setting.name, kinds, "palio config show lists them all")
        raise InvalidConfiguration(
            f"{setting.origin}: no setting is called {setting.name}; {words}"
        )
    kind, value = kinds[setting.name], setting.value
    if setting.origin.startswith(ENVIRONMENT):
        value = _from_text(setting)
    try:
        return msgspec.convert(value, kind, strict=not isinstance(value, str))
    except msgspec.ValidationError as error:
        within, problem = explain(error, kind)
        problem = f"{within}: {problem}" if within else problem
        raise InvalidConfiguration(
            f"{setting.origin}: {setting.name} = {setting.value!r:.80}: {problem}"
        ) from None


# --- sources ---


def _from_file(path: Path) -> Iterator[Setting]:
    document = Document(path)
    for section, table in document.values.items():
        if not isinstance(table, dict):
            yield Setting(section, table, document.place(section))
            continue
        for key, value in table.items():
            name = f"{section}.{key}"
            yield Setting(name, value, document.place(name))


def _from_environment(environment: Mapping[str, str]) -> Iterator[Setting]:
    for variable, text in sorted(environment.items()):
        if variable.startswith(PREFIX):
            name = variable.removeprefix(PREFIX).lower().replace("__", ".", 1)
            yield Setting(name, text, f"{ENVIRONMENT} {variable}")


def _from_text(setting: Setting) -> Any:
    """Lists and tables are written as JSON, lists also with commas; all else is text."""
    text = setting.value
    if text[:1] in ("[", "{"):
        try:
            return json.loads(text)
        except ValueError as error:
            raise InvalidConfiguration(
                f"{setting.origin}: {setting.name}: no JSON: {error}"
            ) from None
    if get_origin(bare(known_settings().get(setting.name))) is tuple:
        return [item.strip() for item in text.split(",") if item.strip()]
    return text


# --- what no single setting shows to be wrong ---


def is_loopback(host: str) -> bool:
    """Return whether only programs of this machine reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("")
    (True, True, False, False)
    """
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def is_any(host: str) -> bool:
    """Return whether it stands for all addresses of a machine, so that nobody can dial it.

    >>> is_any("0.0.0.0"), is_any("::"), is_any("127.0.0.1"), is_any("localhost")
    (True, True, False, False)
    """
    address = _address(host)
    return address is not None and address.is_unspecified


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_name(host: str) -> bool:
    return bool(_HOST_NAME.fullmatch(host)) and not _NUMBERS.fullmatch(host)


_HOST_NAME: Final = re.compile(r"(?=.{1,253}\.?$)\w([\w-]{0,61}\w)?(\.\w([\w-]{0,61}\w)?)*\.?")
_NUMBERS: Final = re.compile(r"[0-9.]+")
"""What looks like an address of IPv4 is nothing else."""

_KEYS: Final = (
    "set auth.keys, auth.token_file and auth.broker_key (palio keys create NAME; palio token "
    "create NAME --broker-key NAME.pub --key signing --output NAME.token)"
)
"""What a broker of a network with keys needs, and how it is made."""


def worded(problem: Problem, origins: Mapping[str, str] | None = None) -> str:
    """Write a problem on a line, with the place where its setting was set.

    >>> worded(("tls.key", "no such file; name it"), {"tls.key": "palio.toml:7"})
    'tls.key (palio.toml:7): no such file; name it'
    """
    name, text = problem
    place = (origins or {}).get(name, "")
    return f"{name}{f' ({place})' if place else ''}: {text}"


def refuse(lines: Sequence[str]) -> None:
    """Raise all mistakes as one error; none if there are none."""
    if lines:
        heading = [f"{len(lines)} settings are wrong"] if len(lines) > 1 else []
        raise InvalidConfiguration("\n  ".join([*heading, *lines]))


def problems(configuration: Configuration) -> Iterator[Problem]:
    """Find what no single setting shows to be wrong."""
    tls, auth = configuration.tls, configuration.auth
    yield from _wrong_names(configuration)
    yield from _misrouted(configuration)
    if bool(tls.cert) != bool(tls.key):
        given = "tls.cert" if tls.cert else "tls.key"
        yield given, "set both tls.cert and tls.key, or neither"
    yield from _unproven(auth, tls)
    yield from _ungrouped(configuration)
    for name, entries, read in (
        ("webhooks.allow", configuration.webhooks.allow, Hosts),
        ("http.allowed_hosts", configuration.http.allowed_hosts, Hosts),
        ("http.allowed_origins", configuration.http.allowed_origins, Origins),
    ):
        try:
            read(entries)
        except InvalidConfiguration as error:
            yield name, str(error)
    host = configuration.listen.host
    if _address(host) is None and not _is_name(host):
        wanted = "127.0.0.1 to be reached from this machine alone, 0.0.0.0 from others too"
        yield "listen.host", f"{host!r:.80} is no address and no name of a machine; write {wanted}"
    elif not is_loopback(host):
        yield from _exposed(configuration)
    for url in configuration.peers.urls:
        try:
            address = parse_address(url)
        except InvalidConfiguration as error:
            yield "peers.urls", str(error)
            continue
        if address.is_secure and not tls.ca:
            yield "peers.urls", f"{url} asks for TLS; set tls.ca to what vouches for it"
        is_open = not (auth.keys or auth.grants) and is_loopback(address.host)
        if not (is_open or auth.token_file):
            yield "peers.urls", f"{url}: brokers know each other by keys; {_KEYS}"
    yield from _unreachable(configuration.broker.url)


def _unreachable(url: str) -> Iterator[Problem]:
    """An address at which no other broker could find this one."""
    if len(url) > MAX_URL_CHARS:
        yield "broker.url", f"it has more than {MAX_URL_CHARS} characters (MAX_URL_CHARS)"
    elif url:
        try:
            host = parse_address(url).host
        except InvalidConfiguration as error:
            yield "broker.url", str(error)
        else:
            if is_any(host):
                yield "broker.url", f"{host} stands for all addresses of a machine; write one"


def _misrouted(configuration: Configuration) -> Iterator[Problem]:
    """Algorithms that do not exist, or not for such a network."""
    broker, gateway = configuration.broker, configuration.gateway
    for section, name, parent in (
        ("broker", broker.routing, broker.parent),
        ("gateway", gateway.routing, gateway.parent),
    ):
        if section == "gateway" and not name:
            continue
        algorithm = ALGORITHMS.get(name)
        if algorithm is None:
            names = ", ".join(ALGORITHMS)
            yield f"{section}.routing", f"{name!r:.80} is no algorithm; it is one of {names}"
            return
        if parent and parent == broker.name:
            yield f"{section}.parent", "a broker is not its own parent; name the one above it"
        if parent and not (algorithm.has_parents or algorithm.finds_parents):
            knowing = ", ".join(
                algorithm.name
                for algorithm in ALGORITHMS.values()
                if algorithm.has_parents or algorithm.finds_parents
            )
            yield (
                f"{section}.parent",
                f"{name} routing knows no parents; set {section}.routing ({knowing})",
            )
        if algorithm.graph is GraphKind.ALONE and (configuration.peers.urls or gateway.routing):
            yield f"{section}.routing", f"{name} is for one broker; leave out peers and gateway"
    yield from _misplaced_gateway(broker, gateway)


def _misplaced_gateway(broker: Broker, gateway: Gateway) -> Iterator[Problem]:
    if not gateway.routing:
        for key in ("brokers", "parent"):
            if getattr(gateway, key):
                yield f"gateway.{key}", "set gateway.routing: how the network there routes"
        return
    inside, outside = ALGORITHMS[broker.routing], ALGORITHMS[gateway.routing]
    for setting, side in (("broker.routing", inside), ("gateway.routing", outside)):
        if not side.joins:
            able = ", ".join(algorithm.name for algorithm in ALGORITHMS.values() if algorithm.joins)
            yield setting, f"{side.name} cannot be joined by a gateway; {able} can"
    if inside.is_advertised != outside.is_advertised:
        yield "gateway.routing", "both sides go by advertisements, or neither does"
    if broker.parent:
        yield "broker.parent", "a gateway is at the top of its own network"
    if gateway.parent and gateway.parent not in gateway.brokers:
        yield "gateway.parent", f"name {gateway.parent!r} among gateway.brokers too"
    if not gateway.brokers:
        yield "gateway.brokers", "name the brokers of the other network that are linked to it"


def _ungrouped(configuration: Configuration) -> Iterator[Problem]:
    """Find the settings that keep a broker from sending to groups."""
    if not configuration.multicast.groups:
        return
    try:
        GroupAddresses(configuration.multicast.groups)
    except InvalidConfiguration as error:
        yield "multicast.groups", str(error)
    if configuration.gateway.routing:
        yield "multicast.groups", "a gateway is in no group; leave out multicast.groups, or gateway"
    routing = configuration.broker.routing
    if routing in ALGORITHMS and not ALGORITHMS[routing].is_destined:
        able = " or ".join(
            algorithm.name for algorithm in ALGORITHMS.values() if algorithm.is_destined
        )
        problem = (
            f"{routing} does not name the brokers that an event is for; multicast needs {able}"
        )
        yield "broker.routing", problem


def _unproven(auth: Auth, tls: Tls) -> Iterator[Problem]:
    """Find credentials that nobody could show, or verify."""
    if auth.grants and not tls.ca:
        yield "auth.grants", "names come from certificates: set tls.ca to what vouches for them"
    for key in ("network", "revoked"):
        if getattr(auth, key) and not auth.keys:
            yield f"auth.{key}", "there are no tokens without auth.keys; set it too"
    own = auth.token_file, auth.broker_key
    if any(own) and not all((*own, auth.keys)):
        given = "auth.token_file" if auth.token_file else "auth.broker_key"
        yield given, f"a broker shows its key, and asks others for theirs; {_KEYS}"


def _wrong_names(configuration: Configuration) -> Iterator[Problem]:
    broker = configuration.broker
    named = [("broker.name", "a broker", broker.name)]
    gateway = configuration.gateway
    for setting, parent in (("broker.parent", broker.parent), ("gateway.parent", gateway.parent)):
        if parent:
            named.append((setting, "a broker", parent))
    named += [("gateway.brokers", "a broker", name) for name in gateway.brokers]
    grants, network = configuration.auth.grants, configuration.auth.network
    if network:
        named.append(("auth.network", "a network", network))
    named += [("auth.grants", "a principal", name) for name in grants]
    named += [
        (f"auth.grants.{name}", "an identity", identity)
        for name, grant in grants.items()
        for identity in grant.identities
    ]
    for setting, bearer, name in named:
        try:
            check_name(name, bearer)
        except InvalidInput as error:
            yield setting, str(error)


def _exposed(configuration: Configuration) -> Iterator[Problem]:
    """Find the protection that is missing before other machines may reach a broker."""
    host = configuration.listen.host
    reached = f"{host} can be reached from other machines; set"
    if _address(host) is None:
        reached = f"{host!r} is taken as the name of a machine, and {reached}"
    if not configuration.tls.cert:
        yield "listen.host", f"{reached} tls.cert and tls.key, or listen on 127.0.0.1"
    if not configuration.auth.keys and not configuration.auth.grants:
        options = "auth.keys (tokens), or tls.ca and auth.grants (certificates)"
        yield "listen.host", f"{reached} {options}, or listen on 127.0.0.1"
