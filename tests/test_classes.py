"""One rule for labels: names, positions, and what could be both."""

import itertools

import numpy as np
import pytest

import gdscore
from gdscore._classes import ClassLabels, check_class_names, class_positions
from gdscore.errors import GdscoreError, RowError


@pytest.mark.parametrize(
    ("names", "labels", "expected"),
    [
        (("1", "2", "3"), [1, 2, 3], [0, 1, 2]),
        (("1.0", "2.0", "3.0"), [1, "1", 1.0, "1.0", 3], [0, 0, 0, 0, 2]),
        (("-1", "1"), [-1, 1.0], [0, 1]),
        (("0.5", "1.5"), ["0.5", 1], [0, 1]),
        (("cat", "dog", "eel"), [0, 2.0, "1", "eel"], [0, 2, 1, 2]),
        (None, [0, 2.0, "1", "1.0"], [0, 2, 1, 1]),
        (("0", "1", "A", "B"), [0, 3, "A", "1"], [0, 3, 2, 1]),  # numbers that are positions both ways
        (("true", "false"), [True, False, "True"], [0, 1, 0]),
        (("no", "yes"), [True, "false"], [1, 0]),
        (("0", "1"), [True, False], [1, 0]),
        (("1", "0"), [True, False], [0, 1]),
    ],
)
def test_labels_are_found(names, labels, expected):
    rule = ClassLabels(names, 3 if names is None else len(names))
    assert [rule.find(label) for label in labels] == expected


@pytest.mark.parametrize(
    ("names", "label"),
    [
        (("1", "2", "3"), 0),
        (("1", "2", "3"), 1.5),
        (("cat", "dog"), 0.5),
        (("cat", "dog"), 2),
        (("cat", "dog"), -1),
        (("cat", "dog"), "fox"),
        (("cat", "dog"), float("nan")),
        (("cat", "dog", "eel"), True),
        (("1", "2"), True),
        (("cat", "dog"), None),
        (("cat", "dog"), "١"),  # a digit of another script is no position
    ],
)
def test_other_values_are_no_class(names, label):
    assert ClassLabels(names, len(names)).find(label) is None


@pytest.mark.parametrize(
    ("names", "label"), [(("1", "2", "other"), 1), (("1", "2", "other"), 2.0), (("other", "0"), 0)]
)
def test_integers_that_can_be_read_both_ways_are_refused(names, label):
    rule = ClassLabels(names, len(names))
    assert [rule.find(name) for name in names] == list(range(len(names)))
    with pytest.raises(GdscoreError, match="can be a name or a position"):
        rule.find(label)


def test_the_order_of_classes_does_not_matter():
    names = ("1", "2", "3", "4", "5")
    labels = np.array([5, 1, 3, 3, 2, 4])
    for order in itertools.islice(itertools.permutations(names), 0, 120, 7):
        found = class_positions(labels, order, 5)
        assert [order[position] for position in found] == [str(label) for label in labels]


@pytest.mark.parametrize("kind", [str, float, np.float32, np.int8, np.uint64, "O"])
def test_arrays_of_every_type(kind):
    labels = np.array([3, 1, 2, 3]).astype(str if kind == "O" else kind)
    labels = labels.astype(object) if kind == "O" else labels
    assert class_positions(labels, ("1", "2", "3"), 3).tolist() == [2, 0, 1, 2]


def test_the_row_and_the_number_of_rows_are_on_the_exception():
    with pytest.raises(RowError) as raised:
        class_positions(np.array([1.0, 0.5, 2.0, 0.5]), ("1", "2"), 2)
    error = raised.value
    assert (error.row, error.n_rows, error.array) == (1, 2, "labels")
    assert str(error) == (
        "Expected labels to be classes, but got 0.5 in row 1, the first of 2 such rows: the classes are '1', '2'"
    )


@pytest.mark.parametrize("label", [1e300, "9" * 300, 2**63, -(2**70)])
def test_numbers_that_are_too_large_are_no_class(label):
    for classes in (None, 3):
        assert ClassLabels(None, classes).find(label) is None
    with pytest.raises(GdscoreError, match="labels to be classes"):
        class_positions(np.array([str(label)]), None, None)


@pytest.mark.parametrize("names", [np.array("abc"), np.array(3), "abc", 3, {"a": 1}, b"abc"])
def test_a_single_value_is_no_list_of_names(names):
    with pytest.raises(GdscoreError, match="a sequence of strings"):
        check_class_names(names, 3)


class TestOutputs:
    """Labels of `Outputs`: positions, whole numbers, or names."""

    Z = 3 * np.eye(3)

    def test_whole_floats_are_labels(self):
        for labels in (np.array([2.0, 0.0, 1.0]), np.array([2, 0, 1], dtype=np.float16)):
            out = gdscore.Outputs(logits=self.Z, labels=labels)
            assert out.labels.tolist() == [2, 0, 1]
            assert out.labels.dtype.kind == "i"

    @pytest.mark.parametrize("library", ["torch", "jax"])
    def test_of_other_libraries(self, library):
        xp = pytest.importorskip("torch" if library == "torch" else "jax.numpy")
        out = gdscore.Outputs(logits=xp.asarray(self.Z, dtype=xp.float32), labels=xp.asarray([2.0, 0.0, 1.0]))
        assert np.asarray(out.labels).tolist() == [2, 0, 1]
        with pytest.raises(GdscoreError, match=r"whole numbers, but got 0.5 in row 1"):
            gdscore.Outputs(logits=xp.asarray(self.Z, dtype=xp.float32), labels=xp.asarray([2.0, 0.5, 1.0]))

    @pytest.mark.parametrize(("bad", "shown"), [(0.5, "0.5"), (np.nan, "nan"), (np.inf, "inf"), (1e300, "1e\\+300")])
    def test_other_floats_are_refused(self, bad, shown):
        with pytest.raises(GdscoreError, match=f"`labels` to be whole numbers, but got {shown} in row 1"):
            gdscore.Outputs(logits=self.Z, labels=np.array([0.0, bad, 1.0]))

    @pytest.mark.parametrize("kind", [str, object])
    def test_names_are_labels_where_classes_are_named(self, kind):
        labels = np.array(["c", "a", "b"], dtype=kind)
        out = gdscore.Outputs(logits=self.Z, labels=labels, class_names=["a", "b", "c"])
        assert out.labels.tolist() == [2, 0, 1]
        with pytest.raises(GdscoreError, match=r"got 'c' in row 0: the classes are 'a', 'b', 'x'"):
            gdscore.Outputs(logits=self.Z, labels=labels, class_names=["a", "b", "x"])

    def test_numbers_for_classes_named_by_other_numbers_are_refused(self):
        for names in (["1", "2", "3"], ["1", "0", "2"], ["a", "b", "0"]):
            with pytest.raises(GdscoreError, match=r"labels\.astype\(str\), or positions with .*with_class_names"):
                gdscore.Outputs(logits=self.Z, labels=np.array([1, 1, 2]), class_names=names)
            out = gdscore.Outputs(logits=self.Z, labels=np.array([1, 1, 2])).with_class_names(names)
            assert out.labels.tolist() == [1, 1, 2]
            assert out.class_names == tuple(names)
        out = gdscore.Outputs(logits=self.Z, labels=np.array(["1", "1", "2"]), class_names=["1", "2", "3"])
        assert out.labels.tolist() == [0, 0, 1]
        for names in (["0", "1", "2"], ["0", "1", "a"]):
            assert len(gdscore.Outputs(logits=self.Z, labels=np.array([1, 1, 2]), class_names=names)) == 3

    def test_a_single_value_is_refused(self):
        for name in ("labels", "ids", "features", "probabilities"):
            with pytest.raises(GdscoreError, match=f"`{name}`"):
                gdscore.Outputs(**({} if name == "probabilities" else {"logits": self.Z}), **{name: np.array(1)})
            with pytest.raises(GdscoreError, match=f"`{name}`"):
                gdscore.Outputs(**({} if name == "probabilities" else {"logits": self.Z}), **{name: np.array(1.0)})
