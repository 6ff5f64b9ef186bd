"""How the study of parametric subscriptions is run, and every number of it."""

from __future__ import annotations

from typing import Final

from palio_studies.study import Choice

__all__ = ["CHOICES", "METHOD"]

METHOD: Final = """\
A subscriber has one bound that it changes all the time. It *trembles* with each update, and swings
between a narrow and a wide region every 400 ms. Three ways to change it are compared: one UPD, and
re-subscription in both orders at brokers that know SUB and USUB only. The network is virtual, with
the routers that serve users: 20 brokers, 10 ms on every link and between every client and its
broker. A broker works a while on each request and each event, so load shows as delay.

**Delay**: from a swing to the wide region until the first event that only the wide one matches. One
that was not answered when the window closed counts until then, and in `unheard`. **Throughput**:
events that were delivered and pass the newest value. **Spurious**: those that reach the client and
fail it. **Missed**: of the events that every value of a subscriber matched, and that were published
in the first half of the window, those that did not reach it by its end.

**Kinds of brokers.** The paper ran Siena, where requests rearrange the poset that events walk, and
EventJava, where events have a network of their own. Here *siena* matches by the walk through the
poset (`PosetSelector`), has one line for requests and events, and takes 5 us for each filter
looked at: all of the poset for a request, those tried for an event. *rete* matches apart from the
poset, has a line for requests and one for events, and takes 70 us for a request and 50 us for an
event.
*steady* has one line and one time for everything, which is swept. No Rete network was built: what
stands for it is its independence of the poset, which is what the paper explains its results by.

**Joining.** A broker that is behind may join the requests of one sender that wait: of ten updates
the last is left, of ten re-subscriptions the last pair. Either all ways have it or none has; the
paper does not speak of it. A USUB of what never began is no work.

**Real brokers** are a line of processes in network namespaces, 10 ms on every link, six clients at
its end and a publisher at its beginning. They are parametric, whoever asks: of a re-subscription
only the first broker hears two requests. Without the permission to make namespaces this part is not
run.
"""

CHOICES: Final = (
    Choice("brokers", "20; 5 real ones, 3 at small scale", "20", "real ones share two processors"),
    Choice("latency", "10 ms, every link and client", "10 ms on each link, clients' too"),
    Choice("HTM", "a random mesh, 10 publishers a broker", "a connected graph, 10 a broker"),
    Choice(
        "HTM, subscribers",
        "5 a broker; 1,000 in `crowd`",
        "1,000 to 5,000 a broker",
        "with 5 of 20 updates a second each broker hears as many updates, and few are hidden by "
        "others: the harder case for all. 1,000 vehicles that move once a minute are run, too",
    ),
    Choice(
        "AT",
        "a tree with fanout 3, 5 publishers, 150 subscribers, 200 types, at least 3 between",
        "a hierarchy, 5 publishers, 150 subscribers, 200 types, at least 3 brokers between",
    ),
    Choice(
        "scaling",
        "a random mesh, 100 publishers, 150 subscribers, 200 types",
        "a connected graph, 100 publishers, 150 subscribers, 200 types",
    ),
    Choice(
        "rates, HTM and AT",
        "10 and 100 updates a second and broker; AT on rete 1,000, too",
        "10 to 100",
        "at 1,000 re-subscriptions fill brokers, and updates do not",
    ),
    Choice(
        "rates, scaling",
        "10, 100 and, joined, 1,000 updates a second and subscriber",
        "up to 1,000",
        "without joining all 20 brokers would hear 150,000 updates a second, ten processors' work; "
        "siena ends at 100, as the paper says",
    ),
    Choice("operators, HTM", "40% >=, 40% <=, 20% =", "40% >=, 40% <=, 40% =", "to make 100%"),
    Choice("operators, AT", "a third each of <=, >=, =", "35%, 33%, 33%"),
    Choice(
        "event rate",
        "600 a second in all; 9,600 in `flow`, ten in a message",
        "more than 9,000 a second delivered to a subscriber",
        "delay and the factors depend on load; the rate of the paper is run once for each workload",
    ),
    Choice(
        "work of siena",
        "5 us a filter",
        "",
        "its requests are linear in the poset. In the scaling workload, where a broker has 140 "
        "filters, re-subscribing 100 times a second then fills a broker with its own clients "
        "alone, which is where the paper says that Siena ends",
    ),
    Choice(
        "work of rete",
        "70 us a request, 50 us an event, two processors",
        "dual core machines",
        "EventJava lost half at ten times the rate at which Siena ended, and delivered more than "
        "9,000 events a second, so at most 110 us each",
    ),
    Choice("UPD, SUB, USUB", "the same work each", "", "each is one change of the poset"),
    Choice("regions", "a fifth and four fifths of the values", "", "selectivities were not given"),
    Choice("watched", "12 subscribers with a range, 40 events a second each", ""),
    Choice("seeds", "5", "", "topology, draws and phases"),
    Choice("window", "1 to 1.2 s; 4 s on real brokers", "", "five seeds of each run in minutes"),
)
