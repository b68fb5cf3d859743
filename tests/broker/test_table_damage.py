"""Damage of the broker's tables on disk: what is read is a content that was saved, or the start is refused in words."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from roquette.broker.floor.config_files import ConfigFiles, DelayProgress
from roquette.errors import StoreError
from roquette.store.offline.small_files import changed_unwritten, load_json
from roquette.wire.bodies import (
    ConsumerOffsetSerializeWrapper,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TimerMetric,
    TimerMetricsSerializeWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from roquette_testing.faulty_files import FaultyFiles

SAVED = 3  # versions of each table


def tables(number: int) -> dict[str, Any]:
    names = [f"T{n}" for n in range(number * 3 + 1)]
    return {
        "topics.json": TopicConfigSerializeWrapper(
            topic_config_table={name: TopicConfig(topic_name=name) for name in names}
        ),
        "subscriptionGroup.json": SubscriptionGroupWrapper(
            subscription_group_table={n: SubscriptionGroupConfig(group_name=n) for n in names}
        ),
        "consumerOffset.json": ConsumerOffsetSerializeWrapper(
            offset_table={f"{name}@g": {0: 1000 * number, 1: 7} for name in names}
        ),
        "delayOffset.json": DelayProgress(
            offset_table={level: number * 10 + level for level in range(1, 19)}, log_offset=number
        ),
        "timermetrics": TimerMetricsSerializeWrapper(
            timing_count={name: TimerMetric(count=number) for name in names}
        ),
    }


def written() -> FaultyFiles:
    files = FaultyFiles()
    config = ConfigFiles(files, "/s/config")
    for number in range(SAVED):
        files.now_ms = 1_700_000_000_000 + number
        for name, table in tables(number).items():
            config.save(name, table)
    return files


def damages(data: bytes, other: bytes) -> Iterator[tuple[str, bytes | None]]:
    rng = random.Random(1)
    yield "deleted", None
    yield "empty", b""
    yield "zeros", bytes(len(data))
    yield "ones", b"\xff" * len(data)
    yield "swapped", other
    for size in (1, len(data) // 2, len(data) - 2):
        yield f"cut to {size}", data[:size]
    for _ in range(8):
        place, bit = rng.randrange(len(data)), 1 << rng.randrange(8)
        yield (
            f"bit {bit} of byte {place}",
            data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :],
        )
    for _ in range(4):
        place = rng.randrange(len(data) - 4)
        yield f"zeros at {place}", data[:place] + bytes(4) + data[place + 4 :]


def put(files: FaultyFiles, path: str, data: bytes | None) -> None:
    """Change what a disk holds, behind the back of everybody: the time of the last write stays."""
    if data is None:
        files.remove(path)
        return
    node = files._seen[path]
    node.resize(len(data))
    node.write(data, 0)


def damaged(name: str, suffix: str) -> Iterator[tuple[str, FaultyFiles, str]]:
    path = f"/s/config/{name}"
    other = "topics.json" if name != "topics.json" else "consumerOffset.json"
    sound = written()
    if not sound.exists(path + suffix):
        return
    for what, data in damages(
        sound.read_bytes(path + suffix), sound.read_bytes(f"/s/config/{other}")
    ):
        files = written()
        put(files, path + suffix, data)
        yield f"{name}{suffix} {what}", files, path


@pytest.mark.promise("Damage", "a table is one that was saved, or the start is refused")
@pytest.mark.parametrize("suffix", ["", ".bak", ".sum"])
@pytest.mark.parametrize("name", list(tables(0)))
def test_a_table_is_one_that_was_saved(name: str, suffix: str) -> None:
    versions = [tables(number)[name] for number in range(SAVED)]
    for what, files, path in damaged(name, suffix):
        try:
            found = ConfigFiles(files, "/s/config").load(name, type(versions[0]))
        except StoreError as refusal:
            assert path in str(refusal), what  # noqa: PT017
            continue
        assert found in versions, f"{what}: a content that nobody saved"
        if suffix:
            assert found == versions[-1], f"{what}: the newest content is sound"
        else:
            assert found in versions[-2:], f"{what}: an older content than need be"
            try:
                assert load_json(files, path) is None or changed_unwritten(files, path), what
            except StoreError as finding:
                assert path in str(finding)  # noqa: PT017
