"""The listener stores every batch's end, the last one's too, for consumers and operators to see."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.spark.records import ListReader

from roquette.errors import ConfigError, ConnectError
from roquette.message.message import MessageQueue
from roquette_spark.offsets import committer as offset_committer
from roquette_spark.offsets.committer import RocketMQOffsetCommitter, lag_of
from roquette_spark.values.offsets import encode_offsets

A0, A1, B0 = (MessageQueue("T", *each) for each in (("a", 0), ("a", 1), ("b", 0)))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> ListReader:
    source = ListReader({A0: [], A1: []})
    monkeypatch.setattr(offset_committer, "open_reader", lambda _: source)
    return source


def progress(*ends: str | None, name: str | None = None, query_id: str = "id-1") -> Any:
    sources = [SimpleNamespace(endOffset=end) for end in ends]
    return SimpleNamespace(progress=SimpleNamespace(name=name, id=query_id, sources=sources))


def text(offsets: dict[MessageQueue, int]) -> str:
    return json.dumps(encode_offsets(offsets))


def test_the_last_batch_is_committed_as_the_next_offset_to_read(cluster: ListReader) -> None:
    listener = RocketMQOffsetCommitter("ns:1", "g")

    listener.onQueryProgress(progress(text({A0: 5, A1: 2})))
    listener.onQueryProgress(progress(text({A0: 7, A1: 2})))

    assert cluster.committed == {A0: 7, A1: 2}


def test_only_what_moved_is_committed(cluster: ListReader) -> None:
    listener = RocketMQOffsetCommitter("ns:1", "g")
    listener.commit(text({A0: 5, A1: 2}))
    cluster.committed.clear()

    listener.commit(text({A0: 5, A1: 3}))

    assert cluster.committed == {A1: 3}


def test_lag_is_in_a_querys_progress() -> None:
    own = SimpleNamespace(endOffset=text({A0: 5, A1: 2}), latestOffset=text({A0: 9, A1: 2, B0: 4}))
    kafka = SimpleNamespace(endOffset='{"T":{"0":1}}', latestOffset='{"T":{"0":7}}')
    begun = SimpleNamespace(endOffset=text({A0: 5}), latestOffset=None)

    assert lag_of(SimpleNamespace(sources=[own, kafka])) == {A0: 4, A1: 0, B0: 4}
    assert lag_of(SimpleNamespace(sources=[begun])) == {}


def test_sources_of_others_are_left_alone(cluster: ListReader) -> None:
    RocketMQOffsetCommitter("ns:1", "g").onQueryProgress(
        progress('{"events":{"0":5}}', "7", None, "not json", text({A0: 1}))
    )

    assert cluster.committed == {A0: 1}


def test_one_query_can_be_followed_by_name_or_id(cluster: ListReader) -> None:
    by_name = RocketMQOffsetCommitter("ns:1", "g", query="archive")
    by_id = RocketMQOffsetCommitter("ns:1", "g", query="id-2")

    by_name.onQueryProgress(progress(text({A0: 1}), name="other"))
    by_id.onQueryProgress(progress(text({A0: 2}), query_id="id-1"))
    assert cluster.committed == {}
    by_name.onQueryProgress(progress(text({A0: 3}), name="archive"))
    by_id.onQueryProgress(progress(text({A1: 4}), query_id="id-2"))

    assert cluster.committed == {A0: 3, A1: 4}


def test_a_failure_is_a_line_in_the_log_and_is_made_good_later(
    cluster: ListReader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    listener = RocketMQOffsetCommitter("ns:1", "g")
    real = cluster.commit_offsets

    def refuse(offsets: object) -> None:
        raise ConnectError("no")

    monkeypatch.setattr(cluster, "commit_offsets", refuse)
    listener.commit(text({A0: 5}))
    monkeypatch.setattr(cluster, "commit_offsets", real)
    listener.commit(text({A0: 5}))

    assert "offsets were not committed group=g error=no" in caplog.text
    assert cluster.committed == {A0: 5}


def test_wrong_options_are_told_at_once() -> None:
    with pytest.raises(ConfigError, match="needs a group"):
        RocketMQOffsetCommitter("ns:1", "")
    with pytest.raises(ConfigError, match="must be host:port"):
        RocketMQOffsetCommitter("ns", "g")
