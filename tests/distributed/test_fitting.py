"""An estimator whose shifted sets were made on many workers is that of one machine."""

from __future__ import annotations

import pytest

from gdscore import distributed, models, shifts

pytest.importorskip("ray", reason="Ray is not installed: pip install 'gdscore[ray]'")
torch = pytest.importorskip("torch")


@pytest.mark.slow
def test_the_estimator_is_that_of_one_machine(cluster, tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(192, 12), torch.nn.ReLU(), torch.nn.Linear(12, 4)
    ).eval()
    images = torch.rand(400, 3, 8, 8)
    with torch.no_grad():
        labels = model(images + 0.3 * torch.randn(images.shape)).argmax(1)
    chosen, names = shifts.corruptions((2, 5))[:6], ["ant", "bee", "cow", "dog"]
    data = torch.utils.data.TensorDataset(images, labels)
    loader = torch.utils.data.DataLoader(data, batch_size=200, shuffle=True)
    state = torch.get_rng_state()
    options = {"shifts": chosen, "batch_size": 100, "level": 0.8, "class_names": names}
    distributed.estimator(model, loader, num_actors=2, **options).save(tmp_path / "cluster")
    models.estimator(model, loader, **options).save(tmp_path / "one")
    assert (tmp_path / "cluster").read_bytes() == (tmp_path / "one").read_bytes()
    assert torch.equal(torch.get_rng_state(), state)  # a loader that shuffles had moved on the caller's
