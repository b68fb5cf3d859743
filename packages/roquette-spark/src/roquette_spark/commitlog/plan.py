"""Segments to splits: which files a query needs, and where each task begins and ends."""

from collections.abc import Callable, Sequence

from roquette.base.files import ReadFiles, read_all
from roquette.message.record_layout import HEAD_SIZE
from roquette.store.offline.store_dir import LogFile
from roquette_spark.commitlog.files import open_log
from roquette_spark.commitlog.options import CommitLogOptions
from roquette_spark.commitlog.walk import Split, store_time

CLOCK_SLACK_MS = 60_000  # a broker's clock that was set back by less prunes nothing wanted


def plan(options: CommitLogOptions) -> list[Split]:
    """The splits of all paths.

    Raises:
        ConfigError: a path has no segments.
    """
    splits: list[Split] = []
    for root, path in enumerate(options.paths):
        files, segments = open_log(path, options.storage_options)
        splits += plan_log(files, segments, options, root)
    return splits


def describe_store(path: str) -> str:
    """Describe how much a store has, for people. Raises ConfigError when it has no segments."""
    segments = open_log(path, "{}")[1]
    size = sum(segment.size for segment in segments)
    return f"store {path}: {len(segments)} segments, {size / (1 << 20):,.0f} MiB"


def plan_log(
    files: ReadFiles, segments: Sequence[LogFile], options: CommitLogOptions, root: int
) -> list[Split]:
    """The splits of one log.

    Files of nothing but zeros at the end are made ahead by the broker: they are not read.
    """

    def head(segment: LogFile) -> bytes:
        return read_all(files, segment.path, HEAD_SIZE)

    used = list(segments)
    while len(used) > 1 and not any(head(used[-1])):
        used.pop()
    wanted = prune(used, lambda segment: store_time(head(segment)), options)
    splits: list[Split] = []
    for index, segment in enumerate(used):
        before = used[index - 1] if index else None
        if before is not None and before.base + before.size < segment.base and segment in wanted:
            gap = segment.base - before.base - before.size
            splits.append(
                Split(
                    path=segment.path,
                    base=segment.base,
                    size=0,
                    start=0,
                    end=0,
                    root=root,
                    missing=gap,
                )
            )
        if segment in wanted:
            splits += cut(segment, options.split_bytes, last=index == len(used) - 1, root=root)
    return splits


def prune(
    segments: list[LogFile],
    first_time: Callable[[LogFile], int | None],
    options: CommitLogOptions,
) -> set[LogFile]:
    """Segments that may hold records of the wanted time: store times grow along a log.

    A segment ends in time where the next one begins. One that does not begin with a record is kept.
    """
    if options.starting_ms is None and options.ending_ms is None:
        return set(segments)
    times = [first_time(segment) for segment in segments]
    wanted = set()
    for index, segment in enumerate(segments):
        first = times[index]
        following = times[index + 1] if index + 1 < len(segments) else None
        too_late = (
            options.ending_ms is not None
            and first is not None
            and first - CLOCK_SLACK_MS >= options.ending_ms
        )
        too_early = (
            options.starting_ms is not None
            and following is not None
            and following + CLOCK_SLACK_MS < options.starting_ms
        )
        if not too_late and not too_early:
            wanted.add(segment)
    return wanted


def cut(segment: LogFile, split_bytes: int, *, last: bool, root: int) -> list[Split]:
    """Pieces of about `split_bytes`; 0: one piece."""
    step = split_bytes or segment.size
    return [
        Split(
            path=segment.path,
            base=segment.base,
            size=segment.size,
            start=start,
            end=min(start + step, segment.size),
            last=last,
            root=root,
        )
        for start in range(0, segment.size, step or 1)
    ]
