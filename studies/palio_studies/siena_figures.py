"""The figures of siena's study, in the order of the paper's section 6, and those beyond it."""

from __future__ import annotations

from typing import Final

from palio_studies.study import Axis, Figure

__all__ = ["FIGURES"]

_PARTIES: Final = Axis("parties", "interested parties", log=True)

_NAMES: Final = {
    "ce": "ce, centralized",
    "hs": "hs, hierarchical",
    "as": "as, acyclic",
    "aa": "aa, acyclic with advertisements",
    "ge": "ge, general",
    "st": "st, a tree for each source",
    "hy": "hy, hierarchies below peers",
    "fs": "fs, acyclic without covering",
    "pa": "pa, servers assemble patterns",
}

_CLASSES: Final = {
    "subscription": "subscriptions",
    "advertisement": "advertisements",
    "notification": "notifications",
}

_NUMBERS: Final = {
    "1": "1 object",
    "10": "10 objects",
    "100": "100 objects",
    "1000": "1,000 objects",
}


def _over_parties(name: str, title: str, column: str, label: str, caption: str) -> Figure:
    """A line for each architecture, a panel for each number of objects."""
    return Figure(
        name,
        title,
        "costs",
        _PARTIES,
        Axis(column, label, log=True),
        lines=("architecture",),
        panels="objects",
        caption=caption,
        names=_NAMES | _NUMBERS,
    )


def _of_one_object(name: str, title: str, column: str, label: str, caption: str) -> Figure:
    return Figure(
        name,
        title,
        "costs",
        _PARTIES,
        Axis(column, label, log=True),
        lines=("architecture",),
        where={"objects": 1},
        caption=caption,
        names=_NAMES,
    )


_CROWDS: Final = {"10": "10 parties", "100": "100 parties"}

_ASSEMBLERS: Final = {
    "aa": "aa, parties assemble",
    "pa": "pa, servers assemble",
    "1": "patterns over one object",
    "2": "patterns over two objects",
}

_SIZES: Final = {"100": "100 sites", "1000": "1,000 sites", "10000": "10,000 sites"}


def _of_patterns(name: str, title: str, column: str, label: str, caption: str) -> Figure:
    """Who assembles, over parties, for patterns of three steps."""
    return Figure(
        name,
        title,
        "delegation",
        _PARTIES,
        Axis(column, label, log=True),
        lines=("architecture",),
        panels="sources",
        where={"steps": 3},
        caption=caption,
        names=_ASSEMBLERS,
    )


def _of_sizes(name: str, title: str, column: str, label: str, caption: str) -> Figure:
    """The paper's architectures over parties a site, a panel for each number of sites."""
    return Figure(
        name,
        title,
        "sizes",
        Axis("parties_per_site", "interested parties a site", log=True),
        Axis(column, label, log=True),
        lines=("architecture",),
        panels="sites",
        caption=caption,
        names=_NAMES | _SIZES,
    )


_BEYOND: Final = (
    Figure(
        "load",
        "Links with a capacity: latency over load",
        "load",
        Axis("load", "load: published over what a link carries", log=True),
        Axis("latency_ms", "latency, mean, ms", log=True),
        lines=("architecture",),
        panels="parties",
        caption="At a load of 1 as much is published in the whole network as one direction of a "
        "link can carry. Where a link is full notifications wait, the longer the more have been "
        "published: 5,000 here. With few parties the root's links in hs are full first. as "
        "lies close beneath hy.",
        names=_NAMES | _CROWDS,
    ),
    Figure(
        "busiest",
        "Links with a capacity: the busiest direction of a link",
        "load",
        Axis("load", "load: published over what a link carries", log=True),
        Axis("busiest", "what comes for it, of what it carries", log=True),
        lines=("architecture",),
        panels="parties",
        caption="Above 1 a queue grows there. With a party a site most is wanted on most sides, "
        "and the lines fall together, as beneath hy.",
        names=_NAMES | _CROWDS,
    ),
    _of_patterns(
        "delegation",
        "Patterns: notifications with delegation and without",
        "notification_cost",
        "cost of notifications",
        "Each composite notification counts once. Events that parties assemble are shared on "
        "their way, occurrences are not: so pa grows with the parties, and aa flattens.",
    ),
    _of_patterns(
        "delegation-events",
        "Patterns: the same by events",
        "carried_cost",
        "cost of events in notifications",
        "A composite notification counts for each of its three events: about what bytes cost.",
    ),
    Figure(
        "delegation-steps",
        "Patterns: longer and shorter ones, 10 parties",
        "delegation",
        Axis("steps", "steps of a pattern"),
        Axis("notification_cost", "cost of notifications"),
        lines=("architecture",),
        panels="sources",
        where={"parties": 10},
        caption="The longer a pattern, the more events it wants and the more seldom it occurs. "
        "Over two objects, events still go to where their ways meet.",
        names=_ASSEMBLERS,
    ),
    _of_sizes(
        "sizes",
        "Total cost among more sites",
        "total",
        "total cost",
        "Ten objects. Lines flatten at about as many parties a site whatever the size. What hs "
        "pays for what is ignored matters less among many sites.",
    ),
    _of_sizes(
        "sizes-worst",
        "The busiest site among more sites",
        "worst_site",
        "cost of the busiest site",
        "Ten objects. The root of hs hears all that is published.",
    ),
)

FIGURES: Final = (
    Figure(
        "networks",
        "Site networks against the model",
        "networks",
        Axis("seed", "seed of the network"),
        Axis("mean_degree", "links a site, mean"),
        caption="The model's is 3.281 for 100 sites.",
        panels="sites",
    ),
    _over_parties(
        "total",
        "Comparison of total costs",
        "total",
        "total cost",
        "From about 100 parties on, one a site, hs, as and aa are flat. The more objects, the more "
        "hs pays for notifications that nobody wants. The logarithmic axis is ours: ce would "
        "hide the others, and the paper left it out.",
    ),
    Figure(
        "below-saturation",
        "Comparison of total costs below the saturation point",
        "costs",
        Axis("parties", "interested parties"),
        Axis("total", "total cost"),
        lines=("architecture",),
        panels="objects",
        where={"is_below": True},
        caption="On linear axes: each further party costs less than the one before.",
        names=_NAMES | _NUMBERS,
    ),
    _over_parties(
        "service",
        "Comparison of service costs",
        "cost_per_request",
        "cost a request of a client",
        "Total cost over all advertise, unadvertise, publish, subscribe and unsubscribe requests.",
    ),
    _of_one_object(
        "subscription",
        "Subscription cost with one object of interest",
        "cost_per_subscription",
        "cost a subscription",
        "A lone party's subscription goes to every server in as, to the root in hs.",
    ),
    Figure(
        "subscription-growth",
        "How far a lone subscription goes",
        "growth",
        Axis("sites", "sites", log=True),
        Axis("links_per_subscription", "links crossed, its end included", log=True),
        lines=("architecture",),
        caption="All sites in as; as many as the tree is deep in hs.",
        names=_NAMES,
    ),
    _of_one_object(
        "notification",
        "Notification cost with one object of interest",
        "cost_per_notification",
        "cost a notification",
        "hs and as are apart by what ignored notifications cost on their way to the root.",
    ),
    Figure(
        "vain",
        "Notification cost in the degenerate cases",
        "vain",
        Axis("n", "publications", log=True),
        Axis("cost_per_notification", "cost a notification"),
        lines=("architecture",),
        panels="parties",
        caption="Left nobody is interested; right ten parties take one notification each.",
        names=_NAMES | {"0": "no party", "10": "10 parties, one receipt each"},
    ),
    _over_parties(
        "ignored",
        "What ignored notifications cost",
        "ignored_cost",
        "cost of what nobody takes",
        "Ours. In as and aa something is left: parties go while notifications are on their way.",
    ),
    _over_parties(
        "worst-site",
        "Comparison of worst-case site costs",
        "worst_site",
        "cost of the busiest site",
        "The root of hs hears everything that is published.",
    ),
    Figure(
        "sites",
        "Cost by site, 100 parties",
        "loads",
        Axis("rank", "site, the busiest first", log=True),
        Axis("cost", "cost of the site", log=True),
        lines=("architecture",),
        panels="objects",
        where={"of": "site"},
        names=_NAMES | _NUMBERS,
    ),
    Figure(
        "links",
        "Cost by link, 100 parties",
        "loads",
        Axis("rank", "link, the busiest first", log=True),
        Axis("cost", "cost of the link", log=True),
        lines=("architecture",),
        panels="objects",
        where={"of": "link"},
        names=_NAMES | _NUMBERS,
    ),
    Figure(
        "classes",
        "Cost by class",
        "breakdown",
        _PARTIES,
        Axis("amount", "cost", log=True),
        lines=("architecture",),
        panels="what",
        where={"of": "cost"},
        caption="Only ce and aa pay for advertisements: where they mean nothing none is passed on.",
        names=_NAMES | _CLASSES,
    ),
    Figure(
        "messages",
        "Messages of plain siena, and of Palio",
        "breakdown",
        _PARTIES,
        Axis("amount", "messages over links", log=True),
        lines=("architecture",),
        panels="what",
        where={"of": "messages"},
        caption="They are nearly the same: with one kind of event hardly ever two requests go one "
        "way at one time.",
        names=_NAMES | {"Palio": "messages of Palio", "plain siena": "messages of plain siena"},
    ),
    Figure(
        "graphs",
        "Other architectures beside the acyclic one",
        "graphs",
        _PARTIES,
        Axis("total", "total cost", log=True),
        lines=("architecture",),
        panels="objects",
        caption="ge chooses nearly the tree of as. In st notifications take the shortest ways, and "
        "every server is told every subscription, as in fs.",
        names=_NAMES | _NUMBERS,
    ),
    Figure(
        "interests",
        "Subscriptions with ten kinds of events, with and without covering",
        "interests",
        _PARTIES,
        Axis("subscription_cost", "cost of subscriptions", log=True),
        lines=("architecture",),
        panels="skew",
        caption="Right, where the kind of rank r is wanted in proportion to 1/r, more filters are "
        "covered. fs is as without covering.",
        names=_NAMES | {"0.0": "all kinds alike", "1.0": "skewed"},
    ),
    *_BEYOND,
)
