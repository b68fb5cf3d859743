"""The same loads by Apache's official Python client; runs in an environment of its own (tests/interop/v5/python).

    python client_load_official.py VERB ENDPOINTS TOPIC [count=N]

Verbs: one, pipelined (send_async, 256 in flight), handler.
"""

import json
import sys
import threading
import time

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
)

BODY = b"x" * 128


def begin():
    return time.perf_counter(), time.process_time()


def tell(begun, messages):
    seconds, cpu = time.perf_counter() - begun[0], time.process_time() - begun[1]
    print(json.dumps({"messages": messages, "seconds": seconds, "cpu_s": cpu}), flush=True)


def message(topic):
    found = Message()
    found.topic = topic
    found.body = BODY
    return found


class Listener(MessageListener):
    def __init__(self, count):
        self.count, self.seen, self.begun = count, 0, None
        self.lock, self.done = threading.Lock(), threading.Event()

    def consume(self, message):
        with self.lock:
            self.seen += 1
            if self.seen == self.count // 10:
                self.begun = begin()
            if self.seen == self.count:
                tell(self.begun, self.count - self.count // 10)
                self.done.set()
        return ConsumeResult.SUCCESS


def main(verb, endpoints, topic, count):
    configuration = ClientConfiguration(endpoints, Credentials(), "")
    if verb == "handler":
        listener = Listener(count)
        consumer = PushConsumer(
            configuration, "bench-official", listener, {topic: FilterExpression("*")}
        )
        consumer.startup()
        listener.done.wait(150)
        consumer.shutdown()
        return
    producer = Producer(configuration, (topic,))
    producer.startup()
    for turn in (count // 10, count):
        begun = begin()
        if verb == "one":
            for _ in range(turn):
                producer.send(message(topic))
        else:
            slots = threading.Semaphore(256)
            futures = []
            for _ in range(turn):
                slots.acquire()
                future = producer.send_async(message(topic))
                future.add_done_callback(lambda _, free=slots.release: free())
                futures.append(future)
            for future in futures:
                future.result()
        if turn == count:
            tell(begun, count)
    producer.shutdown()


if __name__ == "__main__":
    words = dict(word.split("=", 1) for word in sys.argv[4:])
    main(*sys.argv[1:4], int(words.get("count", "2000")))
