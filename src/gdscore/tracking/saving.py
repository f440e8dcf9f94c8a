"""A tracker as one file: its estimator, windows and labels as a record, see `gdscore.files`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gdscore._records import ArraySpec, Number, OneOf, RecordSchema, read_record, record_to_bytes
from gdscore._stream import segment_from_text, segment_to_text
from gdscore.errors import GdscoreError
from gdscore.files import PathLike
from gdscore.tracking.groups import Group, Version
from gdscore.tracking.method import ANSWERS
from gdscore.tracking.windows import TrackedWindow

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LISTS = ("weights", "classes")
_NUMBERS = tuple(f.name for f in fields(TrackedWindow) if f.name not in ("time", *_LISTS))
_WHOLE = ("n_rows", "labels_then", "version", "n_labels", "unsure")
_VERSION = {"reference_accuracy": Number(least=0, most=1), "class_names": OneOf(None, [str])}
_SCHEMA = RecordSchema(
    format="gdscore tracker",
    version=1,
    header={
        "level": Number(above=0, most=0.999),
        "keep": OneOf(None, Number(above=0)),
        "zoned": OneOf(None, True, False),
        "names": OneOf(None, [str]),
        "versions": [_VERSION],
    },
    arrays={
        "estimator": ArraySpec("i", ("bytes",), least=0, most=255),
        "mix": ArraySpec("f", ("mixes",), least=0, most=1),
        "mix.ends": ArraySpec("i", ("versions",), least=1),
        # Of windows
        "time": ArraySpec("i", ("windows",)),
        "fingerprint": ArraySpec("U", ("windows",)),
        "version": ArraySpec("i", ("windows",), least=0),
        "segment.ends": ArraySpec("i", ("windows",), least=1),
        "rows.ends": ArraySpec("i", ("windows", 3), least=0),
        # Of their segments
        "segment": ArraySpec("U", ("segments",)),
        "numbers": ArraySpec("f", ("segments", len(_NUMBERS)), finite=False),
        "weights": ArraySpec("f", ("segments", len(ANSWERS)), finite=False),
        "classes": ArraySpec("i", ("class counts",), least=0),
        "classes.ends": ArraySpec("i", ("segments",), least=0),
        # Of their rows
        "predictions": ArraySpec("i", ("predictions",), least=0),
        "labels": ArraySpec("i", ("labels",)),
        "codes": ArraySpec("i", ("codes",), least=0),
    },
    least_sizes=dict.fromkeys(("windows", "segments", "class counts", "predictions", "labels", "codes"), 0),
)


def to_bytes(
    header: dict[str, Any], estimator: bytes, versions: Sequence[Version], groups: dict[datetime, Group]
) -> bytes:
    """Bytes of a tracker."""
    windows = [window for group in groups.values() for window in group.segments.values()]
    rows = [(group.predictions, group.labels, group.codes) for group in groups.values()]
    lengths = np.array([[0 if part is None else len(part) for part in row] for row in rows], dtype=np.int64)
    values = [[getattr(window, name) for name in _NUMBERS] for window in windows]
    found = {
        "estimator": np.frombuffer(estimator, dtype=np.uint8),
        "mix": np.concatenate([version.mix for version in versions]),
        "mix.ends": np.cumsum([version.classes for version in versions]),
        "time": np.array([(when - _EPOCH) // timedelta(microseconds=1) for when in groups], dtype=np.int64),
        "fingerprint": np.array([group.fingerprint for group in groups.values()], dtype=np.str_),
        "version": np.array([group.version for group in groups.values()], dtype=np.int64),
        "segment.ends": np.cumsum([len(group.segments) for group in groups.values()], dtype=np.int64),
        "rows.ends": np.cumsum(lengths.reshape(-1, 3), axis=0),
        "segment": np.array([segment_to_text(key) for g in groups.values() for key in g.segments], dtype=np.str_),
        "numbers": np.array(values, dtype=np.float64).reshape(-1, len(_NUMBERS)),
        "weights": np.array(
            [window.weights or [np.nan] * len(ANSWERS) for window in windows], dtype=np.float64
        ).reshape(-1, len(ANSWERS)),
        "classes": _joined([np.array(window.classes, dtype=np.int64) for window in windows]),
        "classes.ends": np.cumsum([len(window.classes) for window in windows], dtype=np.int64),
        **{name: _joined([row[i] for row in rows]) for i, name in enumerate(("predictions", "labels", "codes"))},
    }
    listed = [
        {"reference_accuracy": v.reference_accuracy, "class_names": v.class_names and list(v.class_names)}
        for v in versions
    ]
    return record_to_bytes(_SCHEMA, {**header, "versions": listed}, found)


def load(source: PathLike | bytes) -> tuple[dict[str, Any], bytes, list[Version], dict[datetime, Group]]:
    """What `to_bytes` was given, from a file or from its bytes; anything that does not fit together is refused."""
    header, found, _ = read_record(source, _SCHEMA)
    try:
        versions = [
            Version(one["reference_accuracy"], one["class_names"] and tuple(one["class_names"]), mix)
            for one, mix in zip(header["versions"], _split(found["mix"], found["mix.ends"]), strict=True)
        ]
        windows = list(_windows(found))
        groups = dict(_groups(found, windows, versions))
    except (ValueError, OverflowError, IndexError, TypeError) as error:
        raise GdscoreError(
            f"Expected windows and rows that fit together in a tracker, but they do not ({error}): the file is damaged"
        ) from error
    return header, found["estimator"].astype(np.uint8).tobytes(), versions, groups


def _windows(found: dict[str, NDArray[Any]]) -> Iterator[TrackedWindow]:
    ends = _checked_ends(found["segment.ends"], len(found["numbers"]))
    times = np.repeat(found["time"], np.diff(ends, prepend=0))
    classes = _split(found["classes"], found["classes.ends"])
    for when, numbers, weights, counts in zip(
        times.tolist(), found["numbers"].tolist(), found["weights"].tolist(), classes, strict=True
    ):
        facts: dict[str, Any] = {
            name: None if value != value else int(value) if name in _WHOLE else value
            for name, value in zip(_NUMBERS, numbers, strict=True)
        }
        time = (_EPOCH + timedelta(microseconds=when)).isoformat()
        listed = [] if weights[0] != weights[0] else weights
        yield TrackedWindow.from_dict({**facts, "time": time, "weights": listed, "classes": counts.tolist()})


def _groups(
    found: dict[str, NDArray[Any]], windows: list[TrackedWindow], versions: list[Version]
) -> Iterator[tuple[datetime, Group]]:
    keys = [segment_from_text(text) for text in found["segment"].tolist()]
    ends = [0, *found["segment.ends"].tolist()]
    rows = [_split(found[name], found["rows.ends"][:, i]) for i, name in enumerate(("predictions", "labels", "codes"))]
    last = None
    for i, (fingerprint, version) in enumerate(
        zip(found["fingerprint"].tolist(), found["version"].tolist(), strict=True)
    ):
        own = slice(ends[i], ends[i + 1])
        segments = dict(zip(keys[own], windows[own], strict=True))
        parts = [part[i] if len(part[i]) else None for part in rows]
        group = Group(fingerprint, version, segments, parts[0], parts[1], parts[2]).with_common_error()
        classes = versions[version].classes
        when = windows[ends[i]].time
        if (
            len(segments) != ends[i + 1] - ends[i]
            or (last is not None and when <= last)
            or any(part is not None and len(part) != group.n_rows for part in parts)
            or any(
                part is not None and part.max() >= most
                for part, most in zip(parts, (classes, classes, len(segments)), strict=True)
            )
            or any(window.classes and len(window.classes) != classes for window in segments.values())
        ):
            raise ValueError(f"window {i} contradicts itself")
        last = when
        yield when, group


def _joined(parts: list[Any]) -> NDArray[Any]:
    kept = [part for part in parts if part is not None]
    return np.concatenate(kept) if kept else np.zeros(0, dtype=np.int64)


def _checked_ends(ends: NDArray[Any], total: int) -> NDArray[Any]:
    if (len(ends) and (np.diff(ends, prepend=0).min() < 0 or ends[-1] != total)) or (not len(ends) and total):
        raise ValueError("parts do not add up")
    return ends


def _split(values: NDArray[Any], ends: NDArray[Any]) -> list[NDArray[Any]]:
    checked = _checked_ends(ends, len(values))
    return np.split(values, checked[:-1]) if len(checked) else []
