"""The built book, made once for every test that reads it, and a browser for figures."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HEAD = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>t</title>'
    '<meta name="viewport" content="width=device-width, initial-scale=1"><body style="margin: 8px">'
)


@pytest.fixture(scope="session")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the pages: FL_BOOK_HTML when set, else a strict build at profile smoke."""
    given = os.environ.get("FL_BOOK_HTML")
    if given:
        return Path(given).resolve()
    from fl_core.bookbuild import build_book

    return build_book("smoke", build=tmp_path_factory.mktemp("book"))


@pytest.fixture(scope="session")
def start_chrome() -> Callable[..., Any]:
    """Return a function that starts headless Chromium without any host names, in a width and with light or dark."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if not (chromium and driver):
        if os.environ.get("FL_REQUIRE_BROWSER") == "1":
            pytest.fail("FL_REQUIRE_BROWSER is set, but chromium or chromedriver is missing")
        pytest.skip("needs chromium and chromedriver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    def started(width: int, dark: bool = False) -> Any:
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        flags = ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", f"window-size={width},900")
        quiet = ("disable-background-networking", "disable-component-update", "disable-sync", "no-first-run")
        for flag in (*flags, *quiet, "host-resolver-rules=MAP * ~NOTFOUND"):
            options.add_argument(f"--{flag}")
        if width < 500:  # a window cannot be that narrow, so emulate the device
            metrics = {"width": width, "height": 800, "pixelRatio": 2.0}
            options.add_experimental_option("mobileEmulation", {"deviceMetrics": metrics})
        options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
        chrome = webdriver.Chrome(options=options, service=Service(driver))
        if dark:
            scheme = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
            chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
        return chrome

    return started


@pytest.fixture(scope="module")
def open_page(
    tmp_path_factory: pytest.TempPathFactory, start_chrome: Callable[..., Any]
) -> Iterator[Callable[..., Any]]:
    """Return a function that opens HTML from disk in Chromium, in a window of 1000 or 360 px."""
    chrome = start_chrome(1000)
    folder = tmp_path_factory.mktemp("pages")

    def opened(body: str, width: int = 1000) -> Any:
        page = folder / "page.html"
        page.write_text(HEAD + body, encoding="utf-8")
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
        chrome.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        chrome.get(page.as_uri())
        return chrome

    yield opened
    chrome.quit()
