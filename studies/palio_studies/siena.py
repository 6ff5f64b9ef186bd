"""Siena's study: what the architectures cost as objects of interest and interested parties grow."""

from __future__ import annotations

from functools import partial
from typing import Final

from palio_studies.siena_claims import CLAIMS
from palio_studies.siena_runs import EXPERIMENTS
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

**Messages.** The paper counts a message for each request and each notification. So do all costs
here, though Palio sends several requests that go one way at one time as one message.
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
    Choice("runs of a point", "10 seeds; 2 at small scale", "10"),
)

_log: Final = partial(Axis, log=True)
_PARTIES: Final = _log("parties", "interested parties")

_NAMES: Final = {
    "ce": "ce, centralized",
    "hs": "hs, hierarchical",
    "as": "as, acyclic",
    "aa": "aa, acyclic with advertisements",
}
_NUMBERS: Final = _NAMES | {
    "1": "1 object",
    "10": "10 objects",
    "100": "100 objects",
    "1000": "1,000 objects",
}
_DISTRIBUTED: Final = {"is_distributed": True}

_figure: Final = partial(Figure, lines=("architecture",), names=_NAMES)
_costs: Final = partial(_figure, experiment="costs", x=_PARTIES, panels="objects", names=_NUMBERS)
_one_object: Final = partial(
    _figure, experiment="costs", x=_PARTIES, where={**_DISTRIBUTED, "objects": 1}
)
_FIGURES: Final = (
    _costs(
        "total",
        "Comparison of total costs",
        y=Axis("total", "total cost"),
        where=_DISTRIBUTED,
        caption="From about 100 parties on, one a site, hs, as and aa are flat. The more objects, "
        "the more hs pays for notifications that nobody wants. As in the paper, ce is left out.",
    ),
    _costs(
        "central",
        "Comparison of total costs with the centralized architecture",
        y=_log("total", "total cost"),
        caption="Ours, with a logarithmic axis.",
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
        y=Axis("cost_per_request", "cost a request of a client"),
        where=_DISTRIBUTED,
        caption="Total cost over all advertise, unadvertise, publish, subscribe and unsubscribe "
        "requests.",
    ),
    _one_object(
        "subscription",
        "Subscription cost with one object of interest",
        y=Axis("cost_per_subscription", "cost a subscription"),
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
        y=Axis("cost_per_notification", "cost a notification"),
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
        "worst-site",
        "Comparison of worst-case site costs",
        y=Axis("worst_site", "cost of the busiest site"),
        where=_DISTRIBUTED,
        caption="The root of hs hears everything that is published.",
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
