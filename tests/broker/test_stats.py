"""Counters and their rates."""

from roquette.broker.stats import BrokerStats, Counter


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

    stats.sample(day + 1)
    stats.put(2, 50)
    stats.sample(2 * day + 1)

    assert stats.put_messages.yesterday_start == 3
    assert stats.put_messages.today_start == 5
    assert stats.put_messages.total == 5
