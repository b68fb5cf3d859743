"""Pages as a browser lays them out: where each mark of each chart is. Chromium is Debian's, run without a window."""

import functools
import html
import json
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.peers import absent, alone

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--force-device-scale-factor=1"),
)
_MEASURE = """<script>
const box = e => { const r = e.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom]; };
const pages = [...document.querySelectorAll('main')].map(main => ({
 charts: [...main.querySelectorAll('svg')].map(svg => ({
  label: svg.getAttribute('aria-label'), frame: box(svg),
  marks: [...svg.children].map(e => ({tag: e.tagName, style: e.getAttribute('class') || '',
    series: e.dataset.series || '', text: e.firstChild ? e.lastChild.textContent : '', box: box(e)}))})),
 tables: [...main.querySelectorAll('table')].map(table => [...table.rows].map(row =>
  [...row.cells].map(cell => ({text: cell.textContent, align: getComputedStyle(cell).textAlign})))),
 scrolls: main.scrollWidth > innerWidth}));
const found = document.createElement('pre');
found.id = 'measured';
found.textContent = JSON.stringify(pages);
document.body.append(found);
</script></body>"""
Box = tuple[float, float, float, float]  # left, top, right, bottom, in pixels


@dataclass(frozen=True, slots=True)
class Mark:
    """An element of a chart: its tag and class, the series it belongs to, its text, where it is."""

    tag: str
    style: str
    series: str
    text: str
    box: Box

    @property
    def size(self) -> tuple[float, float]:
        """Width and height."""
        return self.box[2] - self.box[0], self.box[3] - self.box[1]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A chart as it is laid out."""

    label: str
    frame: Box
    marks: list[Mark]

    def texts(self) -> list[Mark]:
        """What can be read."""
        return [mark for mark in self.marks if mark.tag == "text"]


@dataclass(frozen=True, slots=True)
class Page:
    """Charts, and tables as rows of (text, alignment); `scrolls`: it is wider than the window."""

    charts: list[Drawn]
    tables: list[list[list[tuple[str, str]]]]
    scrolls: bool


@functools.cache
def chromium() -> str:
    """The browser's path; in CI, on a machine of Debian's where we may, it is installed. Else the test is skipped."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None and os.environ.get("CI") == "true" and shutil.which("apt-get"):
        with alone("chromium"):
            for words in (
                ["update", "-qq"],
                ["install", "-y", "-qq", "--no-install-recommends", "chromium"],
            ):
                subprocess.run(["apt-get", *words], capture_output=True, timeout=600, check=False)
        found = shutil.which("chromium")
    if found is None:
        absent("needs chromium to look at pages: apt-get install chromium")
    return found


def laid_out(pages: Sequence[str], folder: Path, *, width: int = 1_200) -> list[Page]:
    """What a browser's window of that width makes of pages, one below the other: its start is what takes time."""
    place = folder / "pages.html"
    before, _, after = "\n".join(pages).rpartition("</body>")
    place.write_text(before + _MEASURE + after, encoding="utf-8")
    dom = _run(folder, f"--window-size={width},900", "--dump-dom", place.as_uri())
    measured = re.search(r'<pre id="measured">(.*?)</pre>', dom, re.DOTALL)
    assert measured is not None, dom[-500:]
    return [_page(found) for found in json.loads(html.unescape(measured[1]))]


def _page(found: dict[str, Any]) -> Page:
    charts = [
        Drawn(
            each["label"],
            tuple(each["frame"]),
            [Mark(**mark | {"box": tuple(mark["box"])}) for mark in each["marks"]],
        )
        for each in found["charts"]
    ]
    tables = [
        [[(cell["text"], cell["align"]) for cell in row] for row in table]
        for table in found["tables"]
    ]
    return Page(charts, tables, found["scrolls"])


def photograph(
    page: str, folder: Path, picture: Path, *, width: int = 1_000, height: int = 1_100
) -> None:
    """A PNG of the top of a page."""
    place = folder / "page.html"
    place.write_text(page, encoding="utf-8")
    _run(folder, f"--window-size={width},{height}", f"--screenshot={picture}", place.as_uri())


def _run(folder: Path, *words: str) -> str:
    """What it prints; a profile of its own, so that no other browser's is touched."""
    command = [chromium(), *_FLAGS, f"--user-data-dir={folder / 'profile'}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout
