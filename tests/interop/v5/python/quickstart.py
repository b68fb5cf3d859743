"""What the examples of Apache's Python client do, in one program: producer, simple consumer, push consumer.

usage: quickstart.py ENDPOINTS TOPIC. It sends ten messages and prints a line when each consumer has had them all.
"""

import sys
import threading

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
)

COUNT = 10


class Listener(MessageListener):
    def __init__(self):
        self.seen = set()
        self.all = threading.Event()

    def consume(self, message):
        self.seen.add(message.message_id)
        if len(self.seen) == COUNT:
            self.all.set()
        return ConsumeResult.SUCCESS


def main(endpoints, topic):
    config = ClientConfiguration(endpoints, Credentials())
    producer = Producer(config, (topic,))
    producer.startup()
    sent = set()
    for _ in range(COUNT):
        msg = Message()
        msg.topic = topic
        msg.body = b"hello, rocketmq."
        msg.tag = "tag"
        msg.keys = "keys"
        msg.add_property("key", "value")
        sent.add(producer.send(msg).message_id)
    producer.shutdown()
    print("sent", len(sent), flush=True)

    simple = SimpleConsumer(config, "simple-group", {topic: FilterExpression()})
    simple.startup()
    seen = set()
    while seen < sent:
        for msg in simple.receive(32, 15) or ():
            simple.ack(msg)
            seen.add(msg.message_id)
    simple.shutdown()
    print("received", len(seen), flush=True)

    listener = Listener()
    push = PushConsumer(config, "push-group", listener, {topic: FilterExpression()})
    push.startup()
    assert listener.all.wait(60)
    push.shutdown()
    print("pushed", len(listener.seen), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
