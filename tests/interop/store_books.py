"""What a broker is given and what it must still have when another one has opened its store.

All of it over raw frames, so that the same words go to Apache's brokers and to ours.
"""

import json
import time
import zlib
from dataclasses import dataclass, field
from typing import Any

from tests.interop.peers import Server
from tests.real_servers import RawConnection, pull_fields

from roquette.message.properties import decode_properties, encode_properties
from roquette.message.record import decode_records, encode_batch
from roquette.message.record_layout import StoredRecord

PLAIN, PACKED, DELAYED, SOLD, TIMED = "Plain", "Packed", "Delayed", "Sold", "Timed"
SIX = "Six"  # written with IPv6 hosts
# As retries of pops have; no client can name it. Its records are of the second form, which 4.9 does not know.
LONG = "%RETRY%" + "long_group_" * 10 + "+" + "topic" * 20
HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
SCHEDULE, WHEEL = "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
GROUP = "keeper"
QUEUES = {PLAIN: 4, PACKED: 2, DELAYED: 1, SOLD: 1, TIMED: 1, SIX: 2}
COMPRESSED, PREPARED, COMMIT, ROLLBACK = 1, 4, 8, 12
MAKE_TOPIC, SEND, SEND_BATCH, PULL, QUERY, VIEW, END = 17, 310, 320, 11, 12, 33, 37
ALL_TOPICS, ALL_GROUPS = 21, 201
TOPIC_NOT_EXIST = 17
MAX_OFFSET, MIN_OFFSET, COMMIT_OFFSET, QUERY_OFFSET, MAKE_GROUP = 30, 31, 15, 14, 200


@dataclass
class Sent:
    """One message that was acknowledged."""

    topic: str
    queue: int
    offset: int
    message_id: str
    body: bytes
    named: dict[str, str]


@dataclass
class Books:
    """All that was sent and seen, over all brokers."""

    sent: list[Sent] = field(default_factory=list)
    late: dict[str, list[bytes]] = field(default_factory=dict)  # topic -> bodies that must come
    seen: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)  # raw records
    long: dict[int, bytes] = field(default_factory=dict)  # physical offset -> raw record
    committed: int = 0
    halves: list[dict[str, str]] = field(default_factory=list)  # what ends those still open
    exact: bool = True  # every broker stops cleanly: nothing late comes twice, the index is whole
    turn: int = 0


class Desk:
    """One running broker, spoken to in frames."""

    def __init__(self, broker: Server, books: Books, *, old: bool) -> None:
        """`old`: a 4.9 broker takes part, which knows no timers and no long topics."""
        host, _, port = broker.address.rpartition(":")
        self.connection = RawConnection((host, int(port)), 60.0)
        self.books = books
        self.old = old
        books.turn += 1

    def ask(self, code: int, fields: dict[str, Any], body: bytes = b"") -> tuple[Any, bytes]:
        """One request that must succeed: the answer's fields and body."""
        head, data = self.connection.call(code, fields, body)
        assert head["code"] == 0, (code, fields, head.get("code"), head.get("remark"))
        return head.get("extFields", {}), data

    # Giving

    def prepare(self) -> None:
        """Topics and a group, with settings that are not the defaults."""
        for topic, queues in QUEUES.items():
            fields = {
                "topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues,
                "writeQueueNums": queues, "perm": 6, "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0, "order": "false",
            }  # fmt: skip
            self.ask(MAKE_TOPIC, fields)
        group = {
            "groupName": GROUP, "consumeEnable": True, "consumeFromMinEnable": False,
            "consumeBroadcastEnable": False, "retryQueueNums": 3, "retryMaxTimes": 7,
            "brokerId": 0, "whichBrokerWhenConsumeSlowly": 1,
        }  # fmt: skip
        self.ask(MAKE_GROUP, {}, json.dumps(group).encode())

    def send(
        self,
        topic: str,
        queue: int,
        body: bytes,
        named: dict[str, str] | None = None,
        sys_flag: int = 0,
        code: int = SEND,
    ) -> dict[str, str]:
        """One message (or batch body); the answer's fields."""
        fields = {
            "a": "pg", "b": topic, "c": "TBW102", "d": 4, "e": queue, "f": sys_flag,
            "g": int(time.time() * 1000), "h": 7, "i": encode_properties(named or {}), "j": 0,
            "k": "false", "m": "true" if code == SEND_BATCH else "false",
        }  # fmt: skip
        told, _ = self.ask(code, fields, body)
        assert int(told["queueId"]) == queue
        return told

    def keep(
        self, topic: str, queue: int, body: bytes, named: dict[str, str], sys_flag: int = 0
    ) -> None:
        """Send a message that stays where it is put."""
        told = self.send(topic, queue, body, named, sys_flag)
        offset = int(told["queueOffset"])
        self.books.sent.append(Sent(topic, queue, offset, told["msgId"], body, named))

    def give(self) -> None:
        """A share of everything, under names of this turn."""
        turn = self.books.turn
        for n in range(60):
            named = {"KEYS": f"k{turn}-{n} all", "UNIQ_KEY": f"u{turn}-{n}", "TAGS": f"t{n % 3}"}
            body = b"%d-%d-" % (turn, n) + b"." * (n * 97 % 3000)
            self.keep(PLAIN, n % 4, body, named | {"x": "ü€😀"})
        packed = zlib.compress(b"squeezed" * 500)
        self.keep(PACKED, 0, packed, {"UNIQ_KEY": f"p{turn}"}, COMPRESSED)
        batch = [
            (n, b"batch-%d-%d" % (turn, n), f"UNIQ_KEY\x01b{turn}-{n}\x02".encode())
            for n in range(10)
        ]
        told = self.send(PACKED, 1, encode_batch(batch), code=SEND_BATCH)
        first, ids = int(told["queueOffset"]), told["msgId"].split(",")
        for n, (_, body, properties) in enumerate(batch):
            named = decode_properties(properties.decode())
            self.books.sent.append(Sent(PACKED, 1, first + n, ids[n], body, named))
        self._give_late()
        self._give_halves()
        self.books.committed = turn * 10
        self.ask(COMMIT_OFFSET, self._group_fields(PLAIN, 1) | {"commitOffset": turn * 10})

    def _give_late(self) -> None:
        turn, late = self.books.turn, self.books.late
        for level in (1, 2, 3, *range(7, 19)):  # others, of 30 s to 2 min, may or may not be due
            body = b"level-%d-%d" % (turn, level)
            self.send(DELAYED, 0, body, {"DELAY": str(level), "UNIQ_KEY": f"d{turn}-{level}"})
            if level <= 3:  # 1, 5 and 10 seconds; the others, 3 minutes and more, stay on their way
                late.setdefault(DELAYED, []).append(body)
        if not self.old:
            for seconds in (2, 8, 3600):
                body = b"timed-%d-%d" % (turn, seconds)
                named = {"UNIQ_KEY": f"w{turn}-{seconds}"}
                at_ms = int((time.time() + seconds) * 1000)
                self.send(TIMED, 0, body, named | {"TIMER_DELIVER_MS": str(at_ms)})
                if seconds < 60:
                    late.setdefault(TIMED, []).append(body)

    def _give_halves(self) -> None:
        """Three of each turn: one ends here, two are left to the next broker."""
        turn, books = self.books.turn, self.books
        open_ones: list[dict[str, str]] = []
        for n in range(3):
            body = b"half-%d-%d" % (turn, n)
            key = f"h{turn}-{n}"
            named = {"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": "pg"}
            told = self.send(SOLD, 0, body, named, PREPARED)
            kind = ROLLBACK if n == 2 else COMMIT
            end = {
                "producerGroup": "pg", "tranStateTableOffset": told["queueOffset"],
                "commitLogOffset": str(int(told["msgId"][-16:], 16)), "msgId": key,
                "commitOrRollback": str(kind), "fromTransactionCheck": "false", "transactionId": key,
            }  # fmt: skip
            open_ones.append(end)
            if kind == COMMIT:
                books.late.setdefault(SOLD, []).append(body)
        self.ask(END, open_ones.pop(0))
        books.halves += open_ones

    def end_halves(self) -> None:
        """End what an earlier broker was left with."""
        halves, self.books.halves = self.books.halves, []
        for end in halves:
            self.ask(END, end)

    # Looking

    def _group_fields(self, topic: str, queue: int) -> dict[str, Any]:
        return {"consumerGroup": GROUP, "topic": topic, "queueId": queue}

    def bounds(self, topic: str, queue: int) -> tuple[int, int]:
        """The first offset and the next one."""
        where = {"topic": topic, "queueId": queue}
        low, _ = self.ask(MIN_OFFSET, where)
        high, _ = self.ask(MAX_OFFSET, where)
        return int(low["offset"]), int(high["offset"])

    def read(self, topic: str, queue: int) -> list[bytes]:
        """The raw records of a queue."""
        low, high = self.bounds(topic, queue)
        found: list[bytes] = []
        while low + len(found) < high:
            fields = pull_fields(topic, queue, low + len(found))
            head, data = self.connection.call(PULL, fields)
            assert head["code"] == 0, (topic, queue, low + len(found), high, head)
            position = 0
            for record in decode_records(data, check_crc=True):
                found.append(data[position : position + record.size])
                position += record.size
        return found

    def _is_hidden(self, topic: str, queue: int) -> bool:
        """Apache's 4.9 knows its own topics of transactions only after its first look at them."""
        head, _ = self.connection.call(PULL, pull_fields(topic, queue, 0))
        return self.old and topic in (HALF, OP) and head["code"] == TOPIC_NOT_EXIST

    def places(self) -> list[tuple[str, int]]:
        """Every queue, those of the system included."""
        found = [(topic, queue) for topic, count in QUEUES.items() for queue in range(count)]
        found += [(HALF, 0), (OP, 0), *((SCHEDULE, level) for level in range(18))]
        return found if self.old else [*found, (WHEEL, 0)]

    def _until_queued(self) -> None:
        """Apache's queues follow its log."""
        ends: dict[tuple[str, int], int] = {}
        for message in self.books.sent:
            place = message.topic, message.queue
            ends[place] = max(ends.get(place, 0), message.offset + 1)
        deadline = time.monotonic() + 60
        for place, end in ends.items():
            while (high := self.bounds(*place)[1]) < end:
                assert time.monotonic() < deadline, (place, high, end)
                time.sleep(0.05)

    def check(self) -> None:
        """All queues still begin with the very bytes that were seen before, and hold what was sent."""
        self._until_queued()
        books = self.books
        for place in self.places():
            low, _ = self.bounds(*place)
            assert low == 0, (place, low)
            known = books.seen.get(place, [])
            if self._is_hidden(*place):
                continue
            found = self.read(*place)
            assert found[: len(known)] == known, difference(place, known, found)
            records = [decode_records(raw)[0] for raw in found]
            assert [record.queue_offset for record in records] == list(
                range(low, low + len(found))
            ), place
            ends = [record.physical_offset for record in records]
            assert ends == sorted(set(ends)), place
            books.seen[place] = found
        for message in books.sent:
            raw = books.seen[message.topic, message.queue][message.offset]
            [record] = decode_records(raw)
            assert record.body == message.body, message
            named = decode_properties(record.properties)
            assert {name: named.get(name) for name in message.named} == message.named
        for offset, raw in books.long.items():
            _, data = self.ask(VIEW, {"topic": LONG, "offset": offset})
            assert data == raw
        if books.long:
            assert self.bounds(LONG, 0) == (0, len(books.long))
        if not books.committed:
            return
        answer, _ = self.ask(QUERY_OFFSET, self._group_fields(PLAIN, 1))
        assert int(answer["offset"]) == books.committed

    def check_settings(self) -> None:
        """Topics and the group are what they were made."""
        _, data = self.ask(ALL_TOPICS, {})
        topics = json.loads(data)["topicConfigTable"]
        for topic, queues in QUEUES.items():
            found = topics[topic]
            assert (found["readQueueNums"], found["writeQueueNums"]) == (queues, queues)
        _, data = self.ask(ALL_GROUPS, {})
        group = json.loads(data)["subscriptionGroupTable"][GROUP]
        assert (group["retryQueueNums"], group["retryMaxTimes"]) == (3, 7)
        assert group["consumeFromMinEnable"] is False

    def check_queries(self) -> None:
        """By key, by unique key, by id: messages of every turn are found."""
        chosen = [message for message in self.books.sent if message.offset % 4 == 1]
        if (
            not self.books.exact
        ):  # after a crash Apache drops index files that are younger than its checkpoint
            turn = str(self.books.turn)
            chosen = [
                message for message in chosen if message.named["UNIQ_KEY"].split("-")[0][1:] == turn
            ]
        for message in chosen:
            wanted = self.books.seen[message.topic, message.queue][message.offset]
            _, data = self.ask(VIEW, {"topic": message.topic, "offset": _offset_of(message)})
            assert data == wanted, message
            unique = self.found(message.topic, message.named["UNIQ_KEY"], unique=True)
            assert message.body in [record.body for record in unique], message
            if "KEYS" in message.named:
                key = message.named["KEYS"].split()[0]
                found = self.found(message.topic, key)
                named = [decode_properties(record.properties)["KEYS"] for record in found]
                assert message.named["KEYS"] in named, (message, named)

    def found(self, topic: str, key: str, *, unique: bool = False) -> list[StoredRecord]:
        """What a query by key gives; the index may follow a little later."""
        fields = {
            "topic": topic, "key": key, "maxNum": 32, "beginTimestamp": 0, "endTimestamp": 1 << 60,
            "_UNIQUE_KEY_QUERY": "true" if unique else "false",
        }  # fmt: skip
        deadline = time.monotonic() + 60
        while True:
            head, data = self.connection.call(QUERY, fields)
            if head["code"] == 0 or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        assert head["code"] == 0, (topic, key, head)
        return decode_records(data, check_crc=True)

    def check_late(self, within_s: float = 60) -> None:
        """What was delayed, timed or committed has come once, and nothing of it twice."""
        deadline = time.monotonic() + within_s
        for topic, wanted in self.books.late.items():
            while True:
                bodies = [decode_records(raw)[0].body for raw in self.read(topic, 0)]
                if set(bodies) >= set(wanted) or time.monotonic() > deadline:
                    break
                time.sleep(0.2)
            assert set(bodies) == set(wanted), (topic, bodies, wanted)
            assert not self.books.exact or len(bodies) == len(wanted), (topic, bodies, wanted)

    def close(self) -> None:
        """Hang up."""
        self.connection.close()


def _offset_of(message: Sent) -> int:
    return int(message.message_id[-16:], 16)


def difference(place: tuple[str, int], known: list[bytes], found: list[bytes]) -> str:
    """Where two readings of a queue part."""
    for n, (before, now) in enumerate(zip(known, found, strict=False)):
        if before != now:
            return f"{place}: record {n} was {before!r}, is {now!r}"
    return f"{place}: had {len(known)} records, has {len(found)}"
