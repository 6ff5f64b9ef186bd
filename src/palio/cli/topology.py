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
"""The words for a broker's role in the multicast plan in use."""


@with_broker
def topology(access: BrokerAccess, as_json: AsJson = False) -> int:
    """Show the brokers of a network and their links."""
    network = access.ask(lambda client: client.admin.topology())
    if as_json:
        show(network)
        return 0
    for line in _tree(network["asked"], network["brokers"]):
        show(line)
    if network["root"]:
        show(f"root: {network['root']}")
    if network["plan"] is not None:
        show(f"plan: {describe_plan(network['plan'])}")
    return 0


def describe_plan(plan: PlanInUse) -> str:
    """Describe a plan in use in one line.

    >>> plan = {"id": 7, "epoch_us": 1_800_000_000_000_000, "origin": "b1"}
    >>> plan |= {"method": "approximated", "groups": 2, "brokers": ["b1", "b2"]}
    >>> describe_plan(plan | {"replans": 0})
    'approximated, 2 groups for 2 brokers, applied at b1, epoch 2027-01-15T08:00:00+00:00'
    >>> describe_plan(plan | {"replans": 3}).partition("applied")[2]
    ' at b1, changed 3 times, epoch 2027-01-15T08:00:00+00:00'
    """
    epoch = datetime.fromtimestamp(plan["epoch_us"] / 1_000_000, UTC)
    changed = f"changed {plan['replans']:,} times, " if plan["replans"] else ""
    return (
        f"{plan['method']}, {plan['groups']:,} groups for {len(plan['brokers']):,} brokers, "
        f"applied at {plan['origin']}, {changed}epoch {epoch.isoformat()}"
    )


def _tree(root: str, brokers: Mapping[str, Any]) -> Iterator[str]:
    """Draw a breadth-first tree from `root`; then list other links, and unreachable brokers."""
    parents: dict[str, str] = {root: ""}
    queue = [root]
    for name in queue:
        for peer in _peers(name, brokers):
            if peer not in parents and brokers[peer]["reachable"]:
                parents[peer] = name
                queue.append(peer)
    yield from _branch(root, "", "", brokers, parents)
    # Both ends list a link, so its names are sorted to keep one. The tree has shown all links
    # between a broker and its parent.
    other_links = {
        (min(name, peer), max(name, peer))
        for name in parents
        for peer in _peers(name, brokers)
        if peer in parents and name not in (parents[peer], peer) and parents[name] != peer
    }
    if other_links:
        yield f"also linked: {_links_as_text(sorted(other_links))}"
    fallbacks = [(name, peer) for name in sorted(brokers) for peer in brokers[name]["found"]]
    if fallbacks:
        yield f"found for links that are lost: {_links_as_text(fallbacks)}"
    for name in sorted(brokers.keys() - parents.keys()):
        yield f"{name}  not reachable"
        yield from _durable_lines(brokers[name], "    ")


def _links_as_text(links: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} - {peer}" for name, peer in links)


def _branch(
    name: str,
    prefix: str,
    indent: str,
    brokers: Mapping[str, Any],
    parents: Mapping[str, str],
) -> Iterator[str]:
    """Draw a broker after `prefix`, and the brokers below it after `indent`."""
    broker = brokers[name]
    leaving = "leaving" if broker["leaving"] else ""
    below = f"below {broker['parent']}" if broker["parent"] else ""
    notes = _STANDINGS[broker["multicast"]], leaving, below
    yield "  ".join(filter(None, (f"{prefix}{name}", *notes)))
    children = [child for child in sorted(parents) if parents[child] == name]
    yield from _durable_lines(broker, indent + ("│     " if children else "      "))
    for child in children:
        is_last = child == children[-1]
        corner, bar = ("└── ", "    ") if is_last else ("├── ", "│   ")
        yield from _branch(child, indent + corner, indent + bar, brokers, parents)


def _peers(name: str, brokers: Mapping[str, Any]) -> list[str]:
    return [peer for peer in sorted(brokers[name]["links"]) if peer in brokers]


def _durable_lines(broker: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for subscription in broker["durable_subscriptions"]:
        yield f"{prefix}keeps events for {subscription}"


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
    events = list(inputs.events(event))
    if len(events) != 1:
        raise InvalidInput(f"trace takes one event, not {len(events)}")
    answer = access.ask(lambda client: client.admin.trace(events[0][1]))
    hops = answer["hops"]
    limited = {"limited": answer["limited"]} if "limited" in answer else {}
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
    """Return the last line of a trace without a receiver: unknown if a broker did not answer.

    >>> _conclusion([{"broker": "b1"}, {"broker": "b2", "withheld": True}])
    'unknown: b2 withheld its answer'
    """
    withheld = [hop["broker"] for hop in hops if hop.get("withheld")]
    unreachable = [hop["broker"] for hop in hops if hop.get("unreachable")]
    reasons = [f"{name} withheld its answer" for name in withheld]
    reasons += [f"{name} is not reachable" for name in unreachable]
    return f"unknown: {'; '.join(reasons)}" if reasons else "no receivers"


def _hop(hop: Mapping[str, Any], *, is_addressed: bool = False) -> Iterator[str]:
    """List the path to one broker, and each action that it would take.

    With multicast addressing the first broker sends to all destinations, so the `forwards` of
    later hops are not printed.
    """
    if hop.get("unreachable"):
        yield f"{hop['broker']}: not reachable; it and the brokers beyond are unknown"
        return
    if hop.get("withheld"):
        asker = hop["path"][-2]
        yield f"{hop['broker']}: withheld its answer; {asker} has no grant `monitor` there"
        return
    path = " > ".join(hop["path"])
    if hop.get("loop"):
        yield f"{path}: the event came back, and goes no further"
        return
    yield path
    for match in hop["matched"]:
        values = "".join(f", :{key} = {value!r}" for key, value in match["parameters"].items())
        receiver = match["durable"] or match["subscriber"]
        yield f"    received by {receiver}: {match['filter']}{values}"
    for subscription in hop["kept_for"]:
        yield f"    if durable, kept for {subscription}"
    yield from _multicast_lines(hop.get("multicast") or {"groups": [], "by_links": []})
    if hop["forwards"] and not is_addressed:
        yield f"    sent on to {', '.join(hop['forwards'])}"
    withheld_from = hop.get("withheld_from", [])
    if withheld_from:
        yield f"    withheld from {', '.join(withheld_from)}: no grant covers the event"
    if not (withheld_from or hop["sessions"] or hop["durable"] or hop["forwards"]):
        yield "    stops here: nothing matches"


def _multicast_lines(multicast: Mapping[str, Any]) -> Iterator[str]:
    for group in multicast["groups"]:
        vain = f"; in vain to {', '.join(group['in_vain'])}" if group["in_vain"] else ""
        yield f"    by group {group['group']} to {', '.join(group['to'])}{vain}"
    if multicast["by_links"]:
        yield f"    by links to {', '.join(multicast['by_links'])}"
