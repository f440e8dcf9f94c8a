import pytest


@pytest.fixture
def one_thread():
    """Small batches: on a busy machine two threads spend their time waiting for each other."""
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
