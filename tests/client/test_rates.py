"""What a consumer tells operators of its speed."""

from roquette.client.core.process_queue import ConsumeRates


def test_rates_are_of_a_minute_and_failures_of_an_hour() -> None:
    rates = ConsumeRates(["t"], 0)
    assert rates.status("t").consume_ok_tps == 0  # one sample says no rate

    for second in range(10, 3_610, 10):
        rates.pulled("t", 20, 5)
        rates.handled("t", 15, 5, 40)
        rates.sample(second * 1_000)
    status = rates.status("t")
    assert (status.pull_tps, status.pull_rt) == (2.0, 5.0)
    assert (status.consume_ok_tps, status.consume_failed_tps) == (1.5, 0.5)
    assert status.consume_rt == 40
    assert status.consume_failed_msgs == 360 * 5

    for second in range(3_610, 2 * 3_600 + 10 * 60, 10):
        rates.sample(second * 1_000)
    status = rates.status("t")
    assert status.consume_failed_msgs == 0
    assert (status.consume_rt, status.consume_ok_tps) == (0, 0)
