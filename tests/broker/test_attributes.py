"""Attributes of topics and groups: Apache's rules and texts."""

import pytest

from roquette.broker.floor.tables.groups import (
    GROUP_ATTRIBUTES,
    TOPIC_ATTRIBUTES,
    altered,
    parse_changes,
)
from roquette.errors import Refused


def test_attributes_are_set_when_a_topic_is_made_and_changed_later() -> None:
    made = altered(TOPIC_ATTRIBUTES, None, parse_changes("+message.type=FIFO,+queue.type=SimpleCQ"))
    assert made == {"message.type": "FIFO", "queue.type": "SimpleCQ"}
    changed = altered(TOPIC_ATTRIBUTES, made, parse_changes("+message.type=DELAY,+reserve.time=-1"))
    assert changed == made | {"message.type": "DELAY", "reserve.time": "-1"}
    assert altered(TOPIC_ATTRIBUTES, changed, parse_changes("-reserve.time,")) == made | {
        "message.type": "DELAY"
    }
    assert altered(TOPIC_ATTRIBUTES, made, parse_changes(None)) == made


@pytest.mark.parametrize(
    "text, error",
    [
        ("message.type=FIFO", "add/alter attribute format is wrong: message.type"),
        ("message.type", "delete attribute format is wrong: message.type"),
        ("+message.type=FIFO,+message.type=NORMAL", "key duplication: +message.type"),
        ("+message.type=", "add/alter attribute format is wrong: +message.type="),
    ],
)
def test_changes_that_are_not_of_the_form(text: str, error: str) -> None:
    with pytest.raises(Refused) as refusal:
        parse_changes(text)
    assert (refusal.value.code, refusal.value.remark) == (1, error)


@pytest.mark.parametrize(
    "current, changes, error",
    [
        (None, {"-message.type": ""}, "only add attribute is supported while creating topic."),
        ({}, {"-message.type": ""}, "attempt to delete a nonexistent key: message.type"),
        ({}, {"message.type": "x"}, "wrong format key: essage.type"),
        (None, {"+color": "red"}, "unsupported key: color"),
        (None, {"+a-b": "red"}, "kv string format wrong."),
        (None, {"+": "red"}, "kv string format wrong."),
        (None, {"+message.type": "QUICK"}, "value is not in set: ["),
        (None, {"+reserve.time": "-2"}, "value is not in range(-1, 9223372036854775807)"),
        (None, {"+reserve.time": "soon"}, 'For input string: "soon"'),
        ({"queue.type": "SimpleCQ"}, {"+queue.type": "BatchCQ"}, "attempt to update an unchange"),
        ({"queue.type": "SimpleCQ"}, {"-queue.type": ""}, "attempt to update an unchangeable"),
        ({}, {"+message.type": "FIFO", "-message.type": ""}, "alter duplication key. key: message"),
    ],
)
def test_changes_that_are_refused(
    current: dict[str, str] | None, changes: dict[str, str], error: str
) -> None:
    with pytest.raises(Refused) as refusal:
        altered(TOPIC_ATTRIBUTES, current, changes)
    assert refusal.value.code == 1
    assert refusal.value.remark.startswith(error)


def test_a_groups_attributes() -> None:
    changes = {
        "+priority.factor": "100",
        "+lite.bind.topic": "T",
        "+roquette.commit.backward": "REFUSE",
    }
    assert len(altered(GROUP_ATTRIBUTES, None, changes)) == 3
    for key, value in (
        ("+priority.factor", "101"),
        ("+lite.sub.reset.offset.exclusive", "maybe"),
        ("+roquette.commit.backward", "SOMETIMES"),
    ):
        with pytest.raises(Refused):
            altered(GROUP_ATTRIBUTES, None, {key: value})
