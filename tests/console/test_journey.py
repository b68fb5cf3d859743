"""A message's life as steps in lanes: what came first of one moment."""

import dataclasses

from tests.admin.explain.test_pure_verdicts import COPY, facts

from roquette.admin.explain import Attempt, explain
from roquette.console.journey import steps_of
from roquette.message.message import MessageQueue


def test_an_attempt_is_after_what_it_was_given_and_before_what_came_of_it() -> None:
    def copy(topic: str, times: int) -> object:
        queue = MessageQueue(topic, "broker-a", 0)
        return dataclasses.replace(
            COPY, topic=topic, queue=queue, reconsume_times=times, store_timestamp_ms=5
        )

    found = facts(8, copy("%RETRY%g", 1), copy("%DLQ%g", 2))
    attempts = [Attempt("g", "h", 5, times, ok=False) for times in (1, 0)]
    found = dataclasses.replace(found, attempts=attempts)
    titles = [step.title for step in steps_of(found, explain(found)) if step.lane == "g"]
    assert titles[:-1] == [
        "failed",
        "retry 1",
        "failed",
        "dead letter",
    ]  # the last is how it is now
