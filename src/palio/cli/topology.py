"""`palio topology`, `trace` and `broker remove`: the brokers of a network and their paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from palio.cli import inputs
from palio.cli.application import (
    AsJson,
    BrokerName,
    event_argument,
    with_broker,
)
from palio.cli.connecting import BrokerAccess
from palio.cli.reporting import show
from palio.errors import InvalidInput

if TYPE_CHECKING:
    from palio.client.answers import PlanInUse

broker_commands: Final = typer.Typer(no_args_is_help=True, help="Remove brokers of a network.")

_STANDINGS: Final = {
    "": "",
    "joined": "joined",
    "links": "by links",
    "moved": "moved to links",
    "waiting": "has not joined",
}
"""The words for a broker's part in the plan in use."""


@with_broker
def topology(access: BrokerAccess, as_json: AsJson = False) -> int:
    """Show the brokers of a network and their links."""
    found = access.ask(lambda client: client.admin.topology())
    if as_json:
        show(found)
        return 0
    for line in _tree(found["asked"], found["brokers"]):
        show(line)
    if found["root"]:
        show(f"root: {found['root']}")
    if found["plan"] is not None:
        show(f"plan: {described(found['plan'])}")
    return 0


def described(plan: PlanInUse) -> str:
    """A plan in use, in a line.

    >>> plan = {"id": 7, "epoch_us": 1_800_000_000_000_000, "origin": "b1"}
    >>> plan |= {"method": "approximated", "groups": 2, "brokers": ["b1", "b2"]}
    >>> described(plan | {"replans": 0})
    'approximated, 2 groups for 2 brokers, applied at b1, epoch 2027-01-15T08:00:00+00:00'
    >>> described(plan | {"replans": 3}).partition("applied")[2]
    ' at b1, changed 3 times, epoch 2027-01-15T08:00:00+00:00'
    """
    epoch = datetime.fromtimestamp(plan["epoch_us"] / 1_000_000, UTC)
    changed = f"changed {plan['replans']:,} times, " if plan["replans"] else ""
    return (
        f"{plan['method']}, {plan['groups']:,} groups for {len(plan['brokers']):,} brokers, "
        f"applied at {plan['origin']}, {changed}epoch {epoch.isoformat()}"
    )


def _tree(root: str, brokers: Mapping[str, Any]) -> Iterator[str]:
    """Each broker below the one through which it is reached first, then what is in no tree."""
    parents: dict[str, str] = {root: ""}
    queue = [root]
    for name in queue:
        for other in _neighbours(name, brokers):
            if other not in parents and brokers[other]["reachable"]:
                parents[other] = name
                queue.append(other)
    yield from _branch(root, "", "", brokers, parents)
    links = {
        (min(name, other), max(name, other))
        for name in parents
        for other in _neighbours(name, brokers)
        if other in parents and name not in (parents[other], other) and parents[name] != other
    }
    if links:
        yield f"also linked: {', '.join(f'{one} - {other}' for one, other in sorted(links))}"
    found = [(name, other) for name in sorted(brokers) for other in brokers[name]["found"]]
    if found:
        listed = ", ".join(f"{one} - {other}" for one, other in found)
        yield f"found for links that are lost: {listed}"
    for name in sorted(brokers.keys() - parents.keys()):
        yield f"{name}  not reachable"
        yield from _keeps(brokers[name], "    ")


def _branch(
    name: str,
    lead: str,
    below: str,
    brokers: Mapping[str, Any],
    parents: Mapping[str, str],
) -> Iterator[str]:
    is_leaving = "leaving" if brokers[name]["leaving"] else ""
    parent = brokers[name]["parent"]
    notes = _STANDINGS[brokers[name]["multicast"]], is_leaving, parent and f"below {parent}"
    yield "  ".join(filter(None, (f"{lead}{name}", *notes)))
    children = [each for each in sorted(parents) if parents[each] == name]
    yield from _keeps(brokers[name], below + ("│     " if children else "      "))
    for child in children:
        is_last = child == children[-1]
        corner, bar = ("└── ", "    ") if is_last else ("├── ", "│   ")
        yield from _branch(child, below + corner, below + bar, brokers, parents)


def _neighbours(name: str, brokers: Mapping[str, Any]) -> list[str]:
    return [each for each in sorted(brokers[name]["links"]) if each in brokers]


def _keeps(broker: Mapping[str, Any], lead: str) -> Iterator[str]:
    for subscription in broker["durable_subscriptions"]:
        yield f"{lead}keeps events for {subscription}"


@broker_commands.command()
@with_broker
def remove(access: BrokerAccess, name: BrokerName, as_json: AsJson = False) -> int:
    """Remove a broker that was stopped and will not come back.

    The other brokers drop what they keep for its durable subscriptions, and wait for it no longer.
    """
    access.ask(lambda client: client.admin.remove_broker(name))
    show({"removed": name} if as_json else f"{name} is gone for good; all others know.")
    return 0


@with_broker
def trace(
    access: BrokerAccess,
    event: Annotated[str, event_argument("A JSON object")] = "-",
    as_json: AsJson = False,
) -> int:
    """Show the path of an event, hop by hop, without sending it.

    Ends with 0 if there is a receiver, 1 if there is none or a broker did not answer.
    """
    listed = list(inputs.events(event))
    if len(listed) != 1:
        raise InvalidInput(f"trace takes one event, not {len(listed)}")
    found = access.ask(lambda client: client.admin.trace(listed[0][1]))
    hops = found["hops"]
    limited = {"limited": found["limited"]} if "limited" in found else {}
    hops.sort(key=lambda hop: hop.get("path", [hop["broker"]]))
    is_received = any(hop.get("sessions") or hop.get("durable") for hop in hops)
    if as_json:
        show({"received": is_received, "hops": hops, **limited})
    else:
        is_addressed = any(hop.get("multicast") for hop in hops)
        for hop in hops:
            for line in _hop(hop, is_addressed=is_addressed):
                show(line)
        if limited:
            show(limited["limited"])
        elif not is_received:
            show(_conclusion(hops))
    return 0 if is_received else 1


def _conclusion(hops: Sequence[Mapping[str, Any]]) -> str:
    """The last line of a trace that met no receiver.

    >>> _conclusion([{"broker": "b1"}, {"broker": "b2", "withheld": True}])
    'unknown: b2 withheld its answer'
    """
    withheld = [hop["broker"] for hop in hops if hop.get("withheld")]
    unreachable = [hop["broker"] for hop in hops if hop.get("unreachable")]
    reasons = [f"{name} withheld its answer" for name in withheld]
    reasons += [f"{name} is not reachable" for name in unreachable]
    return f"unknown: {'; '.join(reasons)}" if reasons else "no receivers"


def _hop(hop: Mapping[str, Any], *, is_addressed: bool = False) -> Iterator[str]:
    """One broker's part of a trace: where it is, and a line for each thing that it would do. Where
    events are addressed, only the first broker sends them, and lists how.
    """
    if hop.get("unreachable"):
        yield f"{hop['broker']}: not reachable; it and the brokers beyond are unknown"
        return
    if hop.get("withheld"):
        asker = hop["path"][-2]
        yield f"{hop['broker']}: withheld its answer; {asker} has no grant `monitor` there"
        return
    yield " > ".join(hop["path"])
    for each in hop["matched"]:
        values = "".join(f", :{key} = {value!r}" for key, value in each["parameters"].items())
        yield f"    received by {each['durable'] or each['subscriber']}: {each['filter']}{values}"
    for subscription in hop["kept_for"]:
        yield f"    if durable, kept for {subscription}"
    yield from _casts(hop.get("multicast") or {"groups": [], "by_links": []})
    if hop["forwards"] and not is_addressed:
        yield f"    sent on to {', '.join(hop['forwards'])}"
    if not (hop["sessions"] or hop["durable"] or hop["forwards"]):
        yield "    stops here: nothing matches"


def _casts(multicast: Mapping[str, Any]) -> Iterator[str]:
    for each in multicast["groups"]:
        vain = f"; in vain to {', '.join(each['in_vain'])}" if each["in_vain"] else ""
        yield f"    by group {each['group']} to {', '.join(each['to'])}{vain}"
    if multicast["by_links"]:
        yield f"    by links to {', '.join(multicast['by_links'])}"
