"""Siena's study: what the architectures cost as objects of interest and interested parties grow."""

from __future__ import annotations

from functools import partial
from typing import Final

from palio_studies.siena_claims import CLAIMS
from palio_studies.siena_runs import CAPACITY, EXPERIMENTS
from palio_studies.study import Axis, Choice, Figure, Study

_METHOD: Final = """\
100 sites, drawn anew for each seed by the transit-stub model, have a server each. Servers are
linked as their sites. A message costs the sum of the lengths of the site links that it crosses;
within a site it costs nothing. *Objects of interest* repeat (advertise, publish some
notifications with Poisson gaps, unadvertise); *interested parties* repeat (subscribe, receive some
notifications, unsubscribe). Both are at random sites, the same ones for every architecture of a
seed, and all publish and want the same kind of event. The servers are the product's routers in its
simulator, and what crosses a link is counted there, by class of message.

| short | architecture |
|---|---|
| ce | centralized: one server at the transit site in the middle, reached over site links |
| hs | hierarchical, subscription forwarding; the root is that same site |
| as | acyclic peers, subscription forwarding; the same tree as hs |
| aa | acyclic peers, advertisement forwarding; the same tree |
| ge | general: all site links, of which the servers choose a tree |
| st | general: all site links, a tree of shortest ways for each publishing server |
| fs | acyclic, without covering: each server is told each subscription |
| hy | hybrid: a hierarchy in each stub, the transit sites are acyclic peers |
| pa | as aa; servers assemble patterns, each where the ways of its events meet |

**Messages.** The paper counts a message for each request and each notification. So do all costs
here. Palio sends several requests that go one way at one time as one message; how many messages
that makes is shown beside. Where a wider filter takes the place of narrower ones, plain siena
implies that these are cancelled and Palio says so; this is left out of the count of plain
messages, not of costs.

**Beyond the paper.** *Load*: links carry so many notifications a second and no more, and what comes
too fast waits in order. *Patterns*: parties want sequences of events, and assemble them themselves
(aa) or leave that to the servers (pa). For both, everybody advertises and subscribes, all comes to
rest, and only then notifications are published, at a steady rate and by chance. *Sizes*: the
paper's applications among 1,000 and 10,000 sites; ge is left out, whose servers would tell each
other of links in 170 million messages.
"""

_CHOICES: Final = (
    Choice("sites", "100", "100"),
    Choice(
        "network",
        "1 transit domain of 4 sites, 3 stubs a transit site, 8 sites a stub; two sites are linked "
        "with a chance of 0.6 in the transit domain, 0.42 in a stub; each domain connected",
        "transit-stub, by the public generator of Georgia Tech; parameters not given",
        "the generator's own example of 100 sites",
    ),
    Choice(
        "price of a link",
        "its length; sites lie at random in squares 200 wide (transit domain) and 100 (stub)",
        '"relative costs"; numbers not given',
        "the generator's scales of 20 and 10, times ten to have whole numbers",
    ),
    Choice(
        "tree of hs, as and aa",
        "the shortest ways from the transit site in the middle, the root of hs",
        "an image of the site network; how cycles are left out was not given",
        "the same tree for all, so that only what servers say differs",
    ),
    Choice("latency of a link", "10 ms", "constant; not given"),
    Choice("m, advertisements of an object", "4", "lost", "ratios low, as the paper has them"),
    Choice("n, publications of each", "5", "lost"),
    Choice("mean time between publications", "1 s", "lost", "long beside the 0.2 s across"),
    Choice("p, subscriptions of a party", "2", "lost"),
    Choice(
        "q, receipts of each",
        "5",
        "lost; all notifications are more than a party consumes, and some are ignored",
        "a party takes 10 of the 20 of one object",
    ),
    Choice("when they begin", "all at once", "not given", "nothing but publications takes time"),
    Choice("objects", "1, 10, 100, 1,000", "1, 10, 100, 1,000"),
    Choice(
        "parties",
        "1 to 10,000; with one server to 1,000",
        "1 to 10,000 or more",
        "the cost of one server has grown in step with the parties for long",
    ),
    Choice(
        "cost of a site",
        "what it sends and what it receives; the busiest of each run, mean over runs",
        "the busiest of the means over runs",
        "each run has a network of its own here",
    ),
    Choice(
        "capacity of a link (load)",
        f"{CAPACITY:g} notifications a second each way, the same for all links, of which none is "
        "lost; servers take no time, and ce is left out",
        "not limited",
        "one notification takes 10 ms, as long as it is on its way",
    ),
    Choice(
        "interests (load)",
        "100 objects, of ten kinds, publish 5,000 values; a party wants one kind, from some value "
        "on",
        "one kind",
        "with 10 parties most is ignored, with 100 most is wanted on most sides",
    ),
    Choice(
        "patterns",
        "3 steps, of one object's events or of two objects' in turn, each step from some value on; "
        "no time limit; 10 objects publish 1,000 values",
        "not simulated",
        "",
    ),
    Choice(
        "sites and parties (sizes)",
        "100, 1,000 and 10,000 sites; for each 0.1, 1, 3 and 10 parties; 10 objects",
        "100 sites",
    ),
    Choice("runs of a point", "10 seeds; 2 at small scale, 3 beyond, 6 of load", "10"),
)

_log: Final = partial(Axis, log=True)
_PARTIES: Final = _log("parties", "interested parties")
_TOTAL: Final = _log("total", "total cost")
_LOAD: Final = _log("load", "load: published over what a link carries")

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
_NUMBERS: Final = _NAMES | {
    "1": "1 object",
    "10": "10 objects",
    "100": "100 objects",
    "1000": "1,000 objects",
}
_KINDS: Final = _NAMES | {
    "subscription": "subscriptions",
    "advertisement": "advertisements",
    "notification": "notifications",
    "Palio": "messages of Palio",
    "plain siena": "messages of plain siena",
}
_CROWDS: Final = _NAMES | {"10": "10 parties", "100": "100 parties"}
_SIZES: Final = _NAMES | {"100": "100 sites", "1000": "1,000 sites", "10000": "10,000 sites"}
_ASSEMBLERS: Final = {
    "aa": "aa, parties assemble",
    "pa": "pa, servers assemble",
    "1": "patterns over one object",
    "2": "patterns over two objects",
}

_figure: Final = partial(Figure, lines=("architecture",), names=_NAMES)
_costs: Final = partial(_figure, experiment="costs", x=_PARTIES, panels="objects", names=_NUMBERS)
_one_object: Final = partial(_figure, experiment="costs", x=_PARTIES, where={"objects": 1})
_at_sites: Final = partial(_figure, experiment="loads", panels="objects", names=_NUMBERS)
_breakdown: Final = partial(
    _figure, experiment="breakdown", x=_PARTIES, panels="what", names=_KINDS
)
_loaded: Final = partial(_figure, experiment="load", x=_LOAD, panels="parties", names=_CROWDS)
_patterns: Final = partial(
    _figure, experiment="delegation", x=_PARTIES, panels="sources", names=_ASSEMBLERS
)
_sizes: Final = partial(
    _figure,
    experiment="sizes",
    x=_log("parties_per_site", "interested parties a site"),
    panels="sites",
    names=_SIZES,
)

_FIGURES: Final = (
    Figure(
        "networks",
        "Site networks against the model",
        "networks",
        Axis("seed", "seed of the network"),
        Axis("mean_degree", "links a site, mean"),
        caption="The model's is 3.281 for 100 sites.",
        panels="sites",
    ),
    _costs(
        "total",
        "Comparison of total costs",
        y=_TOTAL,
        caption="From about 100 parties on, one a site, hs, as and aa are flat. The more objects, "
        "the more hs pays for notifications that nobody wants. The logarithmic axis is ours: ce "
        "would hide the others, and the paper left it out.",
    ),
    _costs(
        "below-saturation",
        "Comparison of total costs below the saturation point",
        x=Axis("parties", "interested parties"),
        y=Axis("total", "total cost"),
        where={"is_below": True},
        caption="On linear axes: each further party costs less than the one before.",
    ),
    _costs(
        "service",
        "Comparison of service costs",
        y=_log("cost_per_request", "cost a request of a client"),
        caption="Total cost over all advertise, unadvertise, publish, subscribe and unsubscribe "
        "requests.",
    ),
    _one_object(
        "subscription",
        "Subscription cost with one object of interest",
        y=_log("cost_per_subscription", "cost a subscription"),
        caption="A lone party's subscription goes to every server in as, to the root in hs.",
    ),
    _figure(
        "subscription-growth",
        "How far a lone subscription goes",
        "growth",
        _log("sites", "sites"),
        _log("links_per_subscription", "links crossed, its end included"),
        caption="All sites in as; as many as the tree is deep in hs.",
    ),
    _one_object(
        "notification",
        "Notification cost with one object of interest",
        y=_log("cost_per_notification", "cost a notification"),
        caption="hs and as are apart by what ignored notifications cost on their way to the root.",
    ),
    _figure(
        "vain",
        "Notification cost in the degenerate cases",
        "vain",
        _log("n", "publications"),
        Axis("cost_per_notification", "cost a notification"),
        panels="parties",
        caption="Left nobody is interested; right ten parties take one notification each.",
        names=_NAMES | {"0": "no party", "10": "10 parties, one receipt each"},
    ),
    _costs(
        "ignored",
        "What ignored notifications cost",
        y=_log("ignored_cost", "cost of what nobody takes"),
        caption="Ours. In as and aa something is left: parties go while notifications are on their "
        "way.",
    ),
    _costs(
        "worst-site",
        "Comparison of worst-case site costs",
        y=_log("worst_site", "cost of the busiest site"),
        caption="The root of hs hears everything that is published.",
    ),
    _at_sites(
        "sites",
        "Cost by site, 100 parties",
        x=_log("rank", "site, the busiest first"),
        y=_log("cost", "cost of the site"),
        where={"of": "site"},
    ),
    _at_sites(
        "links",
        "Cost by link, 100 parties",
        x=_log("rank", "link, the busiest first"),
        y=_log("cost", "cost of the link"),
        where={"of": "link"},
    ),
    _breakdown(
        "classes",
        "Cost by class",
        y=_log("amount", "cost"),
        where={"of": "cost"},
        caption="Only ce and aa pay for advertisements: where they mean nothing none is passed on.",
    ),
    _breakdown(
        "messages",
        "Messages of plain siena, and of Palio",
        y=_log("amount", "messages over links"),
        where={"of": "messages"},
        caption="They are nearly the same: with one kind of event hardly ever two requests go one "
        "way at one time.",
    ),
    _costs(
        "graphs",
        "Other architectures beside the acyclic one",
        experiment="graphs",
        y=_TOTAL,
        caption="ge chooses nearly the tree of as. In st notifications take the shortest ways, and "
        "every server is told every subscription, as in fs.",
    ),
    _figure(
        "interests",
        "Subscriptions with ten kinds of events, with and without covering",
        "interests",
        _PARTIES,
        _log("subscription_cost", "cost of subscriptions"),
        panels="skew",
        caption="Right, where the kind of rank r is wanted in proportion to 1/r, more filters are "
        "covered. fs is as without covering.",
        names=_NAMES | {"0.0": "all kinds alike", "1.0": "skewed"},
    ),
    _loaded(
        "load",
        "Links with a capacity: latency over load",
        y=_log("latency_ms", "latency, mean, ms"),
        caption="At a load of 1 as much is published in the whole network as one direction of a "
        "link can carry. Where a link is full notifications wait, the longer the more have been "
        "published: 5,000 here. With few parties the root's links in hs are full first. as "
        "lies close beneath hy.",
    ),
    _loaded(
        "busiest",
        "Links with a capacity: the busiest direction of a link",
        y=_log("busiest", "what comes for it, of what it carries"),
        caption="Above 1 a queue grows there. With a party a site most is wanted on most sides, "
        "and the lines fall together, as beneath hy.",
    ),
    _patterns(
        "delegation",
        "Patterns: notifications with delegation and without",
        y=_log("notification_cost", "cost of notifications"),
        where={"steps": 3},
        caption="Each composite notification counts once. Events that parties assemble are shared "
        "on their way, occurrences are not: so pa grows with the parties, and aa flattens.",
    ),
    _patterns(
        "delegation-events",
        "Patterns: the same by events",
        y=_log("carried_cost", "cost of events in notifications"),
        where={"steps": 3},
        caption="A composite notification counts for each of its three events: about what bytes "
        "cost.",
    ),
    _patterns(
        "delegation-steps",
        "Patterns: longer and shorter ones, 10 parties",
        x=Axis("steps", "steps of a pattern"),
        y=Axis("notification_cost", "cost of notifications"),
        where={"parties": 10},
        caption="The longer a pattern, the more events it wants and the more seldom it occurs. "
        "Over two objects, events still go to where their ways meet.",
    ),
    _sizes(
        "sizes",
        "Total cost among more sites",
        y=_TOTAL,
        caption="Ten objects. Lines flatten at about as many parties a site whatever the size. "
        "What hs pays for what is ignored matters less among many sites.",
    ),
    _sizes(
        "sizes-worst",
        "The busiest site among more sites",
        y=_log("worst_site", "cost of the busiest site"),
        caption="Ten objects. The root of hs hears all that is published.",
    ),
)

STUDY: Final = Study(
    name="siena",
    title="Siena: architectures for a wide-area event service",
    paper="Carzaniga, Rosenblum, Wolf: Design and Evaluation of a Wide-Area Event Notification "
    "Service, 2001",
    method=_METHOD,
    choices=_CHOICES,
    experiments=EXPERIMENTS,
    figures=_FIGURES,
    claims=CLAIMS,
)
