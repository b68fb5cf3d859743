"""A message's life as a drawing: from facts to steps in lanes. Pure."""

from typing import Final, NamedTuple

from roquette.admin.explain import MessageFacts, MessageVerdict
from roquette.message.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
)

SENDER, TOPIC = "sender", "topic"
WAITS: Final = {"waiting", "delayed", "timed", "open", "retrying", "not-begun"}
BAD: Final = {"dead", "given-up", "topic-gone", "not-found", "out-of-reach", "unknown"}
DONE: Final = {"handled", "passed", "retried", "delay-over", "committed", "stored", "resent"}
_WORDS: Final = {True: ("done", "handled"), False: ("bad", "failed"), None: ("wait", "begun")}


class JourneyStep(NamedTuple):
    """Something that happened, or has not yet.

    Attributes:
        lane: who it concerns: SENDER, TOPIC, or a group. at_ms: 0: no time is known.
        kind: done, wait, bad, off. turn: which of those of one moment comes first.
    """

    lane: str
    at_ms: int
    kind: str
    title: str
    text: str
    turn: int = 0


def tone(code: str) -> str:
    """How a verdict is coloured."""
    return "bad" if code in BAD else "wait" if code in WAITS else "done" if code in DONE else "off"


def steps_of(facts: MessageFacts, verdicts: list[MessageVerdict]) -> list[JourneyStep]:
    """What is known with a time comes in its order; a group's verdict closes its lane."""
    found: list[JourneyStep] = []
    for copy in sorted(facts.copies, key=lambda c: (c.store_timestamp_ms, c.physical_offset)):
        place = f"{copy.queue.broker_name}:{copy.queue.queue_id} at {copy.queue_offset}"
        stored, turn = copy.store_timestamp_ms, 2 * copy.reconsume_times
        if copy.topic == facts.topic:
            found.append(
                JourneyStep(SENDER, copy.born_timestamp_ms, "done", "sent", copy.born_host)
            )
            found.append(JourneyStep(TOPIC, stored, "done", "stored", place))
        elif copy.topic.startswith(DLQ_PREFIX):
            group = copy.topic.removeprefix(DLQ_PREFIX)
            found.append(JourneyStep(group, stored, "bad", "dead letter", place, turn))
        elif copy.topic.startswith(RETRY_PREFIX):
            group = copy.topic.removeprefix(RETRY_PREFIX)
            found.append(
                JourneyStep(group, stored, "wait", f"retry {copy.reconsume_times}", place, turn)
            )
        elif copy.topic in (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC):
            target = copy.properties.get("REAL_TOPIC", "")
            lane = target.removeprefix(RETRY_PREFIX) if target.startswith(RETRY_PREFIX) else TOPIC
            title = "half message" if copy.topic == TRANS_HALF_TOPIC else "delayed"
            found.append(JourneyStep(lane, stored, "wait", title, place, turn))
    for attempt in facts.attempts:
        kind, word = _WORDS[attempt.ok]
        text = f"attempt {attempt.retries + 1} at {attempt.host}"
        turn = 2 * attempt.retries + 1  # after the copy that it was given, before what came of it
        found.append(JourneyStep(attempt.group, attempt.begun_ms, kind, word, text, turn))
    for again in facts.resent:
        sent_ms = again.born_timestamp_ms
        found.append(JourneyStep(SENDER, sent_ms, "done", "sent again", again.message_id))
    found.sort(key=lambda step: (step.at_ms, step.turn))
    timed = {step.lane for step in found}
    for verdict in verdicts:
        kind = tone(verdict.code)
        if verdict.group and (verdict.group not in timed or kind == "wait"):
            found.append(JourneyStep(verdict.group, 0, kind, verdict.code, verdict.says))
    return found
