"""Fixtures of several folders."""

import shutil

import pytest
from hypothesis import settings

# The same cases in every run; `make fuzz` tries others.
settings.register_profile("short", max_examples=50, deadline=None, derandomize=True)
settings.load_profile("short")


@pytest.fixture(scope="module")
def browser():
    """Chromium, in which pages are opened."""
    playwright = pytest.importorskip("playwright.sync_api")
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        pytest.skip("Chromium is not installed: run `make browser`")
    with playwright.sync_playwright() as started:
        made = started.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def one_thread():
    """Small batches: on a busy machine two threads spend their time waiting for each other."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
