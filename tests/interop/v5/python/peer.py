"""Apache's v5 client for Python as a program the tests drive: a command a line, a line of JSON an answer.

The commands are the same in every language (../../v5.py). It runs in an environment of its own.
"""

import json
import sys
import time
from urllib.parse import unquote

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

made = {}
seen = {}
views = {}


def configuration(a):
    credentials = Credentials(a.get("accessKey", ""), a.get("secretKey", ""))
    return ClientConfiguration(a["endpoints"], credentials, a.get("namespace", ""))


def filters(a):
    if "sql" in a:
        return {a["topic"]: FilterExpression(a["sql"], FilterType.SQL)}
    return {a["topic"]: FilterExpression(a.get("tags", "*"))}


class Checker(TransactionChecker):
    def __init__(self, a):
        self.a = a

    def check(self, message):
        seen[self.a["name"]].append(told(message))
        names = {"COMMIT": TransactionResolution.COMMIT, "ROLLBACK": TransactionResolution.ROLLBACK}
        return names.get(
            self.a.get("check", ""), TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED
        )


class Listener(MessageListener):
    def __init__(self, a):
        self.seen = seen[a["name"]]
        self.fail_until = int(a.get("failUntil", 0))

    def consume(self, message):
        self.seen.append(told(message))
        if message.delivery_attempt <= self.fail_until:
            return ConsumeResult.FAILURE
        return ConsumeResult.SUCCESS


def start(a, client):
    client.startup()
    made[a["name"]] = client


def producer(a):
    seen[a["name"]] = []
    tls = "tls" in a
    start(a, Producer(configuration(a), (a["topic"],), checker=Checker(a), tls_enable=tls))


def message(a, i):
    found = Message()
    found.topic = a["topic"]
    found.body = f"{a.get('body', 'm')}-{i}".encode()
    if "tag" in a:
        found.tag = a["tag"]
    if "key" in a:
        found.keys = a["key"]
    if "order" in a:
        found.message_group = a["order"]
    if "delay" in a:  # whole seconds are what it takes
        found.delivery_timestamp = int(time.time() + int(a["delay"]) / 1000)
    if "priority" in a:
        found.priority = int(a["priority"])
    for key, value in a.items():
        if key.startswith("property."):
            found.add_property(key.removeprefix("property."), value)
    return found


def send(a):
    results = []
    for i in range(int(a.get("count", 1))):
        receipt = made[a["name"]].send(message(a, i))
        results.append({"msgId": receipt.message_id, "recallHandle": receipt.recall_handle})
    return {"results": results}


def transaction(a):
    begun = made[a["name"]].begin_transaction()
    receipt = made[a["name"]].send(message(a, 0), begun)
    if a.get("end") == "commit":
        begun.commit()
    if a.get("end") == "rollback":
        begun.rollback()
    return {"msgId": receipt.message_id}


def recall(a):
    made[a["name"]].recall_message(a["topic"], a["handle"])


def push(a):
    seen[a["name"]] = []
    tls = "tls" in a
    start(a, PushConsumer(configuration(a), a["group"], Listener(a), filters(a), tls_enable=tls))


def dump(a):
    end = time.monotonic() + int(a.get("timeout", 0)) / 1000
    while len(seen[a["name"]]) < int(a.get("min", 0)) and time.monotonic() < end:
        time.sleep(0.01)
    return {"messages": list(seen[a["name"]])}


def simple(a):
    wait, tls = int(a.get("await", 5)), "tls" in a
    start(
        a,
        SimpleConsumer(
            configuration(a), a["group"], filters(a), await_duration=wait, tls_enable=tls
        ),
    )


def receive(a):
    found = made[a["name"]].receive(int(a.get("count", 16)), int(a.get("invisible", 20))) or []
    views.update((one.message_id, one) for one in found)
    return {"messages": [told(one) for one in found]}


def ack(a):
    made[a["name"]].ack(views[a["msgId"]])


def change(a):
    made[a["name"]].change_invisible_duration(views[a["msgId"]], int(a.get("invisible", 10)))


def stop(a):
    made.pop(a["name"]).shutdown()


def told(view):
    return {
        "body": view.body.decode(),
        "msgId": view.message_id,
        "topic": view.topic,
        "tag": view.tag or None,
        "keys": list(view.keys or ()),
        "order": view.message_group or None,
        "properties": dict(view.properties or {}),
        "attempt": view.delivery_attempt,
        "bornHost": view.born_host,
        "at": int(time.time() * 1000),
    }


COMMANDS = {
    one.__name__: one
    for one in (producer, send, transaction, recall, push, dump, simple, receive, ack, change, stop)
}


def main():
    answers, sys.stdout = sys.stdout, sys.stderr
    print('{"ready":true}', file=answers, flush=True)
    for line in sys.stdin:
        command, *words = line.rstrip("\n").split("\t")
        given = {key: unquote(value) for key, _, value in (word.partition("=") for word in words)}
        try:
            answer = COMMANDS[command](given) or {"done": True}
        except Exception as error:  # noqa: BLE001 - it is told
            answer = {"error": type(error).__name__, "text": str(error), "rootText": str(error)}
            code = getattr(error, "code", None)
            if isinstance(code, int):
                answer["code"] = code
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
