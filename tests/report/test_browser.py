"""The page in a real browser: Chromium through its driver, where both and selenium are installed."""

import shutil
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from precad.report.live import LiveServer, Watched
from precad.report.page import write_report
from precad.report.run import read_run, run_source
from tests.report.fake_runs import FakeRun
from tests.report.test_live import serving

selenium = pytest.importorskip("selenium", reason="needs selenium: pip install selenium")
CHROMIUM, DRIVER = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None, reason="needs chromium and chromedriver: apt-get install chromium-driver"
    ),
]

Browser = Any
"""selenium is not installed everywhere, so mypy does not know it."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1200,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(tmp_path: Path) -> str:
    fake = FakeRun(names=["client-1", "client-2", "<script>alert(1)</script>"], rejected=["<script>alert(1)</script>"])
    return write_report([read_run(fake.write(tmp_path / "mine"))], tmp_path / "report.html").as_uri()


@pytest.fixture(autouse=True)
def _no_complaints(browser: Browser) -> Iterator[None]:
    """The console stays empty, but for a server that a test stopped."""
    wide(browser, 1200)
    scheme(browser, "light")
    yield
    log = [entry["message"] for entry in browser.get_log("browser")]
    assert [line for line in log if "ERR_CONNECTION" not in line] == []


def wide(browser: Browser, width: int) -> None:
    values = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", values)


def scheme(browser: Browser, name: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": name}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def text(browser: Browser, selector: str) -> str:
    found: str = browser.execute_script("return document.querySelector(arguments[0]).textContent", selector)
    return found


def value(browser: Browser, selector: str) -> float:
    return float(browser.execute_script("return document.querySelector(arguments[0]).value", f"{selector} data"))


def press(browser: Browser, selector: str, *keys: str) -> None:
    browser.execute_script("document.querySelector(arguments[0]).focus()", selector)
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(*keys).perform()


def test_the_numbers_are_the_runs_own(browser: Browser, page: str) -> None:
    browser.get(page)
    end = FakeRun().line(6)
    assert value(browser, "#tile-accuracy") == end["test_accuracy"]
    assert text(browser, "#tile-accuracy .big") == "85.71\u00a0%"
    assert value(browser, "#tile-epsilon-server") == end["epsilon_server"]
    assert text(browser, "#tile-epsilon-clients .big") == "1.800"
    assert value(browser, "#tile-rejected") == 6
    assert browser.execute_script("return document.querySelectorAll('figure.chart path.curve[d]').length") >= 6


def test_a_name_is_text(browser: Browser, page: str) -> None:
    browser.get(page)
    assert "<script>alert(1)</script>" in text(browser, "#client-table")


@pytest.mark.parametrize("width", [360, 768, 1200])
def test_nothing_sticks_out(browser: Browser, page: str, width: int) -> None:
    wide(browser, width)
    browser.get(page)
    root = "document.documentElement"
    assert browser.execute_script(f"return {root}.scrollWidth <= {root}.clientWidth")


def test_light_and_dark(browser: Browser, page: str) -> None:
    browser.get(page)
    colour = "return getComputedStyle(document.body).backgroundColor"
    light = browser.execute_script(colour)
    scheme(browser, "dark")
    dark = browser.execute_script(colour)
    assert [sum(map(int, shown[4:-1].split(","))) > 380 for shown in (light, dark)] == [True, False]


def test_a_curve_is_hidden_and_shown(browser: Browser, page: str) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    browser.get(page)
    button = browser.find_element(By.CSS_SELECTOR, "#epsilon button.key")
    curve = browser.find_element(By.CSS_SELECTOR, "#epsilon .zoom [data-series='0']")
    assert (button.get_attribute("aria-pressed"), curve.is_displayed()) == ("true", True)
    press(browser, "#epsilon button.key", Keys.ENTER)
    assert (button.get_attribute("aria-pressed"), curve.is_displayed()) == ("false", False)
    button.click()
    assert (button.get_attribute("aria-pressed"), curve.is_displayed()) == ("true", True)


def test_the_keyboard_reads_and_zooms(browser: Browser, page: str) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.get(page)
    press(browser, "#accuracy svg", Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert text(browser, "#accuracy .tip") == "round 4test accuracy: 80 %"
    before = text(browser, "#accuracy .x-axis")
    press(browser, "#accuracy svg", "+")
    assert text(browser, "#accuracy .x-axis") != before
    press(browser, "#accuracy svg", Keys.ESCAPE)
    assert text(browser, "#accuracy .x-axis") == before
    press(browser, "#grid svg", Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    assert "round 2: accepted" in text(browser, "#grid .tip")


def test_the_mouse_points_and_zooms(browser: Browser, page: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By

    browser.get(page)
    chart = browser.find_element(By.CSS_SELECTOR, "#loss svg")
    ActionChains(browser).move_to_element(chart).perform()
    assert text(browser, "#loss .tip").startswith("round ")
    moves = ActionChains(browser).move_to_element_with_offset(chart, -120, 0).click_and_hold()
    moves.move_by_offset(220, 0).release().perform()
    assert browser.find_element(By.CSS_SELECTOR, "#loss .reset").is_displayed()
    browser.find_element(By.CSS_SELECTOR, "#loss .reset").click()
    assert not browser.find_element(By.CSS_SELECTOR, "#loss .reset").is_displayed()


UNNAMED = """
return [...document.querySelectorAll("svg[role=img], button, summary, section, [role=group], a")]
  .filter(node => !(node.getAttribute("aria-label") || node.textContent.trim()
    || (node.getAttribute("aria-labelledby") || "").split(" ").some(id => document.getElementById(id)?.textContent)))
  .map(node => node.outerHTML)"""


def test_everything_has_a_name(browser: Browser, page: str) -> None:
    browser.get(page)
    assert browser.execute_script(UNNAMED) == []
    assert browser.execute_script("return document.documentElement.lang") == "en"
    levels = browser.execute_script("return [...document.querySelectorAll('h1,h2,h3')].map(head => +head.tagName[1])")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_it_can_be_read_without_a_script(browser: Browser, page: str) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(page)
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    assert browser.execute_script("return document.querySelectorAll('button').length") == 0
    height = "return document.querySelector('#accuracy path.curve').getBoundingClientRect().height"
    assert browser.execute_script(height) > 50


def test_it_prints(browser: Browser, page: str) -> None:
    browser.get(page)
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    assert len(printed["data"]) > 20_000


def test_the_live_page_follows_and_survives(browser: Browser, tmp_path: Path) -> None:
    path = FakeRun().write(tmp_path / "mine", done=2)

    def until(words: str) -> None:
        for _ in range(300):
            if words in text(browser, "[data-status]"):
                return
            time.sleep(0.05)
        raise AssertionError(text(browser, "[data-status]"))

    with serving(LiveServer(Watched(run_source(path), time.time), 0)) as server:
        port = server.server_address[1]
        browser.get(server.url)
        until("running: round 2 of 6")
        press(browser, "#accuracy button.key", " ")
        FakeRun().write(path, done=4)
        until("running: round 4 of 6")
        assert value(browser, "#tile-rounds") == 4
        pressed = "return document.querySelector('#accuracy button.key').getAttribute('aria-pressed')"
        assert browser.execute_script(pressed) == "false"
    until("no answer from precad watch")
    FakeRun().write(path)
    with serving(LiveServer(Watched(run_source(path), time.time), port)):
        until("finished")
        assert value(browser, "#tile-rounds") == 6
