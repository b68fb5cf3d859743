"""All 89 sub-commands of Apache's mqadmin 5.5.0 against two brokers, compared with what they say of Apache's.

expected/mqadmin_commands.json keeps the facts of Apache's servers; ROQUETTE_INTEROP_PROVE=1 compares those again,
and ROQUETTE_INTEROP_RECORD=1 with it writes the file.
"""

import contextlib
import json
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.interop.conftest import PROVE, SETTINGS
from tests.interop.driver import CLASS_PATHS, Driver
from tests.interop.mqadmin_commands import COMMANDS, Command, Outcome, facts
from tests.interop.peers import (
    SMALL_JVM,
    Process,
    Server,
    call,
    compiled,
    start_broker,
    start_namesrv,
)

HERE = Path(__file__).parent
EXPECTED = HERE / "expected" / "mqadmin_commands.json"
PAGE = HERE.parents[1] / "docs" / "reference" / "mqadmin.md"
RECORD = os.environ.get("ROQUETTE_INTEROP_RECORD") == "1"
SOON_S = 60.0
SENT = 8

_AUTH = "org.apache.rocketmq.auth"
USERS_OF_APACHE = {  # its commands about users need them, closed or not
    "timerWheelEnable": "true",  # its deleteTopic throws without it
    "authenticationProvider": f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authenticationMetadataProvider": f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationProvider": f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorizationMetadataProvider": f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
}


class Yard:
    """A name server, two brokers, a producer and a consumer of Java, and SENT messages consumed."""

    def __init__(self, flavour: str, folder: Path, started: contextlib.ExitStack) -> None:
        self.folder, self.files = folder, folder / "files"
        self.namesrv = self._own(started, start_namesrv(flavour, folder / "namesrv"))
        settings = SETTINGS | (USERS_OF_APACHE if flavour == "apache" else {})
        self.brokers = [
            self._own(
                started,
                start_broker(
                    flavour,
                    folder / name,
                    self.namesrv.address,
                    name=name,
                    settings=settings | {"authConfigPath": str(folder / name / "auth")}
                    if flavour == "apache"
                    else settings,
                ),
            )
            for name in ("broker-a", "broker-b")
        ]
        self.java = Driver("5.5.0", folder / "java")
        started.callback(self.java.stop)
        self.words: dict[str, str] = {}

    def _own(self, started: contextlib.ExitStack, server: Server) -> Server:
        started.callback(server.discard)
        return server

    def fill(self) -> None:
        """The state in which the commands are run."""
        self.files.mkdir()
        queues = {"readQueueNums": 3, "writeQueueNums": 3, "perm": 6}
        topics = [{"topicName": f"L{number}", **queues} for number in range(2)]
        (self.files / "topics.json").write_text(json.dumps(topics))
        groups = [{"groupName": f"LG{number}", "retryMaxTimes": 3} for number in range(2)]
        (self.files / "groups.json").write_text(json.dumps(groups))
        namesrv = self.namesrv.address
        for broker in self.brokers:
            fields = {
                "topic": "T1",
                "defaultTopic": "TBW102",
                "readQueueNums": "4",
                "writeQueueNums": "4",
            }
            fields |= {
                "perm": "6",
                "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0",
                "order": "false",
            }
            answer = call(broker.address, 17, fields)
            assert answer is not None and answer[0]["code"] == 0
        until(lambda: all(name in self.route("T1") for name in (b"broker-a", b"broker-b")))
        self.java("producer", name="p", group="PG", namesrv=namesrv, topic="T1")
        sending = {"name": "p", "topic": "T1", "keys": "k", "oneKey": 1, "tags": "a"}
        sent: list[dict[str, Any]] = []
        for name in ("broker-a", "broker-b"):
            for queue in range(SENT // 2):
                place = {"mode": "forced", "brokerName": name, "queueId": queue}
                sent += self.java("send", **place, **sending)["results"]
        self.java(
            "consumer", name="c", group="CG", namesrv=namesrv, topic="T1", expression="a || b"
        )
        assert len(self.java("dump", name="c", min=SENT, timeout=60_000)["messages"]) == SENT
        until(self.progressed)
        addresses = [broker.address for broker in self.brokers]
        self.words = {
            "a": addresses[0],
            "b": addresses[1],
            "at": addresses[0],
            "n": namesrv,
            "files": str(self.files),
            "id": sent[0]["offsetMsgId"],
            "unique": sent[0]["msgId"],
            "queue": "0",
            "home": "broker-a",
        }

    def progressed(self) -> bool:
        """Whether the consumer has told its offsets in both topics, at both brokers."""
        printed = self.java.mqadmin("consumerProgress", "-n", self.namesrv.address, "-g", "CG")
        rows = [line.split() for line in printed.splitlines() if "broker-" in line]
        told = sum(int(row[4]) for row in rows if row[0] == "T1")
        return told == SENT and sum(row[0] == "%RETRY%CG" for row in rows) == 2

    def route(self, topic: str) -> bytes:
        answer = call(self.namesrv.address, 105, {"topic": topic})
        return answer[1] if answer and answer[0]["code"] == 0 else b""

    def run(self, command: Command) -> list[list[str]]:
        """The facts of each run, and of the files it wrote."""
        printed = [self._printed(command, words) for words in command.runs]
        printed += [(self.files / name).read_text() for name in command.files.split()]
        return [facts(command, self._named(each)) for each in printed]

    def _printed(self, command: Command, words: str) -> str:
        filled = words.format_map(self.words).split()
        if command.name == "clusterRT":
            return self._begins(command.name, *filled)
        return self.java.mqadmin(command.name, "-n", self.namesrv.address, *filled)

    def _begins(self, *words: str) -> str:
        """The first two lines of a command that does not end."""
        java = ("java", *SMALL_JVM, "-cp", compiled(CLASS_PATHS["5.5.0"]))
        main = "org.apache.rocketmq.tools.command.MQAdminStartup"
        command = [*java, main, *words, "-n", self.namesrv.address]
        process = Process(command, self.folder / "tool", {"ROCKETMQ_HOME": str(self.folder)})
        try:
            return "\n".join(process.line(SOON_S) for _ in range(2))
        finally:
            process.kill()

    def _named(self, printed: str) -> str:
        for name, server in zip(
            ("NAMESRV", "BROKER_A", "BROKER_B"), (self.namesrv, *self.brokers), strict=True
        ):
            printed = printed.replace(server.address, name)
        return re.sub(r"/\S*/S1-\d+", "FILE", printed.replace(str(self.folder), "FOLDER"))


def until(condition: Any) -> None:
    end = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.1)


PROVEN = [pytest.param("apache")] if PROVE else []


@pytest.fixture(scope="module", params=["roquette", *PROVEN])
def yard(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Yard]:
    with contextlib.ExitStack() as started:
        found = Yard(request.param, tmp_path_factory.mktemp(f"commands-{request.param}"), started)
        found.fill()
        yield found


@pytest.mark.interop
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.feature("admin", client="Java 5.5.0")
def test_every_sub_command(yard: Yard) -> None:
    apache = yard.brokers[0].flavour == "apache"
    known = (
        json.loads(EXPECTED.read_text()) if EXPECTED.exists() and not (RECORD and apache) else {}
    )
    found = {command.name: yard.run(command) for command in COMMANDS}
    if RECORD and apache:
        EXPECTED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
        return
    wrong = {}
    for command in COMMANDS:
        runs = found[command.name]
        for number, (ours, theirs) in enumerate(zip(runs, known[command.name], strict=True)):
            if problem := difference(command, ours, theirs, apache):
                wrong[f"{command.name} {command.runs[number : number + 1]}"] = problem
    assert not wrong, json.dumps(wrong, indent=1)


def difference(command: Command, ours: list[str], theirs: list[str], apache: bool) -> object:
    """What is wrong with what a command says; None: nothing."""
    if command.outcome is Outcome.REFUSED and not apache:
        return None if any("CODE" in line or "Exception" in line for line in ours) else ours
    if command.outcome is Outcome.GROUPS:
        return None if ours else "it says nothing"
    if command.differs:
        return other_values(command.differs, ours, theirs)
    more, less = Counter(ours) - Counter(theirs), Counter(theirs) - Counter(ours)
    return {"more": sorted(more), "less": sorted(less)} if more or less else None


def other_values(allowed: str, ours: list[str], theirs: list[str]) -> object:
    """Keys of both with values that should be the same; None: there are keys of both, and no such one."""
    mine, other = (
        dict(line.split("=", 1) for line in lines if "=" in line) for lines in (ours, theirs)
    )
    both = mine.keys() & other.keys()
    if len(both) < 20:
        return {"too few": sorted(both)}
    return {
        key: (mine[key], other[key])
        for key in both
        if mine[key] != other[key] and not re.search(allowed, key)
    } or None


def test_the_table_for_people_is_the_harness_own_list() -> None:
    rows = [
        line.split("|")[1:5]
        for line in PAGE.read_text().splitlines()
        if line.startswith("| ") and line[2].isdigit()
    ]
    shown = [tuple(cell.strip().strip("`") for cell in row) for row in rows]
    listed = [
        (str(c.number), c.name, str(c.outcome), c.note)
        for c in sorted(COMMANDS, key=lambda c: c.number)
    ]
    assert shown == listed
    assert [c.number for c in sorted(COMMANDS, key=lambda c: c.number)] == list(range(1, 90))
    counts = Counter(command.outcome for command in COMMANDS)
    said = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome)
    assert said in PAGE.read_text()
