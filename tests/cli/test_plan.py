"""`palio plan`: what is made, what it says, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import palio
from palio.multicast.documents import decode, encode
from palio.multicast.listed import flooding
from tests.cli.brokers import broker
from tests.cli.helpers import Palio

NETWORK = {
    "b1": {"links": {"b2": 10}},
    "b2": {"price": 2, "links": {"b3": 1}},
    "b3": {"links": {"b4": 10}},
    "b4": {},
}
WISHES = [
    {"id": 1, "subscriber": "b1", "filter": "n < :most", "parameters": {"most": 10}},
    {"id": 2, "subscriber": "b2", "filter": "n < 20"},
    {"id": 3, "subscriber": "b3", "filter": "n >= 20 AND n < 90"},
]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Events in three kinds of file, subscriptions, a network, and where events went."""
    rows = [{"n": number} for number in range(100)]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.table({"n": [row["n"] for row in rows]}), tmp_path / "events.parquet")
    (tmp_path / "events.csv").write_text("n\n" + "".join(f"{row['n']}\n" for row in rows))
    (tmp_path / "wishes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in WISHES))
    (tmp_path / "network.json").write_text(json.dumps(NETWORK))
    went = [{"brokers": ["b1", "b2"], "count": 10}, {"brokers": ["b3"], "count": 30}]
    (tmp_path / "went.jsonl").write_text("".join(json.dumps(row) + "\n" for row in went))
    return tmp_path


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "csv"])
def test_a_plan_is_made_from_events_and_subscriptions(run: Palio, home: Path, kind: str) -> None:
    out = home / "plan.json"
    made = run(
        "plan", "make", "--events", str(home / f"events.{kind}"),
        "--subscriptions", str(home / "wishes.jsonl"), "--network", str(home / "network.json"),
        "--groups", "3", "--output", str(out), "--json",
    )  # fmt: skip
    assert made.status == 0, made.err
    assert "100 events, of which nobody wants 10" in made.err
    assert "costs: 45 of 90 events, held out" in made.err
    report = json.loads(made.out)
    assert (report["method"], report["groups"], report["waste"]) == ("ideal", 3, 0.0)
    plan, kept = decode(out.read_bytes())
    assert plan.brokers == ("b1", "b2", "b3", "b4")
    assert kept == {name: report[name] for name in kept}
    way = run("plan", "show", str(out), "--to", "b1,b2")
    assert way.out == "group 2 of b1, b2\n"
    shown = run("plan", "show", str(out))
    assert "ideal: 3 groups for 4 brokers" in shown.out
    assert "precision: 1.000" in shown.out
    assert "found by 45 events, held out" in shown.out


def test_a_plan_is_made_from_subscriptions_alone(run: Palio, home: Path) -> None:
    out = home / "plan.json"
    made = run(
        "plan", "make", "--subscriptions", str(home / "wishes.jsonl"), "--groups", "3",
        "--output", str(out), "--json",
    )  # fmt: skip
    assert made.status == 0, made.err
    assert "32,768 events drawn from the subscriptions" in made.err
    report = json.loads(made.out)
    assert (report["method"], report["groups"], report["waste"]) == ("ideal", 3, 0.0)
    # The sets of brokers that wish for any number: below 10, below 20, and between 20 and 90.
    ways = [run("plan", "show", str(out), "--to", to).out for to in ("b1,b2", "b2", "b3")]
    assert [way.partition(" of ")[2] for way in ways] == ["b1, b2\n", "b2\n", "b3\n"]


def test_methods_are_compared_the_cheapest_first(run: Palio, home: Path) -> None:
    arguments = ("plan", "compare", "--destinations", str(home / "went.jsonl"),
                 "--network", str(home / "network.json"), "--groups", "4")  # fmt: skip
    lines = run(*arguments).out.splitlines()
    assert lines[0].split() == [
        "method", "groups", "joins", "sends", "links", "precision", "waste", "price",
    ]  # fmt: skip
    names = [line.split()[0] for line in lines[1:]]
    assert names[0] == "ideal"
    assert names.index("flooding") > names.index("approximated")
    assert "hybrid: not possible" in lines[-1]
    document = json.loads(run(*arguments, "--json").out)
    assert "0% of what is wanted together stays in a cluster" in run(*arguments).err
    assert "100% of what" in run(*arguments[:-1], "9").err, "there are groups for b1 with b2"
    assert [each["method"] for each in document["plans"]] == names[: len(document["plans"])]
    assert list(document["impossible"]) == ["hybrid"]
    # An event in four goes to b1 and to b2, which costs 2: 0.25 * 3 + 0.75 * 1.
    assert document["plans"][0]["price"] == pytest.approx(1.5)


@pytest.mark.skipif(find_spec("pyspark") is None, reason="needs palio[spark]")
@pytest.mark.usefixtures("spark")  # the command finds it running, and starts and stops none
def test_events_may_be_matched_on_spark(run: Palio, home: Path) -> None:
    arguments = (
        "--events", str(home / "events.parquet"), "--subscriptions", str(home / "wishes.jsonl"),
        "--network", str(home / "network.json"), "--groups", "3", "--json",
    )  # fmt: skip
    here = run("plan", "make", "--output", str(home / "here.json"), *arguments)
    spark = run("plan", "make", "--output", str(home / "spark.json"), "--spark", *arguments)
    assert (here.status, spark.status) == (0, 0), spark.err
    assert (home / "here.json").read_bytes() == (home / "spark.json").read_bytes()
    lost = run("plan", "compare", "--spark", "--events", str(home / "no.parquet"),
                 "--subscriptions", str(home / "wishes.jsonl"))  # fmt: skip
    assert (lost.status, "cannot read events" in lost.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either --destinations"),
        (
            ["--destinations", "went.jsonl", "--subscriptions", "wishes.jsonl"],
            "give either --destinations",
        ),
        (["--destinations", "went.jsonl", "--events", "events.csv"], "go with --subscriptions"),
        (["--events", "events.csv"], "give either --destinations"),
        (["--subscriptions", "wishes.jsonl", "--spark"], "name them by --events"),
        (["--destinations", "nowhere.jsonl"], "cannot read"),
        (["--destinations", "network.json"], "line 1: Object contains unknown field"),
        (["--destinations", "events.csv"], "line 1: this is no JSON"),
        (
            ["--events", "events.csv", "--subscriptions", "went.jsonl"],
            "line 1: Object missing required field `subscriber`",
        ),
        (["--destinations", "went.jsonl", "--network", "went.jsonl"], "Expected `object`"),
        (["--destinations", "went.jsonl", "--method", "neighbours"], "needs the links"),
        (["--destinations", "went.jsonl", "--method", "ideal", "--groups", "1"], "2 found"),
    ],
)
def test_what_is_wrong_is_told(run: Palio, home: Path, arguments: list[str], message: str) -> None:
    given = [str(home / each) if "." in each else each for each in arguments]
    outcome = run("plan", "make", "--output", str(home / "plan.json"), *given)
    assert outcome.status == 2
    assert message in outcome.err
    assert not (home / "plan.json").exists()


@pytest.mark.parametrize(
    "network",
    [[], {"b1": 1}, {"b1": {"cost": 1}}, {"b1": {"links": {"b9": 1}}}, {"b1": {"links": {"b1": 0}}},
     {"b1": {"price": "dear"}}],
)  # fmt: skip
def test_a_network_is_an_object_of_brokers(run: Palio, home: Path, network: object) -> None:
    (home / "network.json").write_text(json.dumps(network))
    outcome = run("plan", "compare", "--destinations", str(home / "went.jsonl"),
                    "--network", str(home / "network.json"))  # fmt: skip
    assert outcome.status == 2
    assert "network.json: " in outcome.err


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"subscriber": "b1", "filter": "n <"}, "line 2: "),
        ({"subscriber": "b1", "filter": "n < :most"}, "line 2: "),
        ({"subscriber": "b9", "filter": "n < 1"}, "line 2: 'b9' is no broker"),
    ],
)
def test_a_bad_subscription_is_told_with_its_line(
    run: Palio, home: Path, row: dict[str, str], message: str
) -> None:
    wishes = home / "wishes.jsonl"
    wishes.write_text(json.dumps(WISHES[0]) + "\n" + json.dumps(row) + "\n")
    outcome = run("plan", "compare", "--events", str(home / "events.csv"), "--subscriptions",
                    str(wishes), "--network", str(home / "network.json"))  # fmt: skip
    assert (outcome.status, message in outcome.err) == (2, True), outcome.err


@pytest.mark.parametrize("count", ["1e999", "NaN", "1" + "0" * 400, "-1"])
def test_a_count_is_a_number_of_events(run: Palio, home: Path, count: str) -> None:
    went = home / "went.jsonl"
    went.write_text('{"brokers": ["b1"], "count": ' + count + "}\n")
    outcome = run("plan", "compare", "--destinations", str(went))
    assert (outcome.status, "line 1" in outcome.err) == (2, True), outcome.err


def test_a_plan_is_changed_by_a_few_groups(run: Palio, home: Path) -> None:
    network, old, new = (str(home / name) for name in ("network.json", "old.json", "new.json"))
    made = run("plan", "make", "--destinations", str(home / "went.jsonl"), "--network", network,
                 "--groups", "3", "--method", "approximated", "--output", old)  # fmt: skip
    assert made.status == 0
    (home / "other.jsonl").write_text('{"brokers": ["b3", "b4"], "count": 5}\n')
    now = ("plan", "make", "--destinations", str(home / "other.jsonl"), "--network", network)
    assert run(*now, "--output", new, "--change", old, "--changes", "1").status == 0
    before, after = (decode(Path(each).read_bytes())[0] for each in (old, new))
    assert (before.group_count, after.group_count) == (3, 3)
    assert run("plan", "show", new, "--to", "b3,b4").out == "group 0 of b3, b4\n"
    run(*now, "--method", "flooding", "--output", old)
    refused = run(*now, "--output", new, "--change", old)
    assert (refused.status, "only an approximated plan" in refused.err) == (2, True)


def test_of_a_few_events_none_are_held_out(run: Palio, home: Path) -> None:
    (home / "went.jsonl").write_text('{"brokers": ["b1"], "count": 19}\n')
    arguments = ("plan", "compare", "--destinations", str(home / "went.jsonl"))
    assert "of 20 events on half are held out" in run(*arguments).err
    (home / "went.jsonl").write_text('{"brokers": ["b1"], "count": 20}\n')
    assert "costs: 10 of 20 events, held out" in run(*arguments).err


def test_a_plan_for_nobody_is_none(run: Palio, home: Path) -> None:
    (home / "none.jsonl").write_text('{"brokers": []}\n')
    outcome = run("plan", "make", "--output", str(home / "p.json"),
                    "--destinations", str(home / "none.jsonl"),
                    "--network", str(home / "network.json"))  # fmt: skip
    assert (outcome.status, "nothing to plan for" in outcome.err) == (2, True)
    begin = run("plan", "show", str(home / "none.jsonl"), "--source", "b1")
    assert begin.status == 2


# --- apply ---


@pytest.fixture
def urls() -> Iterator[list[str]]:
    """Two linked brokers without a multicast way."""
    with (
        broker("b1", routing="flooded") as one,
        broker("b2", None, one, routing="flooded") as two,
        palio.SyncClient(one) as client,
    ):
        while "b2" not in client.admin.topology()["brokers"]:
            pass
        yield [one, two]


@pytest.fixture
def plan(tmp_path: Path) -> str:
    file = tmp_path / "plan.json"
    file.write_bytes(encode(flooding(("b1", "far"))))
    return str(file)


def test_brokers_without_a_multicast_way_know_the_plan_and_go_by_links(
    run: Palio, urls: list[str], plan: str
) -> None:
    outcome = run("plan", "apply", plan, "--broker", urls[0])
    assert outcome.status == 0, outcome.err
    first, last = outcome.out.splitlines()
    assert first.startswith("flooding, 1 groups for 2 brokers, applied at b1, epoch 20")
    assert last == "By links, for they have no multicast way: b1, b2"
    assert "not known in this network: far" in outcome.err
    assert "in no group, and get events by links: b2" in outcome.err
    shown = run("topology", "--broker", urls[1]).out.splitlines()
    assert shown[:2] == ["b2  by links", "└── b1  by links"]
    assert shown[-1] == f"plan: {first}"

    again = json.loads(run("plan", "apply", plan, "--broker", urls[1], "--json").out)
    assert (again["in_use"], again["links"], again["waiting"]) == (True, ["b1", "b2"], [])
    assert again["plan"]["origin"] == "b2"

    ended = run("plan", "apply", "--none", "--broker", urls[1])
    assert (ended.status, ended.out) == (0, "No plan is in use: brokers send by links.\n")
    assert run("topology", "--broker", urls[0]).out == "b1\n└── b2\n"
    assert run("plan", "apply", "--none", "--broker", urls[1], "--json").document["plan"] is None


def test_who_has_not_joined_in_time_is_named(run: Palio, plan: str) -> None:
    with broker("b1", routing="flooded", peer_grace_s=0.1) as one, palio.SyncClient(one) as client:
        with broker("b2", None, one, routing="flooded", peer_grace_s=0.1):
            while "b2" not in client.admin.topology()["brokers"]:
                pass
        while client.admin.topology()["brokers"]["b2"]["reachable"]:
            pass
        outcome = run("plan", "apply", plan, "--broker", one, "--timeout", "0.2")
        assert outcome.status == 1
        assert outcome.out.splitlines()[-1] == "Not joined within 0.2 s: b2"
        assert "not in force beyond b2" in outcome.err


def test_what_is_no_plan_and_no_choice_is_refused(run: Palio, plan: str, tmp_path: Path) -> None:
    for arguments in ((), (plan, "--none")):
        refused = run("plan", "apply", *arguments)
        assert (refused.status, "name a plan, or use --none" in refused.err) == (2, True)
    (tmp_path / "none.json").write_text("{}")
    refused = run("plan", "apply", str(tmp_path / "none.json"))
    assert (refused.status, "no plan of groups" in refused.err) == (2, True)
