"""The report in a real browser: no error, no request, nothing beyond the edge of a phone."""

from __future__ import annotations

import json
import shutil
import subprocess

import numpy as np
import pytest
from PIL import Image

from gdscore.report import Target, write_report
from tests.report.test_page import Page


@pytest.fixture(scope="module")
def browser():
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("Chromium is not installed, so the report was not opened in a browser: run `make browser`")
    return found


def opened(browser, path, folder, *options):
    """What the browser wrote to its output, said on its console, and asked the network for on behalf of the page."""
    log = folder / "net.json"
    done = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--hide-scrollbars",
            "--disable-background-networking",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            f"--user-data-dir={folder / 'profile'}",
            f"--log-net-log={log}",
            "--enable-logging=stderr",
            "--virtual-time-budget=2000",
            *options,
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    network = json.loads(log.read_text())
    started = network["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"]
    asked = [e["params"] for e in network["events"] if e["type"] == started and "url" in e.get("params", {})]
    # Chromium's own requests have no page behind them.
    return done.stdout, console, [p["url"] for p in asked if p.get("initiator") != "not an origin"]


def test_the_checks_see_what_they_look_for(browser, tmp_path):
    path = tmp_path / "bad.html"
    path.write_text("<!DOCTYPE html><img src='http://127.0.0.1:9/x.png'><script>nowhere()</script>")
    _, console, requests = opened(browser, path, tmp_path, "--dump-dom")
    assert any("nowhere is not defined" in line for line in console)
    assert requests == ["http://127.0.0.1:9/x.png"]


@pytest.mark.parametrize("several", [False, True], ids=["one target", "time series"])
def test_opens_without_errors_or_requests(browser, tmp_path, estimator, estimate, targets, several):
    shown = targets if several else [Target("<script>alert(1)</script>", estimate)]
    path = tmp_path / "report.html"
    write_report(path, estimator, shown, min_accuracy=0.7, model_name="a model")
    dom, console, requests = opened(browser, path, tmp_path, "--dump-dom")
    assert console == []
    assert requests == []
    found = Page(dom)
    expected = sorted(shown, key=lambda t: t.when) if several else shown
    assert [t["estimate"] for t in found.data["targets"]] == [t.estimate.to_dict() for t in expected]
    assert found.tags.count("script") == 1
    for width in (1280, 390):
        picture = tmp_path / f"{width}.png"
        opened(browser, path, tmp_path, f"--screenshot={picture}", f"--window-size={width},2500")
        pixels = np.asarray(Image.open(picture).convert("RGB")).astype(int)
        assert pixels.shape[1] == width
        assert np.abs(pixels - pixels[0, 0]).max() > 100
        edge = pixels[:, -12:]
        assert np.abs(edge - pixels[0, 0]).max() < 8, f"something is drawn beyond the margin at {width} px"
