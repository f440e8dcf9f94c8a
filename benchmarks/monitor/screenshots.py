"""Pictures of the monitor's pages in the documentation: docs/images/monitor-overview.png and monitor-model.png.

    python -m benchmarks.monitor.screenshots        # needs playwright and Chromium; about a minute

They show `gdscore monitor demo`, whose sixty days end today.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from benchmarks import ROOT

__all__ = ["main"]

IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHTS = 1160, {"overview": 340, "model": 800}


def wait_for(url, process, seconds=600):
    """Return when the page answers."""
    for _ in range(seconds):
        try:
            return urlopen(url, timeout=5).close()
        except (URLError, ConnectionError):
            if process.poll() is not None:
                raise SystemExit("the demo ended") from None
            time.sleep(1)
    raise SystemExit("the demo did not answer")


def main(arguments=None):
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8611)
    parser.add_argument("--chromium", default=shutil.which("chromium"), help="its program")
    options = parser.parse_args(arguments)
    base = f"http://127.0.0.1:{options.port}"
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "demo.db")
        command = [sys.executable, "-m", "gdscore.cli", "monitor", "demo", "--file", file, "--port", str(options.port)]
        service = subprocess.Popen(command)
        try:
            wait_for(f"{base}/healthz", service)
            with sync_playwright() as started:
                browser = started.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
                for name, path in (("overview", "/"), ("model", "/models/digits-sudden")):
                    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHTS[name]})
                    page.goto(f"{base}{path}", wait_until="networkidle")
                    page.screenshot(path=IMAGES / f"monitor-{name}.png")
                browser.close()
        finally:
            service.terminate()
            service.wait()


if __name__ == "__main__":
    main()
