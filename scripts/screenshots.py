"""Pictures of a run's page, for the documentation: python scripts/screenshots.py RUN OUT.png [--dark] [--width W].

Needs Debian's chromium and chromium-driver, and selenium from PyPI. 256 colours keep the file small.
"""

import argparse
import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from precad.report.page import write_report
from precad.report.run import read_run


def main() -> None:
    """One picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--dark", action="store_true")
    parser.add_argument("--width", type=int, default=1120)
    parser.add_argument("--height", type=int, default=1400, help="the top so many pixels")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = write_report([read_run(run) for run in arguments.runs], Path(folder) / "report.html")
        shot = photograph(page, arguments.width, arguments.height, dark=arguments.dark)
    picture = Image.open(io.BytesIO(shot)).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
    picture.save(arguments.out, optimize=True)
    print(f"{arguments.out}: {picture.width} × {picture.height}, {arguments.out.stat().st_size:,} bytes")


def photograph(page: Path, width: int, height: int, *, dark: bool) -> bytes:
    """The top of a page as PNG."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        frame = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", frame)
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        driver.get(page.as_uri())
        return driver.get_screenshot_as_png()
    finally:
        driver.quit()


if __name__ == "__main__":
    main()
