"""Every page in a browser: charts have points, filters and buttons work, nothing overflows, no error in the console."""

import os
from datetime import timedelta

import numpy as np
import pytest

from gdscore import EstimateWarning
from gdscore.monitor import Monitor, Rules
from gdscore.monitor.access import Settings, create_token
from gdscore.monitor.app import create_app
from tests.monitor.conftest import START, estimate, make_outputs, serve, sqlite_url


@pytest.fixture(scope="module")
def addresses(tmp_path_factory, fitted):
    """The service, the same with tokens, and a token that may read."""
    monitor = Monitor(sqlite_url(tmp_path_factory.mktemp("pages")))
    monitor.register("animals", fitted)
    rng = np.random.default_rng(0)
    warning = EstimateWarning("class_mix", "warning", "the mix of predicted classes is far from the reference's")
    for n in range(40):
        value = (0.9 if n < 30 else 0.78) + 0.008 * rng.normal()
        monitor.add_estimate("animals", estimate(value, warnings=[warning]), START + timedelta(days=n))
        monitor.add_estimate("animals", estimate(0.9, rows=300), START + timedelta(days=n), segment="country=fr")
        if n < 25:
            monitor.add_labels("animals", START + timedelta(days=n), accuracy=0.9, rows=500)
    monitor.add("animals", make_outputs(400, 1.6, 3, labels=False), START + timedelta(days=40))
    monitor.register("empty")
    monitor.register("<b>plants<b>", rules=Rules())
    monitor.add_estimate("<b>plants<b>", estimate(), START)
    with serve(create_app(monitor)) as port, serve(create_app(monitor, Settings(require_token=True))) as other:
        yield f"http://127.0.0.1:{port}", f"http://127.0.0.1:{other}", create_token(monitor, "Ada")
    monitor.close()


@pytest.fixture(scope="module")
def address(addresses):
    return addresses[0]


@pytest.fixture(params=[(390, "dark"), (1440, "light")], ids=["phone", "desktop"])
def page(request, browser, address):
    width, scheme = request.param
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, base_url=address, reduced_motion="reduce"
    )
    made = context.new_page()
    problems = []
    made.checked_console = lambda m: problems.append(m.text) if m.type in ("error", "warning") else None
    made.checked_request = lambda r: None if r.url.startswith((address, "data:", "blob:")) else problems.append(r.url)
    made.on("console", made.checked_console)
    made.on("pageerror", lambda e: problems.append(str(e)))
    made.on("request", made.checked_request)
    yield made
    context.close()
    assert problems == []


def fits(page):
    return page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def keep(page, name):
    """Picture for people, where GDSCORE_SCREENSHOTS names a folder."""
    folder = os.environ.get("GDSCORE_SCREENSHOTS")
    if folder:
        page.screenshot(path=f"{folder}/{name}-{page.viewport_size['width']}.png", full_page=True)


def test_overview(page):
    page.goto("/")
    assert page.locator("tbody tr").count() == 3
    assert page.locator("svg.spark polyline").count() == 1
    assert page.get_by_text("<b>plants<b>", exact=True).count() == 1
    assert fits(page)
    keep(page, "overview")


def test_model_page(page):
    page.goto("/models/animals")
    page.wait_for_selector("#chart .scatterlayer .trace")
    drawn = page.evaluate("Object.fromEntries(document.getElementById('chart').data.map((t) => [t.name, t.x.length]))")
    assert drawn["estimate"] == 41
    assert drawn["with labels"] == 25
    assert page.evaluate("document.getElementById('chart').layout.shapes.length") >= 1
    assert page.get_by_text("windows have labels").count() == 1
    assert fits(page)
    keep(page, "model")
    page.get_by_role("link", name="7 days").click()
    page.wait_for_selector("#chart .scatterlayer .trace")
    assert page.evaluate("document.getElementById('chart').data[3].x.length") == 8
    page.get_by_role("link", name="country=fr").click()
    page.wait_for_selector("#chart .scatterlayer .trace")
    assert "country=fr" in page.locator("h1").inner_text()
    page.get_by_role("link", name="all", exact=True).click()
    page.get_by_role("link", name="older").click()
    assert page.locator("tbody tr").count() == 15


def test_a_model_without_windows_has_no_chart(page):
    page.goto("/models/empty")
    page.get_by_text("No window was added yet").wait_for()
    assert page.locator("#chart").count() == page.locator("table").count() == 0
    assert fits(page)


def test_one_window_shows_its_interval(page):
    page.goto("/models/%3Cb%3Eplants%3Cb%3E")
    page.locator("#chart .errorbar").wait_for()
    first, last = page.evaluate("document.getElementById('chart')._fullLayout.xaxis.range")
    assert (first[:10], last[:10]) == ("2025-12-31", "2026-01-02")
    keep(page, "one-window")


def test_pages_are_reached_by_keyboard(page):
    page.goto("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "animals":
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/models/animals")
    page.wait_for_selector("#chart .scatterlayer .trace")


def test_alarms_are_acknowledged(page, address):
    page.goto("/alarms?show=all")
    assert page.locator(".alarm-item").count() >= 1
    assert fits(page)
    keep(page, "alarms")
    if page.locator("button").count():
        page.get_by_label("Your name").first.fill("Ada <i>Lovelace</i>")
        page.get_by_role("button", name="Acknowledge").first.click()
        page.wait_for_load_state()
    assert page.get_by_text("acknowledged by Ada <i>Lovelace</i>").count() == 1


def test_report_of_a_window(page):
    page.goto("/models/animals")
    page.get_by_role("link", name="Report of").first.click()
    page.wait_for_url("**/report")
    assert page.get_by_text("animals").count() >= 1
    assert fits(page)
    keep(page, "report")


def test_a_click_on_the_chart_opens_the_report(page):
    page.goto("/models/animals")
    page.wait_for_selector("#chart .scatterlayer .trace")
    where = page.evaluate(
        """() => { const c = document.getElementById('chart'), l = c._fullLayout, t = c.data[3], k = t.x.length - 4;
        const box = c.getBoundingClientRect();
        return [box.left + l._size.l + l.xaxis.d2p(t.x[k]), box.top + l._size.t + l.yaxis.d2p(t.y[k])]; }"""
    )
    page.mouse.move(*where)
    page.wait_for_timeout(100)
    page.mouse.click(*where)
    page.wait_for_url("**/report")


def test_login(page, addresses):
    _, protected, token = addresses
    page.remove_listener("request", page.checked_request)
    page.goto(f"{protected}/models/animals")
    assert page.url == f"{protected}/login"
    assert fits(page)
    keep(page, "login")
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Continue").click()
    page.wait_for_url(f"{protected}/")
    assert page.locator("tbody tr").count() == 3
    page.goto(f"{protected}/alarms?show=all")
    assert page.locator(".alarm-item").count() >= 1
    assert page.get_by_role("button", name="Acknowledge").count() == 0  # this token may only read
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url(f"{protected}/login")
    page.goto(f"{protected}/alarms")
    assert page.url == f"{protected}/login"


def test_a_wrong_token_is_told(page, addresses):
    page.remove_listener("request", page.checked_request)
    page.remove_listener("console", page.checked_console)  # Chromium notes the status 401
    page.goto(f"{addresses[1]}/login")
    page.get_by_label("Token").fill("gds_wrong")
    page.keyboard.press("Enter")
    page.get_by_text("This is no valid token.").wait_for()
