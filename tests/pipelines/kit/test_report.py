"""Pages are whole by themselves, and everything in them is escaped."""

import re
import xml.etree.ElementTree as ET

import pytest
from examples.demo.report import heat_chart

from roquette.base.options import counted
from roquette_spark.pipelines.kit.report import (
    Cell,
    Chart,
    Report,
    ReportTable,
    Section,
    bars,
    columns,
    lines,
    render,
)
from roquette_spark.pipelines.traffic.report import TrafficFindings, report_of


def drawn(chart: Chart) -> str:
    """The chart's SVG on a page."""
    page = render(Report("t", "l", sections=[Section("s", "x", [chart])]))
    return page[page.index("<svg") : page.index("</svg>") + len("</svg>")]


def test_a_page_loads_nothing_and_escapes_all() -> None:
    content = [
        bars([("<a>", 1, "<k>")]),
        ReportTable(["<h>"], [["<c>"], [Cell("<d>", True)]]),
        "<m>",
    ]
    page = render(Report("<t>", "<l>", [("<v>", "<f>")], [Section("<s>", "<x>", content)], "<n>"))

    for letter in "tlvfsxahcdkmn":
        assert f"<{letter}>" not in page
        assert f"&lt;{letter}&gt;" in page
    assert re.search(r"https?:|src=|href=|@import|url\(", page) is None


SCRIPT = "<script>alert(1)</script>"
ATTRIBUTE = '" onload="alert(1)'


@pytest.mark.parametrize("topic", [SCRIPT, ATTRIBUTE])
def test_a_topic_is_no_markup_wherever_it_stands(topic: str) -> None:
    row = {"topic": topic, "messages": 3, "bytes": 9, "largest": 4, "first_ms": 0, "last_ms": 1}
    row |= {f"latency_p{p}_ms": p for p in (50, 95, 99)}
    point = {"topic": topic, "bucket_ms": 0, "messages": 3}
    found = TrafficFindings(0, 9, 5, topics=[row], over_time=[point])
    charts = [
        columns([(topic, 1.0, topic)], topic),
        lines({topic: [(0, 1)]}, topic, lambda _: topic),
        heat_chart([topic], [topic], lambda *_: (1.0, topic), (1, 2, 3, 4, 5, 6), topic, topic),
    ]

    page = render(report_of(found))
    drawings = [drawn(chart) for chart in charts]

    for text in (page, *drawings):
        assert "<script" not in text
        assert ATTRIBUTE not in text
    for drawing in drawings:
        assert all("onload" not in each.attrib for each in ET.fromstring(drawing).iter())


@pytest.mark.parametrize("count", [0, 1, 7, 400])
def test_charts_are_well_formed_for_any_number_of_values(count: int) -> None:
    charts = [
        bars([(f"n{i}", i, f"{i} rows") for i in range(count)]),
        columns([(f"2013-01-{i:02}", float(i) * 1e5, "title") for i in range(count)]),
        lines({"a": [(i, i * i) for i in range(count)], "b & c": [(0, 1)]}),
        heat_chart(["r"] * count, ["c"], lambda i, _: (i or None, "t"), (1, 2, 3, 4, 5, 6), "ms"),
    ]

    for drawing in map(drawn, charts):
        root = ET.fromstring(drawing)
        for number in re.findall(r' (?:x|y|width|height|x1|y1)="([^"]*)"', drawing):
            assert -1 <= float(number) <= 20_000, number
        assert root.tag == "svg"


@pytest.mark.parametrize("largest", [0, 0.001, 0.7, 1, 9, 10, 11, 336_776, 2e9])
def test_a_grid_has_few_lines_and_is_above_every_value(largest: float) -> None:
    chart = drawn(columns([("a", largest, "t")]))

    heights = [float(found) for found in re.findall(r'class="bar".*?height="([\d.]+)"', chart)]
    assert 2 <= chart.count('class="axis"') <= 11
    assert heights[0] <= 231


def test_numbers_in_tables_have_separators_and_verdicts_colours() -> None:
    table = ReportTable(["a", "b"], [[336776, 1.25], [None, Cell("DIFFERS", False)]])
    page = render(Report("t", "l", sections=[Section("s", "x", [table])]))

    assert '<td class="n">336,776</td><td class="n">1.2</td>' in page
    assert '<td class="n"></td><td class="bad n">DIFFERS</td>' in page


def test_numbers_and_quantities_stand_at_the_right_and_words_at_the_left() -> None:
    columns = [
        [1, None, -2.5],
        ["1.5 MiB", "12 ms", "–"],
        ["7,000", "3.2 %", ""],
        [Cell("3", True), Cell("0", True), Cell("12", False)],
        ["12 in broker-a 0", "–", "–"],
        ["2026-09-13 12:00:00", "never", ""],
        [Cell("exact", True), Cell("DIFFERS", False), Cell("exact", True)],
        [True, False, True],
        [None, None, None],
    ]

    table = ReportTable([str(i) for i in range(9)], list(zip(*columns, strict=True)))

    assert table.numbers == {0, 1, 2, 3}


def test_counts_have_their_nouns() -> None:
    assert [counted(n, "batch", "batches") for n in (0, 1, 1_200)] == [
        "0 batches",
        "1 batch",
        "1,200 batches",
    ]
    assert (counted(1, "day"), counted(2, "day")) == ("1 day", "2 days")


def test_a_long_name_keeps_its_ends_and_is_whole_where_one_hovers() -> None:
    name = "orders-of-the-northern-region-since-2025"

    drawing = drawn(bars([(name, 1, "1")]))

    assert f"<title>{name}</title>" in drawing
    assert re.search(r"orders-of-[^<]*…[^<]*-2025</text>", drawing)


def test_labels_below_a_chart_are_said_once() -> None:
    flat = drawn(lines({"a": [(0.1, 5), (0.1001, 6)]}, x_text="{:.1f}".format))

    assert len(re.findall(r">0\.1<", flat)) == 1
