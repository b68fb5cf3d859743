"""The console in Debian's Chromium: nothing its browser complains of, nothing that axe finds, light and dark, on a phone, by keyboard
alone, without JavaScript, while it is refreshed. The quick form has the pages that people see most, the long form all.

Screenshots are left in `.cache/console-pictures`.
"""

import contextlib
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Response
from tests.console.browser import IMAGES, WIDTHS, Shown, Window, axe, picture, shown, windows
from tests.console.browser import PICTURES as TAKEN
from tests.console.test_views import PATHS
from tests.interop.peers import ROOT

from roquette.console.app import ConsoleSettings

pytestmark = pytest.mark.browser
PICTURES = ROOT / ".cache" / "console-pictures"
# Beside the paths of every view: what there is much of, and what only a browser's cluster has.
MORE = [
    "/topics?page=2",
    "/topics?kind=retry",
    "/topics/checkout",
    "/topics/checkout/messages",
    "/topics/checkout/messages?filter=nothing",
    "/topics/a-topic-with-a-name-as-long-as-names-may-be-" + "x" * 83,
    "/topics/nowhere",
    "/groups?page=2",
    "/groups/search-index",
    "/groups/billing/stacks?client=MEMBER",
    "/messages?q=order-1005&topic=checkout",
    "/messages/ID?topic=checkout",
    "/messages/LETTER?topic=%25DLQ%25refunding",
    "/dead/refunding",
    "/act/group-seek?group=search-index&topic=checkout&to=first",
    "/act/group-seek?group=search-index&topic=checkout&to=last",
    "/act/dlq-resend?group=refunding&at=broker-a:0:1",
    "/no/such/page",
]
SMOKE = [
    "/",
    "/topics",
    "/topics/checkout",
    "/topics/orders/messages",
    "/messages/ID?topic=checkout",
]
STATUS = {"/topics/nowhere": 404, "/no/such/page": 404}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    axe()
    with windows() as found:
        yield found


@pytest.fixture(scope="module")
def full() -> Iterator[Shown]:
    with shown(much=True) as web:
        yield web


def found(window: Window, path: str) -> str:
    """The path with the ids that this cluster has."""

    def link(page: str, pattern: str) -> str:
        window.open(page)
        return unescape(re.search(pattern, window.page.content())[1])

    if "ID" in path:
        return path.replace(
            "ID", link("/messages?q=order-1005&topic=checkout", r"/c/dev/messages/([^?\"]+)\?")
        )
    if "LETTER" in path:
        return path.replace("LETTER", link("/dead/refunding", r"/c/dev/messages/([^?\"]+)\?"))
    if "MEMBER" in path:
        return path.replace("MEMBER", link("/groups/billing", r"stacks\?client=([^\"]+)\""))
    return path


def look_at(window: Window, path: str, kind: str, pictures: bool) -> list[str]:
    """What is wrong with a page: light and dark, wide and narrow."""
    wrong = []
    where = found(window, path)
    status = window.open(where).status
    if status != STATUS.get(path, 200):
        wrong.append(f"answers {status}")
    window.page.wait_for_function(
        "document.querySelector('time') === null || !/Z$/.test(document.querySelector('time').textContent)"
    )
    # Colours are the same at each width, and what a phone has not is the same in each colour.
    for scheme, width in (("light", 1440), ("dark", 390)):
        window.colours(scheme)
        window.resize(width)
        wrong += [f"{scheme}: {each}" for each in window.violations()]
    for width in WIDTHS:
        window.resize(width)
        wrong += [f"at {width} px sideways: {each}" for each in window.sideways()]
        bare = path.startswith("/act/") and "?" not in path  # forms, all alike
        for scheme in ("light", "dark") if pictures and not bare else ():
            window.colours(scheme)
            PICTURES.mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")[:60] or "overview"
            place: Path = PICTURES / f"{kind}-{name}-{width}-{scheme}.png"
            window.page.screenshot(path=place, full_page=True)
    window.resize(1440)
    if status >= 400:  # which the browser tells, too
        window.complaints = [each for each in window.complaints if f" {status} " not in each]
    wrong += window.complaints
    window.complaints = []
    return [f"{path}: {each}" for each in wrong]


def all_right(window: Window, paths: list[str], kind: str, pictures: bool) -> None:
    """Nothing is wrong with any of these; each thing that is, is told."""
    wrong = [each for path in paths for each in look_at(window, path, kind, pictures)]
    assert not wrong, "\n".join(wrong)


def test_pages_are_right_light_and_dark_wide_and_narrow(browser: Browser, full: Shown) -> None:
    with Window(browser, full) as window:
        all_right(window, SMOKE, "much", False)


def test_the_guide_has_the_pictures_that_are_taken_and_they_are_small(
    browser: Browser, full: Shown, tmp_path: Path
) -> None:
    with Window(browser, full) as window:
        picture(window, "topic", tmp_path / "topic.png")
    assert (tmp_path / "topic.png").stat().st_size < 100_000
    sizes = {place.name: place.stat().st_size for place in IMAGES.glob("console-*.png")}
    assert sorted(sizes) == sorted(f"console-{name}.png" for name in TAKEN)
    assert max(sizes.values()) < 100_000
    guide = (IMAGES.parent / "console.md").read_text()
    assert [name for name in sizes if f"images/{name}" not in guide] == []


def test_a_group_is_moved_by_keyboard_alone(browser: Browser, full: Shown) -> None:
    with Window(browser, full) as window:
        window.open("/")
        press, page = window.page.keyboard, window.page
        press.press("/")
        press.type("search-index")
        window.until(
            lambda: page.inner_text("#found").strip().startswith("search-index"),
            "the group is not the first that is found",
        )
        press.press("Enter")
        page.wait_for_url("**/groups/search-index")
        before = window.tile("Behind")
        window.tab_to("Seek")
        press.press("Enter")
        page.wait_for_url("**/act/group-seek?group=search-index")
        window.tab_to("input[topic]")
        press.type("checkout")
        window.tab_to("input[to]")
        press.type("first")
        press.press("Enter")
        page.wait_for_url("**to=first**")
        window.tab_to("Do it:")
        assert "again, 0 never" in window.focused()
        press.press("Enter")
        window.until(lambda: "Done" in window.text(), "not done")
        assert "group seek search-index" in window.text()  # the way back
        window.open("/groups/search-index")
        assert window.tile("Behind") > before
        for key, path in (("o", "/"), ("t", "/topics"), ("x", "/doctor")):
            press.press("g")
            press.press(key)
            page.wait_for_url(f"**/c/dev{path}")
        assert window.complaints == []


def test_what_is_typed_chosen_and_open_survives_refreshes(browser: Browser, full: Shown) -> None:
    with Window(browser, full) as window:
        page = window.page
        window.open("/topics")
        page.keyboard.press("f")
        page.keyboard.type("check")
        page.wait_for_url("**q=check")
        window.until(lambda: " 1 of 9" in window.text(), "the list does not answer while one types")
        with page.expect_response(is_live, timeout=15_000):
            page.keyboard.type("o")
        with page.expect_response(is_live, timeout=15_000):
            pass  # the next one comes by itself
        assert "Name has" in window.focused()
        assert page.input_value("[name=q]") == "checko"
        window.open("/topics/checkout")
        before = window.tile("Messages")
        link = page.locator("#view a", has_text="search-index").first
        link.focus()
        kept = link.element_handle()
        full.send("checkout", "fresh")
        with page.expect_response(is_live, timeout=15_000) as answer:
            pass
        window.until(lambda: window.tile("Messages") > before, "it is not refreshed")
        assert answer.value.ok
        assert page.evaluate("e => e === document.activeElement && e.isConnected", kept)
        assert window.complaints == []


def test_a_tail_holds_and_its_open_rows_stay(browser: Browser, full: Shown) -> None:
    with Window(browser, full) as window:
        page = window.page
        window.open("/topics/bytes/tail")
        tail, rows = page.locator("#tail"), page.locator("#tail .message")
        # Its reader goes to the ends of the queues after it has answered.
        window.until(lambda: full.send("bytes", "now") or rows.count() > 0, "nothing comes")
        full.send("bytes", "the last of these")
        window.until(lambda: "the last of these" in tail.inner_text(), "it goes not on")
        page.wait_for_timeout(500)
        rows.first.locator("summary").click()
        assert "stored" in rows.first.inner_text()
        before = came(page)
        full.send("bytes", "while a row is open")
        window.until(lambda: came(page) > before, "it is not counted")
        assert "held" in page.inner_text("#tailsum")
        page.keyboard.press("h")
        rows.first.locator("summary").click()
        full.send("bytes", "while it is held")
        window.until(lambda: came(page) > before + 1, "it is not counted")
        assert "while" not in tail.inner_text()
        page.keyboard.press("h")
        window.until(lambda: "while it is held" in tail.inner_text(), "it does not come")
        assert "while it is held" in rows.first.inner_text()  # the newest first
        assert "while a row is open" in rows.nth(1).inner_text()
        # A row that is closed lets come what waited.
        rows.first.locator("summary").click()
        full.send("bytes", "the end")
        window.until(lambda: "held" in page.inner_text("#tailsum"), "an open row is pushed away")
        rows.first.locator("summary").click()
        window.until(lambda: "the end" in rows.first.inner_text(), "it does not come")
        assert window.complaints == []


def test_on_a_phone_where_one_is_stays_in_sight_and_letters_say_what_they_were(
    browser: Browser, full: Shown
) -> None:
    with Window(browser, full, 390) as window:
        for path in ("/dead/refunding", "/audit", "/topics/checkout/settings"):
            window.open(path)
            for here in window.page.locator(":is(.side, .tabs) [aria-current]").all():
                box = here.bounding_box()
                assert box is not None
                assert box["x"] >= 0 and box["x"] + box["width"] <= 390, path
            assert window.sideways() == []
        window.open("/dead/refunding")
        assert "refunds ×1" in window.page.inner_text(".message >> nth=0")
        assert window.complaints == []


@pytest.mark.long
def test_who_is_not_signed_in_sees_a_form_that_is_right(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def closed(*_: object) -> bool:
        return False

    monkeypatch.setattr("roquette.apps.console.is_open", closed)
    options = ConsoleSettings(listen="127.0.0.1:0", sign_in=True)
    with shown(much=False, options=options) as web, Window(browser, web) as window:
        all_right(window, ["/"], "sign-in", True)
        assert window.page.url.endswith("/sign-in?to=%2Fc%2Fdev%2F")


def test_lists_plans_and_acts_work_without_javascript(browser: Browser, full: Shown) -> None:
    with Window(browser, full, java_script_enabled=False) as window:
        page = window.page
        window.open("/topics")
        page.fill("[name=q]", "checkout")
        page.press("[name=q]", "Enter")
        page.wait_for_url("**q=checkout")
        page.click("#view a:text-is('checkout')")
        page.wait_for_url("**/topics/checkout")
        page.click(".tabs a:text-is('Messages')")
        page.wait_for_url("**/topics/checkout/messages")
        page.click(".message summary >> nth=0")
        page.click("text=What became of it >> nth=0")
        page.wait_for_url("**/messages/**")
        assert "Journey" in window.text()
        window.open("/act/topic-create")
        page.fill("[name=topic]", "made-without-a-script")
        page.click("text=Show the plan")
        page.wait_for_url("**topic=made-without-a-script**")
        page.click("button:has-text('Do it')")
        page.wait_for_url("**topic=made-without-a-script**")
        assert "Done" in window.text()
        window.open("/topics/made-without-a-script")
        assert window.page.inner_text("h1 .subject") == "made-without-a-script"
        window.open("/topics/checkout/tail")
        assert "A tail needs JavaScript" in window.text()


def is_live(answer: Response) -> bool:
    """The refreshed part of a page, not the same as before or the same."""
    return "roquette-live" in answer.request.headers


def came(page: Page) -> int:
    """How many messages came, as the tail says."""
    found = re.match(r"\d+", page.inner_text("#tailsum"))
    return int(found[0]) if found else 0


@pytest.mark.long
@pytest.mark.parametrize("kind", ["much", "little"])
def test_every_page_is_right_light_and_dark_wide_and_narrow(
    browser: Browser, full: Shown, kind: str
) -> None:
    with contextlib.ExitStack() as held:
        web = full if kind == "much" else held.enter_context(shown(much=False))
        of_little = [path for path in PATHS if "/act/" not in path and path.count("/") < 2]
        with Window(browser, web) as window:
            all_right(window, [*PATHS, *MORE] if kind == "much" else of_little, kind, True)
