"""Siena's study: what the architectures cost as objects of interest and interested parties grow."""

from __future__ import annotations

from typing import Final

from palio_studies.siena_beyond_claims import BEYOND_CLAIMS
from palio_studies.siena_beyond_runs import BEYOND_EXPERIMENTS, CAPACITY
from palio_studies.siena_claims import CLAIMS
from palio_studies.siena_figures import FIGURES
from palio_studies.siena_runs import EXPERIMENTS
from palio_studies.study import Choice, Study

__all__ = ["STUDY"]

METHOD: Final = """\
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

CHOICES: Final = (
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

STUDY: Final = Study(
    name="siena",
    title="Siena: architectures for a wide-area event service",
    paper="Carzaniga, Rosenblum, Wolf: Design and Evaluation of a Wide-Area Event Notification "
    "Service, 2001",
    method=METHOD,
    choices=CHOICES,
    experiments=(*EXPERIMENTS, *BEYOND_EXPERIMENTS),
    figures=FIGURES,
    claims=(*CLAIMS, *BEYOND_CLAIMS),
)
