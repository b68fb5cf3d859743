"""Reports as a browser shows them: every series is seen, no text is cut or lies over another, numbers stand right."""

import itertools
from pathlib import Path

import pytest
from tests.pipelines.browser import Box, Drawn, Mark, Page, laid_out
from tests.pipelines.reports import REPORTS, archive

SIZES = (1, 24)  # one batch, one bucket, one queue; and enough for everything to be full


def inside(box: Box, frame: Box) -> bool:
    left, top, right, bottom = box
    return (
        frame[0] - 1 <= left
        and frame[1] - 1 <= top
        and right <= frame[2] + 1
        and bottom <= frame[3] + 1
    )


def over_each_other(one: Mark, other: Mark) -> bool:
    across = min(one.box[2], other.box[2]) - max(one.box[0], other.box[0])
    down = min(one.box[3], other.box[3]) - max(one.box[1], other.box[1])
    return across > 1 and down > 4  # lines of text stand closer than their boxes


def check_chart(chart: Drawn) -> None:
    shapes = [
        mark for mark in chart.marks if mark.tag != "text" and mark.style not in ("axis", "key")
    ]
    for mark in chart.marks:
        assert inside(mark.box, chart.frame), (chart.label, mark)
    for one, other in itertools.combinations(chart.texts(), 2):
        assert not over_each_other(one, other), (chart.label, one.text, other.text)
    assert any(mark.size[0] >= 1 and mark.size[1] >= 1 for mark in shapes), chart.label
    assert all(mark.series for mark in shapes if mark.tag == "polyline"), chart.label
    for series in {mark.series for mark in shapes} - {""}:
        widest = max(max(mark.size) for mark in shapes if mark.series == series)
        assert widest >= 4, (chart.label, series)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Page]:
    made = {(name, size): report(size) for name, report in REPORTS.items() for size in SIZES}
    found = laid_out(list(made.values()), tmp_path_factory.mktemp("reports"))
    return dict(zip(made, found, strict=True))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", REPORTS)
def test_every_report_shows_what_it_has(
    name: str, size: int, pages: dict[tuple[str, int], Page]
) -> None:
    page = pages[name, size]

    assert not page.scrolls
    for chart in page.charts:
        check_chart(chart)
    one_point = name == "current-state" and size == min(SIZES)  # a pace has two at least
    assert page.charts or name == "audit" or one_point
    for head, *rows in page.tables:
        for index, (_, align) in enumerate(head):
            cells = [row[index] for row in rows]
            texts = [text for text, _ in cells if text]
            numbers = bool(texts) and all(
                text.replace(",", "").replace(".", "").removeprefix("-").isdecimal()
                for text in texts
            )
            assert {align, *(align for _, align in cells)} in ({"left"}, {"right"})
            if numbers:
                assert align == "right", (head, texts)
            if texts and all(text[0].isalpha() for text in texts):
                assert align == "left", (head, texts)


def test_a_chart_that_is_cut_would_be_found(tmp_path: Path) -> None:
    page = REPORTS["traffic"](24).replace('viewBox="0 0 900', 'viewBox="0 0 700')

    (found,) = laid_out([page], tmp_path)

    with pytest.raises(AssertionError):
        for chart in found.charts:
            check_chart(chart)


@pytest.mark.parametrize(
    ("evolution", "advice"),
    [
        ("add", "No column can take them: "),
        ("fixed", "With --schema-evolution add fields that come from then on get columns"),
        ("fail", "With --schema-evolution add fields that come from then on get columns"),
    ],
)
def test_an_archive_says_what_it_would_do_about_fields_without_a_column(
    evolution: str, advice: str
) -> None:
    page = archive(1, evolution)

    assert advice in page
    assert "another --to" not in page
