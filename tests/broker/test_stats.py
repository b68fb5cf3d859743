"""Counters and their rates."""

from roquette.broker.floor.stats import BrokerStats, Counter, Durations


def test_rates_are_events_per_second_over_each_window() -> None:
    counter = Counter()
    for second in range(61):
        counter.sample(second * 1000)
        counter.total += 100 if second >= 50 else 10

    assert counter.rate(10) == 100.0
    assert counter.rate(60) == (50 * 10 + 10 * 100) / 60
    assert len(counter.rates_text().split()) == 3


def test_a_counter_without_samples_has_no_rate() -> None:
    assert Counter().rate(10) == 0.0


def test_midnight_moves_today_to_yesterday() -> None:
    day = 86_400_000
    stats = BrokerStats(boot_ms=day - 1000)
    stats.put(3, 100)

    stats.sample(day + 1, 1)
    stats.put(2, 50)
    stats.sample(2 * day + 1, 2)

    assert stats.put_messages.yesterday_start == 3
    assert stats.put_messages.today_start == 5
    assert stats.put_messages.total == 5


def test_durations_show_the_last_minute_and_keep_the_largest() -> None:
    took = Durations()
    assert (took.percentile(0.99), took.max_ms) == (0.0, 0)
    took.add(0, 980)
    took.add(7, 15)
    took.add(1500, 5)
    assert took.percentile(0.5) == 0.0
    assert took.percentile(0.99) == 7.0
    assert took.percentile(0.999) == 1500.0
    took.turn()
    took.add(3, 1)
    shown = took.distribution()
    assert shown.startswith("[<=0ms]:980 [0~10ms]:15 [10~50ms]:0 ")
    assert "[1~2s]:5" in shown
    took.turn()
    assert took.percentile(0.999) == 3.0
    assert took.max_ms == 1500


def test_sends_of_a_turn_share_its_duration() -> None:
    stats = BrokerStats(boot_ms=0)
    stats.put_took(9)
    stats.put(1, 10)
    stats.put(1, 10)
    stats.put_took(4)
    stats.put_took(8)
    assert (stats.put_durations.max_ms, stats.put_durations.percentile(1.0)) == (4, 4.0)
    assert stats.put_durations.distribution().startswith("[<=0ms]:0 [0~10ms]:2 ")
