from __future__ import annotations

import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import gdscore
from gdscore import GdscoreError
from gdscore.models import estimator, extract, fit_rotation_head, head_of, projnorm, score_all
from tests.models.networks import CLASSES, CNN, ROWS, distilbert, images, labels, loader, seeded, texts


def test_forms_of_batches_agree():
    model = seeded(CNN)
    x, y = images(), labels()
    plain = next(extract(model, [x]))
    assert plain.has == {"logits", "features"}
    for batch, labelled in [((x,), False), ((x, y), True), ((x, y, ["meta"]), True), ({"x": x, "label": y}, True)]:
        out = next(extract(model, [batch]))
        assert torch.equal(out.logits, plain.logits)
        assert ("labels" in out.has) == labelled
    assert "labels" not in next(extract(model, [(x, y)], with_labels=False)).has


def test_data_loader_and_batch_size():
    model = seeded(CNN)
    data = TensorDataset(images(20), labels(20))
    whole = gdscore.Outputs.concatenate(list(extract(model, DataLoader(data, 20))))
    parts = list(extract(model, DataLoader(data, 8)))
    assert [len(part) for part in parts] == [8, 8, 4]
    assert torch.allclose(gdscore.Outputs.concatenate(parts).logits, whole.logits, atol=1e-6)


def test_outputs_can_be_used_in_autograd():
    (out,) = extract(seeded(CNN), loader(1))
    scale = torch.ones((), requires_grad=True)
    (out.arrays["logits"] * scale).sum().backward()
    assert scale.grad is not None


def test_inside_inference_mode():
    with torch.inference_mode():
        (out,) = extract(seeded(CNN), loader(1))
    assert torch.equal(out.logits, next(extract(seeded(CNN), loader(1))).logits)


def test_scripted_model_gives_logits_only():
    model = nn.Sequential(nn.Flatten(), nn.Linear(768, CLASSES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.trace(model, images())
    assert next(extract(scripted, loader(), head=False)).has == {"logits", "labels"}
    with pytest.raises(GdscoreError, match="scripted"):
        extract(scripted, loader(), batchnorm="batch")


def test_class_names():
    names = ["ant", "bee", "cow", "dog", "elk"]
    for given in (names, iter(names)):
        assert [out.class_names for out in extract(seeded(CNN), loader(2), class_names=given)] == [tuple(names)] * 2
    for bad in (names[:3], "abcde", [0, 1, 2, 3, 4], ["ant"] * 5):
        with pytest.raises(GdscoreError, match="class_names"):
            list(extract(seeded(CNN), loader(), class_names=bad))


class Scaled(nn.Module):
    """A network whose first step works on the inputs themselves, or not."""

    def __init__(self, in_place):
        super().__init__()
        self.in_place, self.layers = in_place, seeded(CNN)

    def forward(self, x):
        return self.layers(x.sub_(0.5).div_(0.1) if self.in_place else (x - 0.5) / 0.1)


@pytest.mark.parametrize("options", [{"batchnorm": "both"}, {"rotation_head": nn.Linear(1, 4)}, {}])
def test_a_first_layer_in_place_changes_no_later_pass(options):
    if "rotation_head" in options:
        features = next(extract(Scaled(False), loader())).features.shape[1]
        options = {"rotation_head": nn.Linear(features, 4)}
    found, expected = (
        list(extract(Scaled(in_place), loader(), peer=Scaled(in_place), **options)) for in_place in (True, False)
    )
    for one, other in zip(found, expected, strict=True):
        assert one.arrays.keys() == other.arrays.keys()
        assert all(torch.equal(one.arrays[name], array) for name, array in other.arrays.items())
        assert torch.equal(one.peer_logits, one.logits)


def test_inputs_that_carry_a_graph():
    """A loader may yield what another module computed, without `no_grad`."""
    model, (x,) = seeded(CNN), [batch[0] for batch in loader()][:1]
    computed = x * torch.ones(1, requires_grad=True)
    (found,), (expected,) = (list(extract(model, [given], peer=model)) for given in (computed, x))
    assert torch.equal(found.peer_logits, expected.peer_logits)


def test_peer_in_the_same_pass():
    model, peer = seeded(CNN), seeded(CNN, bias=False)
    for out, alone in zip(extract(model, loader(), peer=peer), extract(peer, loader()), strict=True):
        assert torch.equal(out.peer_logits, alone.logits)
    with pytest.raises(GdscoreError, match="peer_logits"):
        next(extract(model, loader(), peer=nn.Sequential(nn.Flatten(), nn.Linear(768, 3))))


def test_four_rotations():
    model, head = seeded(CNN), nn.Linear(16, 4).double()
    for out, (x, _) in zip(extract(model, loader(2), rotation_head=head), loader(2), strict=True):
        assert out.rotation_logits.shape == (ROWS, 4, 4)
        for k in range(4):
            turned = next(extract(model, [torch.rot90(x, k, dims=(2, 3))]))
            expected = head(turned.features.double())
            assert torch.allclose(out.rotation_logits[:, k], expected, atol=1e-6)
    with pytest.raises(GdscoreError, match=r"images of shape \(m, C, H, W\)"):
        next(extract(distilbert(), texts(), rotation_head=nn.Linear(16, 4)))
    with pytest.raises(GdscoreError, match=r"shape \(m, 4\)"):
        next(extract(model, loader(), rotation_head=nn.Linear(16, 3)))
    with pytest.raises(GdscoreError, match="callable"):
        extract(model, loader(), rotation_head=3)
    with pytest.raises(GdscoreError, match="head=False"):
        extract(model, loader(), rotation_head=head, head=False)


def test_logits_where_the_caller_says():
    class Both(CNN):
        def forward(self, x):
            h = self.backbone(x)
            return h, self.fc(h)

    model = seeded(Both)
    with pytest.raises(GdscoreError, match="position of the logits, 0 or 1"):
        next(extract(model, loader()))
    assert next(extract(model, loader(), logits=1)).n_classes == CLASSES


class Buffered(CNN):
    """Returns memory of its own, as wrappers of static graphs do: a buffer, an attribute or a tensor of a closure."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where
        self.register_buffer("out", torch.zeros(ROWS, CLASSES))
        self.kept = torch.zeros(ROWS, CLASSES)
        closure = torch.zeros(ROWS, CLASSES)
        self.static = lambda: closure

    def forward(self, x):
        z = super().forward(x)
        memory = {"buffer": self.out, "attribute": self.kept, "closure": self.static()}[self.where]
        return memory.copy_(z)


@pytest.mark.parametrize("where", ["buffer", "attribute", "closure"])
def test_models_that_return_memory_of_their_own(where):
    """The logits were zeros, as the buffers are written back after the pass, or those of the last batch."""
    model = seeded(Buffered, where).eval()
    expected = [out.logits for out in extract(seeded(CNN), loader())]
    for options in ({}, {"head": False}, {"peer": seeded(Buffered, where)}):
        outputs = list(extract(model, loader(), **options))
        for out, logits in zip(outputs, expected, strict=True):
            assert torch.equal(out.logits, logits)
            assert "peer_logits" not in out.has or torch.equal(out.peer_logits, logits)
    assert not model.out.any()
    features = torch.zeros(ROWS, 16)
    model = seeded(CNN, norm=False)
    model.backbone.append(nn.Identity())
    model.backbone[-1].register_forward_hook(lambda module, args, output: features.copy_(output))
    first, _ = extract(model, loader(2))
    assert torch.equal(first.features, next(extract(seeded(CNN, norm=False), loader(1))).features)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_precision_of_the_model(dtype):
    model = seeded(CNN).to(dtype)
    (out,) = extract(model, loader(1))
    assert out.arrays["logits"].dtype == out.arrays["features"].dtype == dtype
    assert torch.allclose(out.logits.float(), next(extract(seeded(CNN), loader(1))).logits, atol=2e-2)
    assert gdscore.score("confscore", out) > 0


def test_input_of_another_precision_is_cast():
    (out,) = extract(seeded(CNN), [images().double()])
    assert out.arrays["logits"].dtype == torch.float32


@pytest.mark.parametrize("empty", [[], iter(()), DataLoader(TensorDataset(images(3)), 4, drop_last=True)])
def test_a_loader_that_yields_nothing(empty):
    with pytest.raises(GdscoreError, match="it yielded none"):
        list(extract(seeded(CNN), empty))


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (images(), "a single Tensor: pass a list of one batch"),
        ({"x": images()}, "a single dict"),
        (TensorDataset(images()), "wrap it in a DataLoader"),
        (3, "an iterable of batches, but got int"),
    ],
)
def test_what_is_no_loader(bad, word):
    with pytest.raises(GdscoreError, match=word):
        extract(seeded(CNN), bad)


def test_batches_without_rows_only():
    with pytest.raises(GdscoreError, match="to yield rows, but it yielded none: its dataset is empty"):
        list(extract(seeded(CNN), [images()[:0]] * 2))


@pytest.mark.parametrize("use", [extract, score_all, head_of, projnorm, fit_rotation_head, estimator])
def test_models_without_values(use):
    model = seeded(CNN).to("meta")
    data = images() if use is head_of else loader()
    with pytest.raises(GdscoreError, match="device meta, which holds no values"):
        use(model, data, *([loader()] if use is projnorm else []))


def test_iterable_datasets_are_loaders():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(loader())

    assert len(list(extract(seeded(CNN), Stream()))) == 3


@pytest.mark.parametrize(
    ("batch", "word"),
    [
        (images(channels=1), r"batch 0, float32 of shape \(12, 1, 16, 16\).*RuntimeError: .*channels"),
        ({"z": images()}, "(?s)batch 0, a dict of .*The dict was passed as one argument"),
        (images().to(torch.uint8), "uint8 of shape"),
        ((images(), labels() + 0.5), "labels to be classes"),
        ((images(), torch.eye(CLASSES)[labels()]), "argmax"),
        ((images(), labels(4)), "each of 12 rows"),
        ((images(), labels() + 100), "between 0 and 4"),
        ((images(), ["cat"] * ROWS), "labels to be integers"),
        (None, "NoneType"),
        (images() * float("nan"), "finite"),
        (images()[0], r"shape \(3, 16, 16\).*first dimension of rows.*DataLoader"),
    ],
)
def test_bad_batches(batch, word):
    with pytest.raises(GdscoreError, match=word):
        list(extract(seeded(CNN), [batch]))


def test_the_cause_stays_in_the_traceback():
    with pytest.raises(GdscoreError) as caught:
        next(extract(seeded(CNN), [images(channels=1)]))
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_devices():
    model = seeded(CNN)
    assert next(extract(model, loader(), device="cpu")).logits.device.type == "cpu"
    with pytest.raises(GdscoreError, match=r"on device cuda, but its parameters are on cpu.*model.to\('cuda'\)"):
        extract(model, loader(), device="cuda")
    with pytest.raises(GdscoreError, match="to be a torch device"):
        extract(model, loader(), device="gpu")
    with pytest.raises(GdscoreError, match="on device meta"):
        extract(model, loader(), device="meta")


def test_bad_options_are_refused_before_the_first_batch():
    with pytest.raises(GdscoreError, match="batchnorm"):
        extract(seeded(CNN), loader(), batchnorm="train")
    for bad in ("bf16", torch.int64):
        with pytest.raises(GdscoreError, match="`autocast` to be a floating-point"):
            extract(seeded(CNN), loader(), autocast=bad)
    with pytest.raises(GdscoreError, match="nn.Module"):
        extract(lambda x: x, loader())


@pytest.mark.parametrize("mode", ["batch", "both"])
def test_one_batch_of_one_row_on_batch_statistics_says_why(mode):
    model = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3))
    with pytest.raises(GdscoreError, match="batch 1, .*more than 1 value per channel.*drop_last=True"):
        list(extract(model, [torch.zeros(4, 4), torch.zeros(1, 4)], batchnorm=mode))


def test_progress(capsys):
    data = DataLoader(TensorDataset(images(20)), 8)
    list(extract(seeded(CNN), data, progress=True))
    assert "20/20" in capsys.readouterr().err
    list(extract(seeded(CNN), data))
    list(extract(seeded(CNN), loader(), progress=True))
    assert not capsys.readouterr().err


def test_torch_is_imported_with_gdscore_models_only():
    code = (
        "import sys, gdscore; assert 'torch' not in sys.modules; sys.modules['torch'] = None\n"
        "try:\n    from gdscore import models\n"
        "except gdscore.GdscoreError as error:\n    print(error)\n"
    )
    message = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "torch is not installed: pip install torch torchmetrics" in message


def test_torchmetrics_is_imported_with_its_metric_only():
    code = (
        "import sys; from gdscore import models, GdscoreError; assert 'torchmetrics' not in sys.modules\n"
        "assert 'ScoreMetric' in dir(models) and not hasattr(models, 'Metric'); sys.modules['torchmetrics'] = None\n"
        "try:\n    models.ScoreMetric\n"
        "except GdscoreError as error:\n    print(error)\n"
    )
    message = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "torchmetrics is not installed: pip install torch torchmetrics" in message


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
@pytest.mark.parametrize("pin", [False, True])
@pytest.mark.parametrize("autocast", [None, torch.bfloat16])
def test_cuda(pin, autocast):
    model = seeded(CNN, dropout=0.2).train()
    data = DataLoader(TensorDataset(images(200), labels(200)), 64, pin_memory=pin)
    expected = gdscore.Outputs.concatenate(list(extract(model, data)))
    model.cuda()
    state = torch.cuda.get_rng_state()
    torch.cuda.synchronize()
    parts = []
    try:
        with torch.cuda.stream(torch.cuda.Stream()):
            for out in extract(model, data, autocast=autocast):
                parts.append(out)
                # The first batch is compared with the head; no later one may wait for the device.
                torch.cuda.set_sync_debug_mode("error" if pin else "default")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    got = gdscore.Outputs.concatenate(parts)
    assert got.logits.is_cuda
    assert got.arrays["logits"].dtype == (autocast or torch.float32)
    assert torch.allclose(got.logits.cpu(), expected.logits, atol=1e-3 if autocast is None else 5e-2)
    assert torch.equal(got.labels.cpu(), expected.labels)
    assert torch.equal(torch.cuda.get_rng_state(), state)


def test_numbered_rows():
    x = torch.randn(300, 6)
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    values = []
    for size in (7, 64, 300):
        outputs = list(extract(net, x.split(size), numbered=True))
        assert torch.cat([out.ids for out in outputs]).tolist() == list(range(300))
        values.append(gdscore.score("gdscore", outputs))
    assert values == pytest.approx([values[0]] * 3, rel=1e-4)


def test_batches_without_rows_are_passed_over():
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    outputs = list(extract(net, [torch.randn(5, 6), torch.randn(0, 6), torch.randn(3, 6), torch.randn(0, 6)]))
    assert [len(out) for out in outputs] == [5, 3]


def test_a_first_layer_in_place_leaves_the_loaders_data():
    batches = [batch[0] for batch in loader()]
    before = [x.clone() for x in batches]
    first, second = ([o.logits for o in extract(Scaled(True), batches)] for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(batches, before, strict=True))


@pytest.mark.parametrize("columns", [1, 2])
def test_a_threshold_decides_for_binary_models(columns):
    model = nn.Sequential(nn.Flatten(), seeded(nn.Linear, 768, columns))
    x = images(40)
    plain = next(extract(model, [x]))
    (out,) = extract(model, [(x, plain.predictions)], threshold=0.4)
    assert out.decision == "threshold 0.4"
    assert torch.equal(out.predictions, (plain.probabilities[:, 1] >= 0.4).long())
    assert torch.equal(out.confidence, out.probabilities.gather(1, out.predictions[:, None])[:, 0])
    est = estimator(model, [(x, plain.predictions)], shifts=[lambda x: x + 0.1, lambda x: 0.9 * x], threshold=0.4)
    assert est.decision_ == "threshold 0.4"
    assert est.reference_accuracy_ == out.accuracy
    with pytest.raises(GdscoreError, match="decided by the largest probability"):
        est.estimate(plain)
    table = score_all(model, [x], scores=["confscore"], threshold=0.4)
    assert table["confscore"] == pytest.approx(float(out.confidence.mean()))
    assert gdscore.models.from_batches([plain.logits], threshold=0.4).decision == "threshold 0.4"


def test_thresholds_that_cannot_be_used():
    with pytest.raises(GdscoreError, match="smaller than 1"):
        extract(seeded(CNN), loader(), threshold=1)
    with pytest.raises(GdscoreError, match=f"{CLASSES} classes"):
        next(extract(seeded(CNN), loader(), threshold=0.1))
