"""Pages are whole by themselves, and everything in them is escaped."""

import re
import xml.etree.ElementTree as ET

import pytest

from roquette.pipelines.kit.page import (
    Cell,
    Page,
    Section,
    bars,
    columns,
    heat_map,
    lines,
    render,
    table,
)


def test_a_page_loads_nothing_and_escapes_all() -> None:
    content = bars([("<a>", 1, "&")]) + table(["<h>"], [["<c>"], [Cell("<d>", True)]])
    page = render(Page("<t>", "<l>", [("<v>", "<f>")], [Section("<s>", "<x>", content)]))

    for letter in "tlvfsxahcd":
        assert f"<{letter}>" not in page.replace("<main><h1>", "")
        assert f"&lt;{letter}&gt;" in page
    assert re.search(r"https?:|src=|href=|@import|url\(", page) is None


@pytest.mark.parametrize("count", [0, 1, 7, 400])
def test_plots_are_well_formed_for_any_number_of_values(count: int) -> None:
    plots = [
        bars([(f"n{i}", i, f"{i} rows") for i in range(count)]),
        columns([(f"2013-01-{i:02}", float(i) * 1e5, "title") for i in range(count)]),
        lines({"a": [(i, i * i) for i in range(count)], "b & c": [(0, 1)]}),
        heat_map(["r"] * count, ["c"], lambda i, _: (i or None, "t"), (1, 2, 3, 4, 5, 6), "ms"),
    ]

    for plot in plots:
        root = ET.fromstring(plot)
        for number in re.findall(r' (?:x|y|width|height|x1|y1)="([^"]*)"', plot):
            assert -1 <= float(number) <= 20_000, number
        assert root.tag == "svg"


@pytest.mark.parametrize("largest", [0, 0.001, 0.7, 1, 9, 10, 11, 336_776, 2e9])
def test_a_grid_has_few_lines_and_is_above_every_value(largest: float) -> None:
    plot = columns([("a", largest, "t")])

    heights = [float(found) for found in re.findall(r'class="bar".*?height="([\d.]+)"', plot)]
    assert 2 <= plot.count('class="axis"') <= 11
    assert heights[0] <= 231


def test_numbers_in_tables_have_separators_and_verdicts_colours() -> None:
    found = table(["a", "b"], [[336776, 1.25], [None, Cell("DIFFERS", False)]])

    assert "<td>336,776</td><td>1.2</td>" in found
    assert '<td></td><td class="bad">DIFFERS</td>' in found
