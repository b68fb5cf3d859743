"""`roquette group seek|show|delete`, `msg`, `dlq`, `client` and `namesrv diff` as a user types them."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from tests.cli.conftest import Roquette

from roquette import StartFrom
from roquette.sync import Client


def wait_for(check: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not check():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.1)


def consume_all(namesrv: str, topic: str, group: str, count: int) -> None:
    """Join a group, take so many, leave."""
    seen: list[bytes] = []
    with Client(namesrv) as mq:
        consumer = mq.subscribe(
            topic,
            group=group,
            handler=lambda message: seen.append(message.body),
            start_from=StartFrom.FIRST,
        )
        wait_for(lambda: len(seen) == count)
        consumer.close()


def test_a_group_is_moved_shown_and_deleted(roquette: Roquette, namesrv: str) -> None:
    assert roquette("topic", "create", "moved", "--queues", "1").exit_code == 0
    assert roquette("produce", "moved", "a", "b", "c", "d", "e").exit_code == 0
    consume_all(namesrv, "moved", "movers", 5)
    seek = ("group", "seek", "movers", "--topic", "moved", "--to")
    (row,) = json.loads(roquette(*seek, "-2", "--dry-run", "-o", "json").stdout)
    assert (row["committed"], row["target"], row["delta"]) == (5, 3, -2)
    asked = roquette(*seek, "-2")
    assert "let group movers get 2 messages again and never get 0: there is no terminal" in str(
        asked.exception
    )
    (lag,) = json.loads(roquette("group", "lag", "movers", "--topic", "moved", "-o", "json").stdout)
    assert lag["lag"] == 0
    assert roquette(*seek, "-2", "--yes").exit_code == 0
    (lag,) = json.loads(roquette("group", "lag", "movers", "--topic", "moved", "-o", "json").stdout)
    assert lag["lag"] == 2
    assert "is no place in a queue: say" in str(roquette(*seek, "somewhere").exception)
    assert "no broker has topic nowhere" in str(
        roquette("group", "seek", "movers", "--topic", "nowhere", "--to", "first").exception
    )

    assert "has no member that is online" in str(roquette("group", "show", "movers").exception)
    with Client(namesrv) as mq:
        mq.subscribe("moved", group="movers", handler=lambda message: None)
        (member,) = json.loads(roquette("group", "show", "movers", "-o", "json").stdout)
        assert member["language"] == "PYTHON" and member["queues"] == 2  # and that of retries
        listed = json.loads(roquette("client", "ls", "--group", "movers", "-o", "json").stdout)
        assert [(each["client"], each["kind"]) for each in listed] == [
            (member["client"], "consumer")
        ]
        stacks = roquette("client", "stacks", "movers")
        assert stacks.exit_code == 0 and member["client"] in stacks.stdout
        assert "has no member nobody" in str(
            roquette("client", "stacks", "movers", "--client", "nobody").exception
        )
        assert "has 1 members online" in str(
            roquette("group", "delete", "movers", "--yes").exception
        )
    deleted = roquette("group", "delete", "movers", "--yes")
    assert deleted.exit_code == 0 and "deleted on: broker-a" in deleted.stderr
    assert "no broker knows group movers" in str(
        roquette("group", "delete", "movers", "--yes").exception
    )


def test_readers_of_a_topic_topics_of_a_group_and_counters(
    roquette: Roquette, namesrv: str
) -> None:
    assert roquette("topic", "create", "counted", "--queues", "1").exit_code == 0
    nobody = roquette("topic", "readers", "counted")
    assert nobody.exit_code == 0 and "no group reads the topic" in nobody.stderr
    assert roquette("produce", "counted", "a", "b", "c").exit_code == 0
    consume_all(namesrv, "counted", "counters", 3)
    (row,) = json.loads(roquette("topic", "readers", "counted", "-o", "json").stdout)
    assert row == {"group": "counters", "topic": "counted", "brokers": 1}
    rows = json.loads(roquette("group", "topics", "counters", "-o", "json").stdout)
    assert row in rows and {each["group"] for each in rows} == {"counters"}
    assert json.loads(roquette("group", "topics", "nobody", "-o", "json").stdout) == []
    assert "nowhere" in str(roquette("topic", "readers", "nowhere").exception)

    def minute() -> object:
        shown = roquette("broker", "stats", "TOPIC_PUT_NUMS", "counted", "-o", "json")
        spans = {row["span"]: row for row in json.loads(shown.stdout or "[]")}
        return spans.get("minute", {}).get("sum")

    wait_for(lambda: minute() == 3)
    assert "not exist" in str(roquette("broker", "stats", "TOPIC_PUT_NUMS", "nowhere").exception)


def test_messages_are_found_and_sent_again(roquette: Roquette, namesrv: str) -> None:
    assert roquette("topic", "create", "found", "--queues", "1").exit_code == 0
    sent = roquette("produce", "found", "--key", "k1", "--tag", "t", stdin="body\n")
    assert sent.exit_code == 0
    find = ("msg", "find", "k1", "--topic", "found", "-o", "json")
    wait_for(lambda: roquette(*find).exit_code == 0)
    (row,) = json.loads(roquette(*find).stdout)
    for which in ((row["id"], "-t", "found"), ("broker-a:0:0", "-t", "found")):
        message = json.loads(roquette("msg", "get", *which).stdout)
        assert (message["body"], message["tag"], message["keys"]) == ("body", "t", ["k1"])
    again = roquette("msg", "resend", row["id"], "-t", "found", "--yes", "-o", "json")
    (resent,) = json.loads(again.stdout)
    assert resent["topic"] == "found" and resent["new_id"] not in ("", row["id"])
    wait_for(lambda: len(json.loads(roquette(*find).stdout)) == 2)
    copy = json.loads(roquette("msg", "get", "broker-a:0:1", "-t", "found").stdout)
    assert (copy["body"], copy["tag"], copy["keys"]) == ("body", "t", ["k1"])
    tail = roquette("msg", "tail", "found", "--offset", "-1", "--count", "1")
    assert json.loads(tail.stdout)["offset"] == 1
    parts = roquette(
        "msg", "tail", "found", "--offset", "first", "--contains", "od", "--count", "2"
    )
    assert len(parts.stdout.splitlines()) == 2
    assert roquette("consume", "found", "--contains", "elsewhere").stdout == ""

    assert roquette("msg", "find", "absent", "--topic", "found").exit_code == 1
    for words, said in (
        (("msg", "get", "xyz"), "no message xyz is found; an id that its sender made"),
        (("msg", "get", "broker-a:0:0"), "say of which topic"),
        (("msg", "get", "broker-a:0:7", "-t", "found"), "holds no message; before it there is 1"),
        (("msg", "get", "broker-a:9:0", "-t", "found"), "has no queue broker-a:9"),
        (("msg", "tail", "found", "--offset", "soon"), "is no place in a queue"),
        (("msg", "tail", "found", "--context", "nowhere"), "nowhere"),
    ):
        assert said in str(roquette(*words).exception), words


def test_the_newest_messages_are_listed_page_by_page_and_filtered(roquette: Roquette) -> None:
    assert roquette("topic", "create", "listed", "--queues", "2").exit_code == 0
    for tag in ("paid", "new"):
        assert roquette("produce", "listed", "--tag", tag, *"abcde").exit_code == 0
    seen: list[object] = []
    before: tuple[str, ...] = ()
    while True:
        shown = roquette("msg", "ls", "listed", "--most", "4", *before, "-o", "json")
        seen += [(row["tag"], row["queue"], row["offset"]) for row in json.loads(shown.stdout)]
        assert "read" in shown.stderr
        if "older: --before " not in shown.stderr:
            break
        before = ("--before", shown.stderr.split("--before ")[1].strip())
    assert len(seen) == len(set(seen)) == 10 and [tag for tag, *_ in seen][:5] == ["new"] * 5  # type: ignore[misc]
    for words in (("--tags", "paid"), ("--tag", "paid"), ("--sql", "TAGS = 'paid'")):
        rows = json.loads(roquette("msg", "ls", "listed", *words, "-o", "json").stdout)
        assert [row["tag"] for row in rows] == ["paid"] * 5, words
        tail = roquette("msg", "tail", "listed", "--offset", "first", *words, "--count", "5")
        assert {json.loads(line)["tag"] for line in tail.stdout.splitlines()} == {"paid"}, words
    assert roquette("msg", "ls", "listed", "--tag", "none").stdout == ""
    for flags, said in (
        (("--tag", "a", "--sql", "a = 1"), "not both"),
        (("--sql", "a ="), "a ="),
        (("--queue", "broker-a"), "is no queue: say BROKER:NUMBER"),
        (("--before", "soon"), "is no place in a queue"),
    ):
        assert said in str(roquette("msg", "ls", "listed", *flags).exception), flags


def test_dead_letters_are_seen_sent_again_and_deleted(roquette: Roquette, namesrv: str) -> None:
    assert roquette("topic", "create", "doomed", "--queues", "1").exit_code == 0
    assert "has no dead letters" in str(roquette("dlq", "ls", "mourners").exception)
    assert roquette("produce", "doomed", "--key", "k", stdin="poison\n").exit_code == 0
    with Client(namesrv) as mq:
        mq.subscribe(
            "doomed",
            group="mourners",
            handler=lambda message: False,
            start_from=StartFrom.FIRST,
            max_reconsume_times=0,
        )
        wait_for(lambda: roquette("dlq", "ls", "mourners").exit_code == 0)
    ls = ("dlq", "ls", "mourners", "-o", "json")
    wait_for(lambda: len(json.loads(roquette(*ls).stdout)) == 1)
    assert json.loads(roquette(*ls, "--since", "@-1ms").stdout) == []
    assert "is no time" in str(roquette(*ls, "--since", "-5").exception)
    again = roquette("dlq", "resend", "mourners", "--yes", "-o", "json")
    (row,) = json.loads(again.stdout)
    assert (row["topic"], row["error"]) == ("doomed", "")
    copy = json.loads(roquette("msg", "get", "broker-a:0:1", "-t", "doomed").stdout)
    assert (copy["body"], copy["keys"], copy["properties"].get("RETRY_TOPIC")) == (
        "poison",
        ["k"],
        None,
    )
    at = ("dlq", "resend", "mourners", "--at", "broker-a:0:0", "--at", "broker-a:0:9")
    chosen = roquette(*at, "--to", "found-again", "--yes", "-o", "json")
    sent, missing = json.loads(chosen.stdout)
    assert chosen.exit_code == 1
    assert (sent["topic"], sent["error"], missing["new_id"]) == ("found-again", "", "")
    assert "holds no message; before it there is 0" in missing["error"]
    assert json.loads(roquette(*ls, "--before", "first").stdout) == []
    assert len(json.loads(roquette(*ls, "--before", "broker-a:0:1").stdout)) == 1
    assert "of one group" in str(roquette("dlq", "ls", "--before", "first").exception)
    nothing = roquette("dlq", "resend", "mourners", "--before", "first", "--yes", "-o", "json")
    assert json.loads(nothing.stdout) == []
    assert "say --yes" in str(roquette("dlq", "purge", "mourners").exception)
    assert len(json.loads(roquette(*ls).stdout)) == 1
    purged = roquette("dlq", "purge", "mourners", "--yes")
    assert purged.exit_code == 0 and "1 dead letter of mourners deleted" in purged.stderr


def test_name_servers_that_agree_and_one_that_is_silent(roquette: Roquette, namesrv: str) -> None:
    agreed = roquette("namesrv", "diff")
    assert agreed.exit_code == 0 and "1 name server: no difference" in agreed.stderr
    silent = roquette("namesrv", "diff", "-n", f"{namesrv};127.0.0.1:1", "-o", "json")
    assert silent.exit_code == 10
    assert [row["kind"] for row in json.loads(silent.stdout)] == ["name server"]


def test_a_file_is_applied_once(roquette: Roquette, namesrv: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("topics:\n  applied: {queues: 3}\ngroups:\n  appliers: {retries: 2}\n")
    planned = roquette("apply", "-f", str(file), "--plan", "-o", "json")
    assert planned.exit_code == 10
    steps = [row for row in json.loads(planned.stdout) if row["effect"] != "drift"]
    assert [(row["kind"], row["subject"], row["now"]) for row in steps] == [
        ("topic", "applied", ""),
        ("group", "appliers", ""),
    ]
    assert "say --yes" in str(roquette("apply", "-f", str(file)).exception)
    assert roquette("apply", "-f", str(file), "--yes").exit_code == 0
    again = roquette("apply", "-f", "-", "--plan", stdin=file.read_text())
    assert again.exit_code == 0
    file.write_text("topics:\n  applied: {queues: 1}\n")
    lossy = roquette("apply", "-f", str(file), "--yes")
    assert (
        lossy.exit_code == 10 and "roquette topic resize applied --queues 1 --wait" in lossy.stderr
    )
    file.write_text("topics:\n  applied: {cluster: nowhere}\n")
    assert "names what is not there: cluster nowhere" in str(
        roquette("apply", "-f", str(file), "--yes").exception
    )
    assert "cannot be read" in str(roquette("apply", "-f", str(tmp_path / "absent")).exception)


def test_one_group_is_changed_by_what_is_said(roquette: Roquette) -> None:
    group = ("apply", "--group", "set-one")
    said = ("--set", "retryMaxTimes=3", "--attribute", "priority.factor=50")
    planned = roquette(*group, *said, "--plan", "-o", "json")
    assert planned.exit_code == 10
    (step,) = json.loads(planned.stdout)
    assert (step["subject"], step["now"], step["wanted"]) == (
        "set-one",
        "",
        "retryMaxTimes=3 priority.factor=50",
    )
    assert "no broker knows group set-one" in str(
        roquette("group", "show", "set-one", "--settings").exception
    )
    assert roquette(*group, *said, "--yes").exit_code == 0
    refuses = roquette(*group, "--set", "consumeEnable=false", "--yes")
    assert refuses.exit_code == 10 and "its members are refused" in refuses.stderr
    policy = 'groupRetryPolicy={"type":"EXPONENTIAL"}'
    assert (
        roquette(*group, "--set", policy, "--attribute", "priority.factor=", "--yes").exit_code == 0
    )
    assert roquette(*group, "--set", "retryMaxTimes=3", "--plan").exit_code == 0
    shown = json.loads(roquette("group", "show", "set-one", "--settings", "-o", "json").stdout)
    table = {row["key"]: row["value"] for row in shown}
    assert table["retryMaxTimes"] == "3" and table["consumeEnable"] == "true"
    assert json.loads(table["groupRetryPolicy"])["type"] == "EXPONENTIAL"
    assert "priority.factor" not in table

    for words, refusal in {
        (): "say either --file FILE, or --group",
        ("-f", "x", "--group", "g"): "say either --file FILE, or --group",
        ("-f", "x", "--set", "a=b"): "say either --file FILE, or --group",
        ("--group", "a b", "--yes"): "a b",
        ("--group", "g", "--set", "retryMaxTime=3"): "did you mean retryMaxTimes?",
        ("--group", "g", "--set", "retryMaxTimes"): "is not of the form KEY=VALUE",
        ("--group", "g", "--set", "groupRetryPolicy={"): "groupRetryPolicy is {",
        ("--group", "g", "--attribute", "no.such=1", "--yes"): "unsupported key: no.such",
    }.items():
        assert refusal in str(roquette("apply", *words).exception)


def test_only_what_has_left_is_forgotten(roquette: Roquette) -> None:
    name = json.loads(roquette("cluster", "-o", "json").stdout)[0]["broker"]

    asked = roquette("broker", "forget", name)
    assert f"expect {name} no more: there is no terminal" in str(asked.exception)
    living = roquette("broker", "forget", name, "--yes")
    assert f"no name server remembers a broker {name} that has left" in str(living.exception)
    assert roquette("cluster").exit_code == 0
    no_group = roquette("broker", "forget", name, "--id", "2", "--yes")
    assert "this name server keeps no records of groups" in str(no_group.exception)
