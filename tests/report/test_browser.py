"""The report in a real browser: no error, no request, nothing beyond the edge of a phone."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from gdscore.report import Target, write_report
from tests.report.test_page import Page


@pytest.fixture
def opened(browser):
    """Function path → page, what it wrote to the console, and the addresses it asked for beside its own."""
    context = browser.new_context(viewport={"width": 1280, "height": 2500})

    def open_page(path):
        page, console, requests = context.new_page(), [], []
        page.set_default_timeout(300_000)  # a busy machine may be slow
        page.on("console", lambda message: console.append(message.text))
        page.on("pageerror", lambda error: console.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_load_state("networkidle")
        requests.remove(path.as_uri())
        return page, console, [url for url in requests if not url.startswith("data:")]

    yield open_page
    context.close()


def test_the_checks_see_what_they_look_for(opened, tmp_path):
    path = tmp_path / "bad.html"
    path.write_text("<!DOCTYPE html><img src='http://127.0.0.1:9/x.png'><script>nowhere()</script>")
    _, console, requests = opened(path)
    assert any("nowhere is not defined" in line for line in console)
    assert requests == ["http://127.0.0.1:9/x.png"]


@pytest.mark.parametrize("several", [False, True], ids=["one target", "time series"])
def test_opens_without_errors_or_requests(opened, tmp_path, estimator, estimate, targets, several):
    shown = targets if several else [Target("<script>alert(1)</script>", estimate)]
    path = tmp_path / "report.html"
    write_report(path, estimator, shown, min_accuracy=0.7, model_name="a model")
    page, console, requests = opened(path)
    assert console == []
    assert requests == []
    found = Page(page.content())
    expected = sorted(shown, key=lambda t: t.when) if several else shown
    assert [t["estimate"] for t in found.data["targets"]] == [t.estimate.to_dict() for t in expected]
    assert found.tags.count("script") == 1
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 2500})
        pixels = np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB")).astype(int)
        assert pixels.shape[1] == width
        assert np.abs(pixels - pixels[0, 0]).max() > 100
        edge = pixels[:, -12:]
        assert np.abs(edge - pixels[0, 0]).max() < 8, f"something is drawn beyond the margin at {width} px"
