"""Timers across crashes: none lost, none twice, none early."""

import pytest
from tests.broker.timer_model import TimerModel, run_model


@pytest.mark.parametrize("seed", range(12))
def test_what_is_owed_comes_once_whatever_crashes(seed: int) -> None:
    run_model(seed, 400)


HOUR, YEARS = 3_600_000, 10 * 365 * 86_400_000


@pytest.mark.parametrize("seed", [*range(6), 105])
def test_a_clock_that_leaps_makes_nothing_early_and_loses_nothing(seed: int) -> None:
    run_model(seed, 300, jumps=(-HOUR // 20, -20_000, -1500, 1500, 60_000, HOUR // 20))


def test_a_message_refused_before_the_clock_went_back_is_due_as_it_was() -> None:
    """Seed 11958 of the group: it was due again when it had been refused, after its slot was over: until that time the
    slot was neither empty nor over, and the timer's loop did not rest."""
    model = TimerModel(1)
    model.send(700)
    model.drain()
    model.refuse(710, 2_000)  # due within the slot of this moment, and refused after it
    model.now_ms -= 300
    model.drain()
    assert [record.body for record in model.stored("T")] == [b"m1"]
    model.settle()


@pytest.mark.parametrize("seed", range(6))
def test_what_a_failing_disk_refuses_comes_once_whatever_the_clock_does(seed: int) -> None:
    run_model(seed, 300, jumps=(-2500, -400, -150, -30), refusals=0.5)


@pytest.mark.parametrize("seed", range(3))
def test_a_clock_that_is_wrong_by_years_for_a_while(seed: int) -> None:
    model = TimerModel(seed)
    first = [model.send(5_000 * (n + 1)) for n in range(20)]
    model.drain()
    model.now_ms += YEARS
    second = [model.send(200_000) for _ in range(5)]
    model.drain()  # the first are overdue by that clock
    assert {record.body for record in model.stored("T")} >= set(first)
    model.kill()
    model.now_ms -= YEARS
    third = [model.send(1000 * (n + 1)) for n in range(200)]
    for _ in range(220):
        model.now_ms += 1000
        model.drain()
    model.check()
    assert {record.body for record in model.stored("T")} >= set(third)
    model.now_ms += YEARS
    model.settle()
    assert {record.body for record in model.stored("T")} >= set(second)


def test_a_log_cut_behind_the_checkpoint_starts_the_timer_over() -> None:
    """Issues 10668 and 7480: the checkpoint points past the log's end."""
    model = TimerModel(3)
    for number in range(30):
        model.send(2000 + 1000 * number)
    model.drain()
    model.now_ms += 9000
    model.drain()
    came = len(model.stored("T"))
    assert came > 5
    model.sync()
    model.flush()
    model.flush()
    model.storage.close()
    cut = model.stored("T")[2].physical_offset  # of the copies only the first two stay
    for name in model.files.list_dir("/s/commitlog"):
        file = model.files.open_file(f"/s/commitlog/{name}")
        start = max(0, cut - int(name))
        if start < file.size:
            file.pwrite(bytes(file.size - start), start)
            file.sync()
    model.files.remove("/s/checkpoint")  # which would tell that this is no crash
    model.durable = set()
    before = set(model.wanted)
    model.files.kill()
    model.open()
    model._forget(before)
    assert len(model.stored("T")) == 2
    model.settle()
    assert len(model.stored("T")) == len(model.wanted) > 20


def test_files_that_are_gone_come_again_from_the_queue() -> None:
    for path in ("/s/timerwheel", "/s/config/timercheck", "/s/timerlog/00000000000000000000"):
        model = TimerModel(4)
        for number in range(30):
            model.send(2000 + 1000 * number)
        model.drain()
        model.now_ms += 9000
        model.drain()
        model.sync()
        model.flush()
        model.flush()
        model.storage.close()
        model.files.kill()
        model.files.remove(path)
        model.open()
        model.settle()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1300))
def test_what_is_owed_comes_once_over_many_more_lives(seed: int) -> None:
    run_model(seed, 1500)
