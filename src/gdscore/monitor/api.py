"""JSON API, version 1, and the outputs in the bodies of requests: files that `gdscore.io` reads, or JSON.

Every route has an example in ``examples.json``: a request and its answer, both of which the description of the API
shows. They are what a service answered (``python -m tests.monitor.examples`` writes them), and a test sends each again.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import NoneType
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.openapi.utils import get_openapi
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, model_validator
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute

import gdscore
from gdscore._paths import Limits
from gdscore._stream import Batch
from gdscore._windows import as_times
from gdscore.errors import GdscoreError, shown
from gdscore.estimator import Estimate, EstimateWarning
from gdscore.io import Columns, read_batches
from gdscore.io.arrow import decoding, pyarrow
from gdscore.monitor import queries
from gdscore.monitor.auth import Settings, Visitor, require
from gdscore.monitor.database import StorageError
from gdscore.monitor.history import Monitor
from gdscore.monitor.row_labels import read_row_labels
from gdscore.monitor.schema import LONGEST_NAME
from gdscore.monitor.store import check_known
from gdscore.outputs import Outputs

__all__ = ["describe", "examples", "router"]

router = APIRouter(prefix="/api/v1")
Reader = Annotated[Visitor, Depends(require("read"))]
Writer = Annotated[Visitor, Depends(require("write"))]
MOST_ITEMS = 1000
MOST_COLUMNS = 10
LARGEST_FOOTER = 4 << 20
MOST_ROW_GROUPS, SMALLEST_GROUP = 2_000, 5
"""Of a Parquet file; bytes that a row group takes of the footer, at least."""
_SUFFIXES = {
    "application/vnd.apache.parquet": ".parquet",
    "application/vnd.apache.arrow.file": ".arrow",
    "application/x-npz": ".npz",
    "text/csv": ".csv",
    "application/json": ".json",
}
LABEL_KINDS = ("text/csv", "application/json")
LIMITS = Limits(memory=256 << 20, row=1 << 20)


async def _monitor(request: Request) -> Monitor:  # async, as it needs no thread
    monitor: Monitor = request.app.state.monitor
    return monitor


History = Annotated[Monitor, Depends(_monitor)]
Limit = Annotated[int, Query(ge=1, le=MOST_ITEMS)]
After = Annotated[int, Query(ge=0, le=100_000_000)]


def _storable(text: str) -> str:
    """Refuse what JSON can hold and neither UTF-8 nor PostgreSQL can: half a surrogate pair, and the zero character."""
    if "\0" in text or text != text.encode("utf-8", "ignore").decode():
        raise ValueError("Expected text without zero characters and incomplete surrogate pairs")
    return text


Text = Annotated[str, AfterValidator(_storable)]


@cache
def examples() -> dict[str, dict[str, Any]]:
    """Example of each route by its name: ``path``, ``request`` and ``response``, in an order in which they work."""
    found: dict[str, dict[str, Any]] = json.loads(files("gdscore.monitor").joinpath("examples.json").read_bytes())
    return found


def describe(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """Description of the API in OpenAPI, with the examples; FastAPI would leave out what is null in them."""
    described = get_openapi(title="gdscore monitor", version=gdscore.__version__, routes=routes)
    for methods in described["paths"].values():
        for found in methods.values():
            name = found["operationId"] = found["operationId"].partition("_api_v1")[0]
            example = examples()[name]
            if "request" in example:
                found["requestBody"]["content"].setdefault("application/json", {})["example"] = example["request"]
            answer = next(answer for status, answer in found["responses"].items() if status.startswith("2"))
            if example["response"] is not None:
                answer["content"]["application/json"]["example"] = example["response"]
            found["responses"]["422"] = {"description": "What was expected, what came, and an example to copy"}
    return described


def _files(kinds: Iterable[str]) -> dict[str, Any]:
    """Body of a route that takes files of these kinds."""
    binary = {"schema": {"type": "string", "format": "binary"}}
    content = {kind: {} if kind == "application/json" else binary for kind in kinds}
    return {"requestBody": {"content": content, "required": True}}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=False)


class NewModel(_Strict):
    """A model to register."""

    name: str
    version: str | None = None
    every: str | None = None
    rules: dict[str, Any] = Field(default_factory=dict)
    reference_rows: int | None = Field(None, ge=1, le=2**53)


class NewWarning(_Strict):
    """A warning of an estimate."""

    code: Text = Field(max_length=40)
    severity: str = Field(pattern="^(info|warning|critical)$")
    message: Text = Field(max_length=2000)


class NewEstimate(_Strict):
    """An estimate that was made elsewhere; of what `Estimate.to_dict` gives, some is not stored."""

    time: str
    end: str | None = None
    segment: str = ""
    version: str | None = None
    replace: bool = False
    accuracy: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat
    level: float = Field(0.9, gt=0, lt=1)
    n_rows: int = Field(ge=1, le=2**53)
    reference_accuracy: float = Field(ge=0, le=1)
    warnings: list[NewWarning] = Field(default_factory=list, max_length=50)
    scores: dict[Text, FiniteFloat] = Field(default_factory=dict, max_length=100)

    @model_validator(mode="before")
    @classmethod
    def _only_what_is_stored(cls, given: Any) -> Any:
        dropped = {f.name for f in fields(Estimate)} - set(cls.model_fields)
        return {k: v for k, v in given.items() if k not in dropped} if isinstance(given, dict) else given


class NewLabels(_Strict):
    """The truth of a window."""

    time: str
    end: str | None = None
    segment: str = ""
    version: str | None = None
    rows: int = Field(ge=1, le=2**53)
    correct: int | None = None
    accuracy: float | None = None


def _bounds(time: str, end: str | None) -> Any:
    return time if end is None else (time, end)


@router.get("/models")
def list_models(history: History, visitor: Reader, limit: Limit = 100, after: After = 0) -> list[dict[str, Any]]:
    """Newest version of every model with its last window, those with open alarms first."""
    with history.reading() as session:
        return queries.overview(session, limit=limit, after=after)


@router.post("/models", status_code=201)
def register_model(new: NewModel, history: History, visitor: Writer) -> dict[str, Any]:
    """Register a model, or change its window length and rules; rules that are not named stay."""
    rules = history.register(
        new.name,
        version=new.version,
        every=new.every,
        rules=new.rules,
        reference_rows=new.reference_rows,
        by=visitor.name,
    )
    return {"name": new.name, "version": history.version(new.name), "rules": rules.to_dict()}


@router.get("/models/{name}/rules")
def get_rules(name: str, history: History, visitor: Reader) -> dict[str, Any]:
    """Rules of a model, their changes (when, by whom, the new values), and what its test has learned."""
    rules = history.rules(name)
    with history.reading() as session:
        changes, learned = queries.rules_changes(session, name), queries.learned(session, name)
    return {"rules": rules.to_dict(), "changes": changes, "learned": learned}


@router.patch("/models/{name}/rules")
def change_rules(name: str, changes: dict[str, Any], history: History, visitor: Writer) -> dict[str, Any]:
    """Change some rules of the newest version of a model; null removes one."""
    return {"rules": history.set_rules(name, changes, by=visitor.name).to_dict()}


class LearnAgain(_Strict):
    """Start of the first window to learn from; the next one that comes where it is not given."""

    since: str | None = None


@router.post("/models/{name}/learn")
def learn_again(name: str, new: LearnAgain, history: History, visitor: Writer) -> dict[str, Any]:
    """Let the tests learn again what the windows of a model are like while nothing is wrong."""
    return {"learn_from": history.learn_again(name, since=new.since, by=visitor.name).isoformat()}


@router.put("/models/{name}/estimator", status_code=204, openapi_extra=_files(["application/octet-stream"]))
async def put_estimator(
    name: str, request: Request, history: History, visitor: Writer, version: str | None = None
) -> None:
    """Give a registered model its estimator: the bytes of a file that `AccuracyEstimator.save` wrote.

    ``version`` is the newest one by default.
    """
    content = await request.body()
    await run_in_threadpool(history.set_estimator, name, content, version=version)


@router.post("/models/{name}/windows", status_code=201, openapi_extra=_files(_SUFFIXES))
async def add_windows(
    name: str,
    request: Request,
    history: History,
    visitor: Writer,
    time: str | None = None,
    end: str | None = None,
    version: str | None = None,
    replace: bool = False,
    time_column: str | None = None,
    by: Annotated[list[str] | None, Query(max_length=MOST_COLUMNS)] = None,
    probabilities: str | None = None,
    logits: str | None = None,
    features: str | None = None,
    label: str | None = None,
    id: str | None = None,
) -> list[dict[str, Any]]:
    """Post the outputs of one or more windows as Parquet, Arrow, CSV, npz or JSON.

    ``time`` (and ``end``) is the window; or ``time_column`` holds the time of each row. ``by`` names columns of
    segments. ``probabilities``, ``logits``, ``features``, ``label`` and ``id`` name columns as `gdscore.io.Columns`
    does. JSON has ``probabilities`` or ``logits``, and may have ``features``, ``labels``, ``ids``, ``time`` and ``by``.
    """
    settings: Settings = request.app.state.settings
    names = {"probabilities": probabilities, "logits": logits, "features": features, "label": label, "id": id}
    given: dict[str, Any] = {key: value for key, value in names.items() if value is not None}
    columns = Columns(**given, time=time_column, by=by or None)

    def add(path: Any) -> list[dict[str, Any]]:
        when = None if time is None else _bounds(time, end)
        return history.add_quietly(
            name, _read_body(path, columns, settings.max_rows), when, version=version, replace=replace
        )

    async with _body_file(request) as path:
        return await run_in_threadpool(add, path)


@router.post("/models/{name}/estimates", status_code=201)
def add_estimate(name: str, new: NewEstimate, history: History, visitor: Writer) -> dict[str, Any]:
    """Post an estimate that was made elsewhere."""
    estimate = Estimate(
        new.accuracy,
        new.low,
        new.high,
        level=new.level,
        n_rows=new.n_rows,
        reference_accuracy=new.reference_accuracy,
        warnings=[EstimateWarning(w.code, w.severity, w.message) for w in new.warnings],  # type: ignore[arg-type]
        scores=new.scores,
    )
    return history.add_estimate(
        name, estimate, _bounds(new.time, new.end), new.segment, version=new.version, replace=new.replace
    )


@router.post("/models/{name}/labels", status_code=204)
def add_labels(name: str, new: NewLabels, history: History, visitor: Writer) -> None:
    """Post the truth of a window, as counts; it may raise or end alarms."""
    history.add_labels(
        name,
        _bounds(new.time, new.end),
        correct=new.correct,
        rows=new.rows,
        accuracy=new.accuracy,
        segment=new.segment,
        version=new.version,
    )


@router.post("/models/{name}/row-labels", openapi_extra=_files(LABEL_KINDS))
async def add_row_labels(
    name: str,
    request: Request,
    history: History,
    visitor: Writer,
    time: str | None = None,
    end: str | None = None,
    version: str | None = None,
) -> dict[str, Any]:
    """Post labels of rows by id, as CSV with the columns id and label or as JSON; some now and others later.

    The rows are those that the rule ``keep_rows`` has kept. The newest label of a row counts. ``time`` (and ``end``)
    name the window, which is needed where an id is in several.
    """

    def add(path: Path) -> dict[str, Any]:
        ids, labels = read_row_labels(path)
        when = None if time is None else _bounds(time, end)
        return history.add_row_labels(name, ids, labels, time=when, version=version)

    async with _body_file(request, LABEL_KINDS) as path:
        return await run_in_threadpool(add, path)


@router.get("/models/{name}/windows")
def list_windows(
    name: str,
    history: History,
    visitor: Reader,
    segment: str | None = None,
    since: str | None = None,
    until: str | None = None,
    limit: Limit = 100,
    after: After = 0,
) -> dict[str, Any]:
    """Windows by time, a page at a time: ``next`` is the ``after`` of the next page."""
    with history.reading() as session:
        check_known(session, name)
        found = queries.list_windows(session, name, segment, since=since, until=until, limit=limit + 1, after=after)
    return {"windows": found[:limit], "next": after + limit if len(found) > limit else None}


@router.get("/models/{name}/series")
def get_series(
    name: str,
    history: History,
    visitor: Reader,
    segment: str = "",
    since: str | None = None,
    until: str | None = None,
    points: Annotated[int, Query(ge=2, le=5000)] = 500,
) -> dict[str, Any]:
    """At most ``points`` points of a series, its labels, versions, the lines of its rules, and its alarms.

    Where a point stands for several windows it has their mean estimate, the lowest and the highest, and the widest
    interval; ``gap`` tells that windows are missing before it. ``labels`` are those of every version.
    Times are in the zone of the windows.
    """
    with history.reading() as session:
        check_known(session, name)
        return queries.series_points(session, name, segment, since=since, until=until, points=points)


@router.get("/models/{name}/past-estimates")
def get_past_estimates(name: str, history: History, visitor: Reader, segment: str = "") -> dict[str, Any]:
    """How good estimates were where labels came."""
    with history.reading() as session:
        check_known(session, name)
        past = queries.past_errors_of(session, name, segment)
    return {"windows": 0} if past is None else asdict(past)


@router.get("/alarms")
def list_alarms(
    history: History,
    visitor: Reader,
    model: str | None = None,
    segment: str | None = None,
    open_only: bool = False,
    limit: Limit = 100,
    after: After = 0,
) -> list[dict[str, Any]]:
    """Alarms, open ones first."""
    with history.reading() as session:
        check_known(session, model)
        return queries.list_alarms(session, model, segment, open_only=open_only, limit=limit, after=after)


@router.post("/alarms/{alarm}/acknowledge")
def acknowledge(alarm: int, history: History, visitor: Writer) -> dict[str, Any]:
    """Note that the owner of the token has seen an alarm."""
    if not 0 < alarm < 2**62:
        raise HTTPException(404, f"Expected the number of an alarm, but got {alarm}")
    return history.acknowledge(alarm, visitor.name)


# -- bodies ---------------------------------------------------------------------------------------------------

_MATRICES = ("logits", "probabilities", "features")


@asynccontextmanager
async def _body_file(request: Request, kinds: Iterable[str] = _SUFFIXES) -> AsyncIterator[Path]:
    """Body of a request in a temporary file; its kind follows from the content type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in kinds:
        raise HTTPException(415, f"Expected a content type of {', '.join(kinds)}, but got {kind[:60]!r}")
    try:
        handle, name = tempfile.mkstemp(_SUFFIXES[kind], "gdscore-")
    except OSError as error:
        raise _cannot_keep(error) from error
    path = Path(name)
    try:
        try:
            with open(handle, "wb") as file:  # noqa: PTH123
                async for chunk in request.stream():
                    file.write(chunk)
        except OSError as error:
            raise _cannot_keep(error) from error
        yield path
    finally:
        path.unlink(missing_ok=True)


def _cannot_keep(error: OSError) -> StorageError:
    reason = error.strerror or type(error).__name__
    return StorageError(f"Expected to keep the body in a file, but the system refused: {reason}")


def _read_body(path: Path, columns: Columns, max_rows: int) -> Iterator[Batch]:
    """Batches of a body; messages name the body, not the temporary file."""
    rows = 0
    try:
        if path.suffix == ".parquet":
            _check_footer(path)
        if path.suffix == ".json" and columns != Columns():
            raise GdscoreError("Expected no names of columns with JSON, which has logits, time, by … of its own")
        batches = (
            _json_batches(path)
            if path.suffix == ".json"
            else read_batches(path, columns=columns, limits=LIMITS, progress=False)
        )
        for batch in batches:
            rows += len(batch.outputs)
            if rows > max_rows:
                raise GdscoreError(f"Expected at most {max_rows:,} rows in a body, but there are more")
            yield batch
    except GdscoreError as error:
        named = f"body{path.suffix}"
        raise GdscoreError(str(error).replace(str(path), named).replace(path.name, named)) from None


def _check_footer(path: Path) -> None:
    """Refuse a Parquet file of too many row groups, which may all be empty, and take time each.

    Its footer names all row groups and columns; how long it is stands in the last bytes of the file.
    """
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 8))
        length = int.from_bytes(file.read(4), "little")
    if length < MOST_ROW_GROUPS * SMALLEST_GROUP:
        return
    if length > LARGEST_FOOTER:
        raise GdscoreError(f"Expected a Parquet footer of at most {LARGEST_FOOTER:,} bytes, but it has {length:,}")
    pyarrow("Parquet")
    with decoding(path, "a Parquet file"):
        import pyarrow.parquet as pq

        groups = pq.read_metadata(path).num_row_groups
    if groups > MOST_ROW_GROUPS:
        raise GdscoreError(f"Expected at most {MOST_ROW_GROUPS:,} row groups, but there are {groups:,}")


def _times(found: Any) -> NDArray[np.datetime64]:
    """Times of rows; numbers are refused, as they may be seconds or milliseconds."""
    if not isinstance(found, list) or not all(isinstance(value, str) for value in found):
        raise GdscoreError(
            "Expected `time` to be a list with a time for each row, such as '2026-01-31T05:00:00Z', but got "
            f"{shown(found)}"
        )
    return as_times(np.array(found, dtype=object))


def _matrix(name: str, found: Any) -> NDArray[np.float64]:
    try:
        return np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise GdscoreError(
            f"Expected `{name}` to be a list with a list of numbers for each row, but got {shown(found)}: "
            f"{str(error)[:100]}"
        ) from None


def _ids(found: Any) -> NDArray[Any]:
    if not isinstance(found, list) or not all(type(value) in (str, int) for value in found):
        raise GdscoreError(
            f"Expected `ids` to be a list with text or a whole number for each row, but got {shown(found)}"
        )
    return np.array([str(value) for value in found])


def _labels(found: Any) -> NDArray[np.int64]:
    if not isinstance(found, list) or not all(type(value) is int for value in found):
        raise GdscoreError(
            "Expected `labels` to be a list with the number of the class of each row, such as [0, 2, 1], but got "
            f"{shown(found)}"
        )
    return np.asarray(found, dtype=np.int64)


def _segments(name: str, found: Any) -> list[str]:
    """Segments of rows as a list: an array of text would take for each row as much memory as the longest needs."""
    if not isinstance(found, list) or not all(isinstance(value, (str, int, float, NoneType)) for value in found):
        raise GdscoreError(
            f"Expected `by` to have a list with the segment of each row for {name[:40]!r}, but got {shown(found)}"
        )
    longest = max((value for value in found if isinstance(value, str)), key=len, default="")
    if len(longest) > LONGEST_NAME:
        raise GdscoreError(
            f"Expected segments of at most {LONGEST_NAME} characters in `by`, but one of {name[:40]!r} has "
            f"{len(longest):,}"
        )
    return [str(value) for value in found]


def _json_batches(path: Path) -> Iterator[Batch]:
    """One batch of ``{"logits": [[…]], "labels": […], "ids": […], "time": […], "by": {"country": […]}}``."""
    if path.stat().st_size > LIMITS.json:
        raise GdscoreError(f"Expected JSON of at most {LIMITS.json:,} bytes: post Parquet instead")
    try:
        found: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise GdscoreError(f"Expected the body to be JSON, but it is not: {str(error)[:100]}") from None
    known = {*_MATRICES, "labels", "ids", "time", "by"}
    if not isinstance(found, dict) or set(found) - known:
        came = shown(sorted(set(found) - known)) if isinstance(found, dict) else shown(found)
        raise GdscoreError(f"Expected a JSON object with {', '.join(sorted(known))}, but got {came}")
    arrays = {name: _matrix(name, found[name]) for name in _MATRICES if name in found}
    labels = _labels(found["labels"]) if "labels" in found else None
    ids = _ids(found["ids"]) if "ids" in found else None
    time = _times(found["time"]) if "time" in found else None
    columns = found.get("by", {})
    if not isinstance(columns, dict):
        raise GdscoreError(f"Expected `by` to have a list of segments for each name, but got {shown(columns)}")
    by = {str(name): _segments(str(name), values) for name, values in columns.items()}
    if len(by) > MOST_COLUMNS:
        raise GdscoreError(f"Expected at most {MOST_COLUMNS} columns in `by`, but got {len(by)}")
    outputs: dict[str, Any] = {**arrays, "labels": labels, "ids": ids}
    yield Batch(Outputs(**outputs), time, by)
