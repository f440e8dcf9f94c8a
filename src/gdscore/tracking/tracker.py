"""`AccuracyTracker`: keeps windows and their labels, and asks `gdscore.tracking.windows` for estimates.

Rows of a window are kept as a predicted class and, once it is known, a label: one or two bytes each, until all labels
are in. Those of the latest complete windows stay, so that corrected labels find their predictions.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, NoReturn, overload

import numpy as np
from numpy.typing import NDArray

from gdscore._checks import boolean, integer, number, share
from gdscore._files import PathLike, atomic
from gdscore._stream import batches, in_order
from gdscore._windows import as_time, time_of
from gdscore.errors import GdscoreError, shown
from gdscore.estimator import AccuracyEstimator, Estimate
from gdscore.estimator.core import fitted_of
from gdscore.estimator.estimate import Estimates
from gdscore.frames import frame_of
from gdscore.labeling.rows import NOT_LABELLED, LabelRows
from gdscore.outputs import Outputs
from gdscore.tracking.method import SETTINGS
from gdscore.tracking.rows import (
    Group,
    Version,
    WindowRows,
    counts_by_segment,
    label_type,
    labels_by_row,
    load,
    to_bytes,
)
from gdscore.tracking.windows import (
    CommonError,
    History,
    Tally,
    TrackedWindow,
    draw,
    shown_time,
    tracked,
    with_own_labels,
)

if TYPE_CHECKING:
    from typing import Self

    from matplotlib.figure import Figure

CORRECTABLE = 100
"""Complete windows whose rows are kept for corrected labels."""


class AccuracyTracker:
    """Accuracy over time from outputs and from labels that come late.

    With no labels an estimate is the estimator's. As soon as labels of earlier windows are known, it is a weighted mean
    of a few simple answers, such as the last known accuracy and the label-free estimate with the class mix that labels
    show; answers that were close for past windows weigh more. Its interval widens with every miss and narrows while
    intervals hold. docs/tracking.md has it in full.

    Parameters
    ----------
    est : AccuracyEstimator
        Fitted.
    level : float, default 0.9
        Share of intervals that are meant to hold the accuracy of their window.
    keep : timedelta, optional
        How long the predicted classes of a window wait for labels, counted from its time to that of the latest window;
        by default always.

    Examples
    --------
    >>> import numpy as np, gdscore
    >>> rng = np.random.default_rng(0)
    >>> def outputs(rows, noise):
    ...     y = rng.integers(0, 3, rows)
    ...     return gdscore.Outputs(logits=3 * np.eye(3)[y] + noise * rng.normal(size=(rows, 3)), labels=y)
    >>> est = gdscore.AccuracyEstimator().fit(outputs(2000, 1.0))
    >>> track = gdscore.AccuracyTracker(est)
    >>> for day in range(1, 11):
    ...     out = outputs(500, 2.5)
    ...     e = track.estimate(out, time=f"2026-01-{day:02}")
    ...     track.add_labels(time=f"2026-01-{day:02}", labels=out.labels)
    >>> abs(e.accuracy - out.accuracy) < 0.05, max(e.answers.values()) < 1
    (True, True)
    """

    def __init__(self, est: AccuracyEstimator, level: float = 0.9, keep: timedelta | None = None) -> None:
        self._level = share("level", level, most=0.999)
        if keep is not None and (not isinstance(keep, timedelta) or keep <= timedelta(0)):
            raise GdscoreError(f"Expected `keep` to be a timedelta above 0 or None, but got {shown(keep)}")
        self._keep = keep
        self._est = self._checked(est)
        self._versions = [Version.of(self._est)]
        self._groups: dict[datetime, Group] = {}
        self._times: list[datetime] = []
        self._tallies: dict[Any, Tally] = {}
        self._complete: deque[datetime] = deque()  # complete windows whose rows are kept
        self._names: tuple[str, ...] | None = None  # columns that name segments
        self._zoned: bool | None = None

    def _checked(self, est: Any) -> AccuracyEstimator:
        fitted_of(est)
        checked: AccuracyEstimator = copy(est)
        checked.level = self._level
        return checked

    # -- what it holds ------------------------------------------------------------------------------------------

    @property
    def estimator(self) -> AccuracyEstimator:
        """The estimator of the latest version of the model, at the tracker's level."""
        return self._est

    @property
    def level(self) -> float:
        """Share of intervals that are meant to hold."""
        return self._level

    @property
    def keep(self) -> timedelta | None:
        """How long predicted classes wait for labels."""
        return self._keep

    def __len__(self) -> int:
        return len(self._times)

    def __repr__(self) -> str:
        labelled = sum(group.is_labelled for group in self._groups.values())
        return f"AccuracyTracker({len(self):,} windows, {labelled:,} with labels, level={self._level})"

    # -- estimating ---------------------------------------------------------------------------------------------

    def state(self) -> WindowRows:
        """Rows of a window that come in parts: `update` it with outputs, then give it to `estimate` in their place."""
        return WindowRows(self._est, self._names)

    @overload
    def estimate(self, outputs: Any, time: Any, by: None = None, *, replace: bool = False) -> Estimate: ...
    @overload
    def estimate(self, outputs: Any, time: Any, by: Any, *, replace: bool = False) -> Estimates: ...
    def estimate(self, outputs: Any, time: Any, by: Any = None, *, replace: bool = False) -> Estimate | Estimates:
        """Estimate the accuracy of a window from its outputs and from every label that is known so far.

        Parameters
        ----------
        outputs : Outputs, iterable of Outputs, or what `state` returned
            Of the window's rows.
        time : datetime, date, str or Period
            Names the window; windows are in order of time, in whatever order they come.
        by : array, column or data frame of columns, optional
            Segment of each row, as in `AccuracyEstimator.estimate`: an estimate for each, worst first. Segments share
            what their errors have in common.
        replace : bool, default False
            Whether other outputs may take the place of those of the same time; their labels are dropped. The same
            outputs may always come again: where labels of the window are known, the estimate is made of them too.
        """
        when, may_replace = as_time(time), boolean("replace", replace)
        rows = self._read(outputs, by)
        self._check_names(rows)
        before = self._groups.get(when)
        same = before is not None and before.holds(rows)
        if before is not None and not (same or may_replace):
            raise GdscoreError(
                f"Expected the outputs and segments that the window of {shown_time(when)} has, or another time, but "
                "got others: give replace=True to put them in their place, which drops their labels"
            )
        estimates, windows = self._answered(when, rows)
        if same and before is not None:
            for key, window in windows.items():
                if before.segments[key].n_labels:
                    estimates[key] = with_own_labels(estimates[key], before.segments[key], self._level)
                else:
                    before.segments[key] = window
            if not before.is_labelled:
                before.version = len(self._versions) - 1
            group = before
        else:
            if before is not None:
                self._remove(when)
            group = self._insert(when, rows, windows)
        self._see_zone(time)
        self._forget_old()
        if not rows.names:
            return estimates[None]
        ordered = dict(sorted(estimates.items(), key=lambda item: item[1].accuracy))
        return Estimates(ordered, {key: group.segments[key].known for key in ordered}, rows.names)

    def _answered(self, when: datetime, rows: WindowRows) -> tuple[dict[Any, Estimate], dict[Any, TrackedWindow]]:
        """Estimate and window of each segment."""
        made = self._est.estimate(rows.state)
        free: Mapping[Any, Estimate] = made if rows.names else {None: made}
        current = self._versions[-1]
        alike = [i for i, version in enumerate(self._versions) if version.class_names == current.class_names]
        earlier = self._times[: bisect_left(self._times, when)]
        estimates: dict[Any, Estimate] = {}
        windows: dict[Any, TrackedWindow] = {}
        for key in rows.keys:
            latest_first = (self._groups[time] for time in reversed(earlier))
            labelled = (group for group in latest_first if group.is_labelled and key in group.segments)
            groups = list(islice(labelled, SETTINGS.most_windows))[::-1]
            common = [group.common for group in groups] if rows.names else None
            past, tally = [group.segments[key] for group in groups], self._tallies.get(key, Tally())
            first = bisect_left(earlier, past[0].time) if past else len(earlier)
            seconds = [time.timestamp() for time in earlier[first:]]
            history = History(past, seconds, tally, alike, current.mix, common)

            def with_class_mix(shares: Any, key: Any = key) -> Estimate:
                estimate: Estimate = self._est.estimate(rows.state.of_segment(key), class_mix=shares)
                return estimate

            estimates[key], windows[key], _ = tracked(free[key], with_class_mix, history, when, len(self._versions) - 1)
        return estimates, windows

    def _read(self, outputs: Any, by: Any) -> WindowRows:
        """Rows of outputs, in one pass."""
        if isinstance(outputs, WindowRows):
            if by is not None:
                raise GdscoreError("Expected a state alone, as it has its segments, but got `by` with it")
            rows = outputs
        else:
            rows = self.state()
            for batch in batches(outputs, by):
                rows.update(batch)
        if not rows.n_rows:
            raise GdscoreError("Expected outputs with rows, but there are none")
        return rows

    def _check_names(self, rows: WindowRows) -> None:
        if self._names not in (None, rows.names):
            in_order(dict.fromkeys(rows.names), self._names)

    def _insert(self, when: datetime, rows: WindowRows, windows: dict[Any, TrackedWindow]) -> Group:
        group = Group(rows.fingerprint, len(self._versions) - 1, windows)
        group.keep_rows(rows)
        self._groups[when] = group
        insort(self._times, when)
        self._names = rows.names
        return group

    def _remove(self, when: datetime) -> None:
        group = self._groups.pop(when)
        self._times.remove(when)
        for key, window in group.segments.items():
            self._count(key, window, -1)
        if when in self._complete:
            self._complete.remove(when)

    def _count(self, key: Any, window: TrackedWindow, sign: int) -> None:
        """Count the outcome of a window's interval, or take it back."""
        if window.error is not None and (missed := window.missed) is not None:
            before = self._tallies.get(key, Tally())
            self._tallies[key] = Tally(before.tested + sign, before.missed + sign * int(missed))

    def _forget_old(self) -> None:
        if (keep := self._keep) is not None:
            for when in takewhile(lambda time: self._times[-1] - time > keep, self._times):
                self._groups[when].forget_rows()

    # -- labels -------------------------------------------------------------------------------------------------

    def add_labels(self, time: Any, labels: Any, rows: Any = None, *, by: Any = None) -> None:
        """Take in labels of a window: of all its rows or of some, in any order; labels that come again replace.

        The labels of some rows must be those of random rows, or of the rows that `gdscore.labeling.choose` drew: rows
        that somebody picked would bias everything after.

        Parameters
        ----------
        time : datetime, date, str or Period
            That the window was estimated with.
        labels : sequence, mapping from row number to label, or labelled Outputs
            Class numbers or names, in the order of the window's outputs; None, NaN and empty text where there is none
            yet, "?" where nobody can tell. Labelled outputs need no kept predictions: all rows of the window, or some
            of them, or those of a window that was never estimated, which then counts as history.
        rows : integer array or LabelRows, optional
            Which rows of the window the labels are for, by default all.
        by : array, column or data frame of columns, optional
            Segment of each row of labelled outputs. Otherwise segments are known from `estimate`.
        """
        when = as_time(time)
        labels = list(labels) if isinstance(labels, Iterator) else labels
        listed = labels if isinstance(labels, list | tuple) else [labels]
        if listed and all(isinstance(item, Outputs) for item in listed):
            if rows is not None:
                raise GdscoreError("Expected labelled outputs without `rows`, as they are their own rows, but got both")
            self._add_outputs(when, labels, by)
            self._see_zone(time)
            return
        group = self._known_group(when)
        if by is not None:
            raise GdscoreError(
                "Expected `by` with labelled outputs only, as the segments of a window's rows are known, but got labels"
            )
        version = self._versions[group.version]
        if group.predictions is None:
            why = "all labels were in" if group.is_complete else "`keep` has passed"
            wanted, call = "labelled outputs", "add_labels(time=…, labels=outputs that have labels)"
            if group.version < len(self._versions) - 1:  # the latest estimator is for other outputs
                wanted, call = "its accuracy", "add_accuracy(time=…, accuracy=…)"
            raise GdscoreError(
                f"Expected {wanted} for the window of {shown_time(when)}, as the predictions of its rows are no longer "
                f"kept ({why}): {call}"
            )
        place, classes = labels_by_row(labels, rows, group, version, when)
        none_known = np.full(len(group.predictions), NOT_LABELLED, dtype=label_type(version.classes))
        changed = none_known if group.labels is None else group.labels.copy()
        changed[place] = classes
        self._set_labels(when, group, changed, rows if isinstance(rows, LabelRows) else None)

    def _add_outputs(self, when: datetime, outputs: Any, by: Any) -> None:
        group = self._groups.get(when)
        if group is not None and group.version != len(self._versions) - 1:
            raise GdscoreError(
                f"Expected labels of the window of {shown_time(when)}, which is of an older version of the model, but "
                "got outputs, which only the latest version's can be compared with: give the labels alone"
            )
        rows = self._read(outputs, by)
        if rows.labels is None:
            raise GdscoreError(
                "Expected labels, or outputs with labels, but the outputs have none: give Outputs(…, labels=…)"
            )
        labels = rows.labels.astype(label_type(self._versions[-1].classes))
        is_whole = group is None or rows.fingerprint == group.fingerprint
        if is_whole and group is not None and by is None and group.codes is not None:
            self._set_labels(when, group, labels)  # segments of its rows are known
            return
        self._check_names(rows)
        if group is None:
            _, windows = self._answered(when, rows)
            never_answered = {
                key: replace(w, accuracy=None, low=None, high=None, error=None, factor=None, labels_then=0, weights=[])
                for key, w in windows.items()
            }
            group = self._insert(when, rows, never_answered)
        if is_whole:
            if rows.keys != list(group.segments):
                raise GdscoreError(f"Expected the segments {list(group.segments)!r:.80}, but got {rows.keys!r:.80}")
            group.keep_rows(rows)
            self._set_labels(when, group, labels)
            return
        if len(labels) >= group.n_rows:
            raise GdscoreError(
                f"Expected labelled outputs of the {group.n_rows:,} rows of the window of {shown_time(when)}, or of "
                f"some of them, but got {len(labels):,} other rows: is the time right?"
            )
        counts = counts_by_segment(rows.predictions, labels, rows.codes, len(rows.keys), self._versions[-1].classes)
        changed = dict(group.segments)
        for key, facts in zip(rows.keys, counts, strict=True):
            if key not in changed or facts["n_labels"] > changed[key].n_rows:
                raise GdscoreError(
                    f"Expected some rows of the segments {list(group.segments)!r:.80} of the window, but got "
                    f"{facts['n_labels']:,} labelled rows of {key!r:.40}"
                )
            changed[key] = replace(changed[key], **facts)
        group.labels = None
        self._update(when, group, changed)

    def add_accuracy(self, time: Any, accuracy: float, n_rows: int | None = None, *, by: Any = None) -> None:
        """Take in the accuracy of a window where only the number comes back; it replaces what labels showed.

        Parameters
        ----------
        time : datetime, date, str or Period
            That the window was estimated with.
        accuracy : float
            Share of its rows that are predicted right.
        n_rows : int, optional
            Rows that it was computed on, by default all of the window.
        by : segment, optional
            The segment that it is of, where the window has segments.
        """
        when = as_time(time)
        group = self._known_group(when)
        if isinstance(accuracy, (int, float)) and 1 < accuracy <= 100:
            raise GdscoreError(f"Expected an accuracy between 0 and 1, but got {accuracy}: give {accuracy / 100:g}")
        value = number("accuracy", accuracy, least=0, most=1)
        if by not in group.segments:
            listed = list(group.segments)
            wanted = "no segment" if listed == [None] else f"one of the segments {listed!r:.80}"
            raise GdscoreError(f"Expected {wanted} of the window of {shown_time(when)}, but got {by!r:.40}")
        window = group.segments[by]
        count = window.n_rows if n_rows is None else integer("n_rows", n_rows, least=1)
        if count > window.n_rows:
            raise GdscoreError(
                f"Expected at most {window.n_rows:,} rows, as many as the window has, but got {count:,}: is the time "
                "right?"
            )
        if group.labels is not None:
            labels = group.labels.copy()
            labels[slice(None) if group.codes is None else group.codes == list(group.segments).index(by)] = NOT_LABELLED
            group.labels = labels
        changed = replace(window, n_labels=count, n_right=value * count, unsure=0, ratio=1.0, classes=[])
        self._update(when, group, {**group.segments, by: changed})

    def _set_labels(self, when: datetime, group: Group, labels: NDArray[Any], design: LabelRows | None = None) -> None:
        """Take labels for those of a window's rows."""
        assert group.predictions is not None
        counts = counts_by_segment(
            group.predictions, labels, group.codes, len(group.segments), self._versions[group.version].classes, design
        )
        group.labels = labels
        changed = {key: replace(w, **f) for (key, w), f in zip(group.segments.items(), counts, strict=True)}
        self._update(when, group, changed)

    def _update(self, when: datetime, group: Group, segments: dict[Any, TrackedWindow]) -> None:
        """Put windows with other labels in the place of those before."""
        for key, window in group.segments.items():
            self._count(key, window, -1)
        group.segments = segments
        group.common = CommonError.of(segments.values())
        for key, window in segments.items():
            self._count(key, window, 1)
        if group.is_complete and when not in self._complete:
            self._complete.append(when)
            while len(self._complete) > CORRECTABLE:
                self._groups[self._complete.popleft()].forget_rows()
        self._forget_old()

    def _known_group(self, when: datetime) -> Group:
        if when in self._groups:
            return self._groups[when]
        if not self._times:
            raise GdscoreError("Expected labels of a window that was estimated, but none was: call estimate first")
        nearest = min(self._times, key=lambda time: abs(time - when))
        raise GdscoreError(
            f"Expected the time of a window that was estimated, but got {shown_time(when)}: the nearest is "
            f"{shown_time(nearest)}. Estimate it first, or give labelled outputs"
        )

    def _see_zone(self, time: Any) -> None:
        stated = time_of(time)
        self._zoned = bool(self._zoned) or (stated is not None and stated.tzinfo is not None)

    # -- what is known ------------------------------------------------------------------------------------------

    def windows(self, backend: str | None = None) -> Any:
        """Table with a row for each window and segment, in order of time.

        Columns: ``time``, ``segment``, ``n_rows``; ``accuracy``, ``low`` and ``high`` as they were answered (empty
        where the window was never estimated); ``accuracy_now``, ``low_now`` and ``high_now`` with the labels of the
        window itself; ``truth``, the accuracy by its ``labels`` (empty without any); ``labels_then``, the labels of
        earlier windows that were known when it was answered; the naive answers ``unchanged`` (since the reference)
        and ``last_known``; ``label_free``, the estimate without any label; ``missed``, 1 where labels showed
        an accuracy outside the interval and 0 where it held.

        Parameters
        ----------
        backend : {"pandas", "polars", "pyarrow"}, optional
            Library of the data frame; the first of these that is installed by default.
        """
        import narwhals as nw

        number, count, zone = nw.Float64(), nw.Int64(), "UTC" if self._zoned else None
        kinds: dict[str, Any] = {"time": nw.Datetime("us", zone), "segment": nw.String(), "n_rows": count}
        kinds |= dict.fromkeys(("accuracy", "low", "high", "accuracy_now", "low_now", "high_now", "truth"), number)
        kinds |= dict.fromkeys(("labels", "labels_then"), count)
        # A truth value cannot be missing in every library.
        kinds |= dict.fromkeys(("unchanged", "last_known", "label_free", "missed"), number)
        records = [
            (
                *(when if zone else when.replace(tzinfo=None), self._segment_text(key)),
                *(w.n_rows, w.accuracy, w.low, w.high, *(w.now(self._level) or (None, None, None)), w.known),
                *(w.n_labels, w.labels_then, w.unchanged, w.last_known, w.label_free),
                None if w.missed is None else float(w.missed),
            )
            for when, key, w in self.items()
        ]
        columns = {name: [record[i] for record in records] for i, name in enumerate(kinds)}
        return frame_of(columns, backend, kinds)

    def items(self) -> Iterator[tuple[datetime, Any, TrackedWindow]]:
        """Time, segment and what is kept, for every window and segment in order of time."""
        for when in self._times:
            for key, window in self._groups[when].segments.items():
                yield when, key, window

    def _segment_text(self, key: Any) -> str:
        names = self._names or ()
        if not names:
            return ""
        parts = key if len(names) > 1 else (key,)
        return ", ".join(f"{name}={part}" if name else str(part) for name, part in zip(names, parts, strict=True))

    def coverage(self) -> float:
        """Share of the answers so far whose interval held, by windows with labels; NaN where there is none yet.

        Where only some rows are labelled, an interval holds if it does when it is made as wide as for so many rows.
        """
        outcomes = [window.missed for _, _, window in self.items() if window.missed is not None]
        return 1 - sum(outcomes) / len(outcomes) if outcomes else float("nan")

    def plot(self, segment: Any = None) -> Figure:
        """Draw the estimates over time, what labels have shown since, and the weights of the answers beneath.

        Parameters
        ----------
        segment : segment, optional
            Which one, where windows have segments.
        """
        windows = [window for _, key, window in self.items() if key == segment]
        if not windows:
            segments = list(dict.fromkeys(key for _, key, _ in self.items()))
            wanted = f"one of the segments {segments!r:.80}" if segments else "windows to draw: call estimate first"
            raise GdscoreError(f"Expected {wanted}, but got {segment!r:.40}")
        return draw(windows, self._level)

    def replace_model(self, est: AccuracyEstimator) -> None:
        """Go on with a new version of the model, from the old one's history with more doubt.

        Parameters
        ----------
        est : AccuracyEstimator
            Fitted for the new version.
        """
        checked = self._checked(est)
        self._versions.append(Version.of(checked))
        self._est = checked

    def merge(self, other: Any) -> NoReturn:
        """Refused: answers of two trackers were made from different labels, and cannot be made one history."""
        raise GdscoreError(
            "Expected one tracker for each model, but got two to merge: what each answered rests on the labels that it "
            "knew then, so that their answers are no one history. Give all outputs and labels to one tracker"
        )

    # -- files --------------------------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Tracker with its estimator as bytes, as `save` writes them; `load` takes them."""
        header = {
            "level": self._level,
            "keep": None if self._keep is None else self._keep.total_seconds(),
            "zoned": self._zoned,
            "names": None if self._names is None else list(self._names),
        }
        groups = {when: self._groups[when] for when in self._times}
        return to_bytes(header, self._est.to_bytes(), self._versions, groups)

    def save(self, path: PathLike) -> None:
        """Write the tracker and its estimator to one file: plain arrays, no pickle, all or nothing."""
        raw = self.to_bytes()
        with atomic(path) as file:
            file.write(raw)

    @classmethod
    def load(cls, source: PathLike | bytes) -> Self:
        """Read a tracker from a file that `save` wrote, or from its bytes."""
        header, estimator, versions, groups = load(source)
        keep = None if header["keep"] is None else timedelta(seconds=header["keep"])
        tracker = cls(AccuracyEstimator.load(estimator), header["level"], keep)
        if not versions or Version.of(tracker._est) != versions[-1]:
            raise GdscoreError("Expected the estimator of the latest version in a tracker, but it is another: damaged")
        tracker._versions, tracker._zoned = versions, header["zoned"]
        tracker._names = None if header["names"] is None else tuple(header["names"])
        for when, group in groups.items():
            tracker._groups[when] = group
            tracker._times.append(when)
            for key, window in group.segments.items():
                tracker._count(key, window, 1)
            if group.is_complete and group.predictions is not None:
                tracker._complete.append(when)
        return tracker
