"""JSON API, version 1, and the outputs in the bodies of requests: files that `gdscore.io` reads, or JSON.

Bodies of JSON are models of Pydantic, which check them and describe them, each with an example that a test sends.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    RootModel,
    ValidationError,
    model_validator,
)
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute

import gdscore
from gdscore._files import Limits
from gdscore._stream import Batch
from gdscore._windows import as_times
from gdscore.errors import GdscoreError
from gdscore.estimator import Estimate, EstimateWarning
from gdscore.io import Columns, read_batches
from gdscore.io.arrow import decoding
from gdscore.monitor import queries
from gdscore.monitor.auth import Visitor, require
from gdscore.monitor.database import StorageError
from gdscore.monitor.history import Monitor
from gdscore.monitor.labels import MOST_LABELS, read_row_labels
from gdscore.monitor.schema import LONGEST_NAME
from gdscore.outputs import Outputs


class Problem(BaseModel):
    """Why a request was refused: what was expected, what came, and where the body was wrong an example of one."""

    error: str
    example: Any = None


router = APIRouter(
    prefix="/api/v1",
    generate_unique_id_function=lambda route: route.name,
    responses={422: {"description": "The request cannot be used", "model": Problem}},
)
Reader = Annotated[Visitor, Depends(require("read"))]
Writer = Annotated[Visitor, Depends(require("write"))]
MOST_ITEMS, MOST_COLUMNS, LARGEST_FOOTER = 1000, 10, 4 << 20
SMALL_BODY = 1 << 20
"""Bytes of a post of one window that waits for the others of its kind: threads that take turns in Python cost more."""
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
_JsonBody = TypeVar("_JsonBody", bound=BaseModel)
LIMITS = Limits(memory=256 << 20, row=1 << 20)
MOST_JSON_BYTES = 64 << 20


async def _monitor(request: Request) -> Monitor:  # async, as it needs no thread
    monitor: Monitor = request.app.state.monitor
    return monitor


History = Annotated[Monitor, Depends(_monitor)]
Limit = Annotated[int, Query(ge=1, le=MOST_ITEMS)]
Number = Annotated[int, PathParameter(ge=1, lt=2**62)]
After = Annotated[int, Query(ge=0, le=100_000_000)]


def _storable(text: str) -> str:
    """Refuse what JSON can hold and neither UTF-8 nor PostgreSQL can: half a surrogate pair, and the zero character."""
    if "\0" in text or text != text.encode("utf-8", "ignore").decode():
        raise ValueError("Expected text without zero characters and incomplete surrogate pairs")
    return text


Text = Annotated[str, AfterValidator(_storable)]
Whole = Annotated[int, Field(strict=True)]
Segment = Annotated[str, Field(max_length=LONGEST_NAME)] | int | float | bool | None


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


def _example(**example: Any) -> ConfigDict:
    return ConfigDict(extra="forbid", json_schema_extra={"examples": [example]})


class NewModel(_Body):
    """A model to register, or to change."""

    model_config = _example(name="churn", every="1d", rules={"min_accuracy": 0.7})
    name: str
    version: str | None = None
    every: str | None = Field(None, description="Length of a window: 1d, 6h, week, 'month Europe/Paris'.")
    rules: dict[str, Any] = Field(default_factory=dict)
    reference_rows: int | None = Field(None, ge=1, le=2**53)


class NewWarning(_Body):
    """A warning of an estimate."""

    code: Text = Field(max_length=40)
    severity: str = Field(pattern="^(info|warning|critical)$")
    message: Text = Field(max_length=2000)


class NewEstimate(_Body):
    """An estimate that was made elsewhere; of what `Estimate.to_dict` gives, some is not stored."""

    model_config = _example(
        time="2026-01-31", accuracy=0.64, low=0.6, high=0.68, level=0.9, n_rows=400, reference_accuracy=0.9
    )
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
    def _only_what_is_stored(cls, body: Any) -> Any:
        dropped = {f.name for f in fields(Estimate)} - set(cls.model_fields)
        return {k: v for k, v in body.items() if k not in dropped} if isinstance(body, dict) else body


_STORED = {f.name for f in fields(Estimate)} & set(NewEstimate.model_fields)


class NewLabels(_Body):
    """The truth of a window: how many of so many rows were predicted right, or their share."""

    model_config = _example(time="2026-01-31", rows=100, correct=62)
    time: str
    end: str | None = None
    segment: str = ""
    version: str | None = None
    rows: int = Field(ge=1, le=2**53)
    correct: int | None = None
    accuracy: float | None = None


class Changes(RootModel[dict[str, Any]]):
    """Rules with their new values."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"missing_after": 2, "keep_rows": "90d"}]})


class LearnAgain(_Body):
    """Start of the first window to learn from; the next one that comes where it is not given."""

    model_config = _example(since="2026-02-01")
    since: str | None = None


class Snooze(_Body):
    """Until when an alarm is silent for Prometheus; null ends that."""

    model_config = _example(until="2026-02-01T09:00:00Z")
    until: str | None


class NewOutputs(_Body):
    """Outputs of rows as JSON: ``probabilities`` or ``logits``, and what else is known of the rows."""

    model_config = _example(
        probabilities=[[0.9, 0.1], [0.3, 0.7], [0.8, 0.2]],
        ids=["a1", "a2", "a3"],
        by={"country": ["fr", "de", "fr"]},
    )
    probabilities: list[list[float]] | None = None
    logits: list[list[float]] | None = None
    features: list[list[float]] | None = None
    predictions: list[Whole] | None = Field(
        None, description="Classes that were decided, where they are not the most probable ones."
    )
    threshold: float | None = Field(None, description="Probability from which on the second of two classes is decided.")
    labels: list[Whole] | None = None
    ids: list[str | Whole] | None = None
    time: list[str] | None = Field(None, description="Time of each row, such as 2026-01-31T05:00:00Z.")
    by: dict[str, list[Segment]] = Field({}, max_length=MOST_COLUMNS, description="Segment of each row.")


class WindowQuery(_Body):
    """Which window outputs are of, and the names of their columns."""

    time: str | None = None
    end: str | None = None
    version: str | None = None
    replace: bool = False
    time_column: str | None = None
    by: list[str] | None = Field(None, max_length=MOST_COLUMNS)
    probabilities: str | None = None
    logits: str | None = None
    features: str | None = None
    prediction: str | None = None
    threshold: float | None = None
    label: str | None = None
    id: str | None = None

    def columns(self) -> dict[str, Any]:
        """Arguments of `Columns`."""
        window = {"time", "end", "version", "replace", "time_column"}
        return self.model_dump(exclude=window) | {"time": self.time_column}


class NewRowLabels(_Body):
    """Labels of rows by id."""

    model_config = _example(id=["a1", "a2"], label=[0, 1])
    id: list[str | Whole] = Field(min_length=1, max_length=MOST_LABELS)
    label: list[str | Whole] = Field(min_length=1, max_length=MOST_LABELS)


def describe(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """Description of the API in OpenAPI."""
    described = get_openapi(title="gdscore monitor", version=gdscore.__version__, routes=routes)
    place = "#/components/schemas/{model}"
    files = {body.__name__: body.model_json_schema(ref_template=place) for body in _FILE_BODIES.values()}
    described["components"]["schemas"] |= files
    described["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return described | {"security": [{"token": []}]}


def _body_of(route: Any) -> type[BaseModel] | None:
    """Model of the JSON body of a route."""
    name = getattr(route, "name", "")
    if name in _FILE_BODIES:
        return _FILE_BODIES[name]
    parameter = getattr(route, "body_field", None)
    model = getattr(getattr(parameter, "field_info", None), "annotation", None)
    return model if isinstance(model, type) and issubclass(model, BaseModel) else None


_FILE_BODIES: dict[str, type[BaseModel]] = {"add_windows": NewOutputs, "add_row_labels": NewRowLabels}


def example_of(route: Any) -> Any:
    """Example of the body of a route, or None."""
    model = _body_of(route)
    extra = None if model is None else model.model_config.get("json_schema_extra")
    return extra["examples"][0] if isinstance(extra, dict) else None  # type: ignore[index]


def fields_of(route: Any) -> list[str]:
    """Fields of the body of a route."""
    model = _body_of(route)
    return [] if model is None else list(model.model_fields)


def _files(kinds: Iterable[str], body: type[BaseModel] | None = None) -> dict[str, Any]:
    """Body of a route that takes files of these kinds, or JSON."""
    content: dict[str, Any] = {kind: {"schema": {"type": "string", "format": "binary"}} for kind in kinds}
    if body is not None:
        content["application/json"] = {"schema": {"$ref": f"#/components/schemas/{body.__name__}"}}
    return {"requestBody": {"content": content, "required": True}}


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
    rules = history.register(**new.model_dump(), by=visitor.name)
    return {"name": new.name, "version": history.version(new.name), "rules": rules.to_dict()}


@router.get("/models/{name}/rules")
def get_rules(name: str, history: History, visitor: Reader) -> dict[str, Any]:
    """Rules of a model, their changes (when, by whom, the new values), and what its test has learned."""
    rules = history.rules(name)
    with history.reading() as session:
        changes, learned = queries.rules_changes(session, name), queries.learned(session, name)
    return {"rules": rules.to_dict(), "changes": changes, "learned": learned}


@router.patch("/models/{name}/rules")
def change_rules(name: str, changes: Changes, history: History, visitor: Writer) -> dict[str, Any]:
    """Change some rules of the newest version of a model; null removes one."""
    return {"rules": history.set_rules(name, changes.root, by=visitor.name).to_dict()}


@router.post("/models/{name}/learn")
def learn_again(name: str, new: LearnAgain, history: History, visitor: Writer) -> dict[str, Any]:
    """Let the tests learn again what the windows of a model are like while nothing is wrong."""
    return {"learn_from": history.learn_again(name, since=new.since, by=visitor.name).isoformat()}


@router.put("/models/{name}/estimator", status_code=204, openapi_extra=_files(["application/octet-stream"]))
async def put_estimator(
    name: str, request: Request, history: History, visitor: Writer, version: str | None = None
) -> None:
    """Give a registered model its estimator: the bytes of a file that `AccuracyEstimator.save` wrote.

    ``version`` is the current one by default.
    """
    content = await request.body()
    await run_in_threadpool(history.set_estimator, name, content, version=version)


@router.post("/models/{name}/windows", status_code=201, openapi_extra=_files(_SUFFIXES, NewOutputs))
async def add_windows(
    name: str, request: Request, history: History, visitor: Writer, query: Annotated[WindowQuery, Query()]
) -> list[dict[str, Any]]:
    """Post the outputs of one or more windows as Parquet, Arrow, CSV, npz or JSON.

    ``time`` (and ``end``) is the window; or ``time_column`` holds the time of each row. ``by`` names columns of
    segments. ``probabilities``, ``logits``, ``features``, ``prediction``, ``label`` and ``id`` name columns as
    `gdscore.io.Columns` does, and ``threshold`` is as there. JSON has ``probabilities`` or ``logits``, and may have
    ``features``, ``predictions`` or ``threshold``, ``labels``, ``ids``, ``time`` and ``by``.
    """
    columns = Columns(**{column: value for column, value in query.columns().items() if value})
    when = None if query.time is None else _bounds(query.time, query.end)

    def add(path: Any) -> list[dict[str, Any]]:
        batches = _read_body(path, columns, request.app.state.settings.max_rows)
        return history.add_quietly(name, batches, when, version=query.version, replace=query.replace)

    async with _body_file(request) as path:
        one_small_window = query.time is not None and not query.by and path.stat().st_size <= SMALL_BODY
        async with request.app.state.small_posts if one_small_window else nullcontext():
            return await run_in_threadpool(add, path)


@router.post("/models/{name}/estimates", status_code=201)
def add_estimate(name: str, new: NewEstimate, history: History, visitor: Writer) -> dict[str, Any]:
    """Post an estimate that was made elsewhere."""
    warnings = [EstimateWarning(w.code, w.severity, w.message) for w in new.warnings]  # type: ignore[arg-type]
    estimate = Estimate(**new.model_dump(include=_STORED) | {"warnings": warnings})
    return history.add_estimate(
        name, estimate, _bounds(new.time, new.end), new.segment, version=new.version, replace=new.replace
    )


@router.post("/models/{name}/labels", status_code=204)
def add_labels(name: str, new: NewLabels, history: History, visitor: Writer) -> None:
    """Post the truth of a window, as counts; it may raise or end alarms."""
    history.add_labels(name, _bounds(new.time, new.end), **new.model_dump(exclude={"time", "end"}))


@router.post("/models/{name}/row-labels", openapi_extra=_files(LABEL_KINDS, NewRowLabels))
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
        if path.suffix == ".json":
            body = read_json(path, NewRowLabels)
            ids, labels = [str(value) for value in body.id], list(body.label)
        else:
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
        listed = queries.list_windows(session, name, segment, since=since, until=until, limit=limit + 1, after=after)
    return {"windows": listed[:limit], "next": after + limit if len(listed) > limit else None}


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
        return queries.series_points(session, name, segment, since=since, until=until, points=points)


@router.get("/models/{name}/past-estimates")
def get_past_estimates(name: str, history: History, visitor: Reader, segment: str = "") -> dict[str, Any]:
    """How good estimates were where labels came."""
    with history.reading() as session:
        return queries.past_errors(session, name, segment) or {"windows": 0}


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
        return queries.list_alarms(session, model, segment, open_only=open_only, limit=limit, after=after)


@router.post("/alarms/{alarm}/acknowledge")
def acknowledge(alarm: Number, history: History, visitor: Writer) -> dict[str, Any]:
    """Note that the owner of the token has seen an alarm; it is silent for Prometheus from then on."""
    return history.acknowledge(alarm, visitor.name)


@router.post("/alarms/{alarm}/snooze")
def snooze(alarm: Number, new: Snooze, history: History, visitor: Writer) -> dict[str, Any]:
    """Silence an alarm for Prometheus until a time."""
    return history.snooze(alarm, new.until)


@router.get("/alarms/{alarm}")
def get_alarm(alarm: Number, history: History, visitor: Reader) -> dict[str, Any]:
    """One alarm: what happened, the worst segments, what moved, the labels that are known."""
    with history.reading() as session:
        return queries.explain_alarm(session, alarm)


@router.delete("/windows/{window}")
def delete_window(window: Number, history: History, visitor: Writer) -> dict[str, Any]:
    """Delete a window with its rows and labels; the alarms of its series are computed without it."""
    return history.delete_window(window)


@router.post("/models/{name}/retire", status_code=204)
def retire(name: str, history: History, visitor: Writer) -> None:
    """Stop watching a model. Its history stays; registering it again starts watching again."""
    history.retire(name)


@router.delete("/models/{name}")
def delete_model(name: str, history: History, visitor: Writer) -> dict[str, Any]:
    """Delete a model with all of its versions, windows and alarms."""
    return {"versions": history.delete_model(name)}


# -- bodies ---------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _body_file(request: Request, kinds: Iterable[str] = _SUFFIXES) -> AsyncIterator[Path]:
    """Body of a request in a temporary file; its kind follows from the content type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in kinds:
        raise HTTPException(415, f"Expected a content type of {', '.join(kinds)}, but got {kind[:60]!r}")
    path = None
    try:
        try:
            handle, name = tempfile.mkstemp(_SUFFIXES[kind], "gdscore-")
            path = Path(name)
            with open(handle, "wb") as file:  # noqa: PTH123
                async for chunk in request.stream():
                    file.write(chunk)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise StorageError(f"Expected to keep the body in a file, but the system refused: {reason}") from error
        yield path
    finally:
        if path is not None:
            path.unlink(missing_ok=True)


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
    with decoding(path, "a Parquet file"):
        import pyarrow.parquet as pq

        groups = pq.read_metadata(path).num_row_groups
    if groups > MOST_ROW_GROUPS:
        raise GdscoreError(f"Expected at most {MOST_ROW_GROUPS:,} row groups, but there are {groups:,}")


def read_json(path: Path, model: type[_JsonBody]) -> _JsonBody:
    """Body of JSON; messages tell what is wrong, and where."""
    if path.stat().st_size > MOST_JSON_BYTES:
        raise GdscoreError(f"Expected JSON of at most {MOST_JSON_BYTES:,} bytes: send Parquet or CSV instead")
    try:
        return model.model_validate_json(path.read_bytes())
    except ValidationError as error:
        # Of alternatives such as text or a number, the first that does not fit names the place.
        raise RequestValidationError([dict(one, loc=("body", *one["loc"])) for one in error.errors()]) from None


def _json_batches(path: Path) -> Iterator[Batch]:
    """The rows of a body as one batch."""
    body = read_json(path, NewOutputs)
    arrays = {name: getattr(body, name) for name in ("logits", "probabilities", "features")}
    outputs: dict[str, Any] = {name: _matrix(name, rows) for name, rows in arrays.items() if rows is not None}
    classes = {"predictions": body.predictions, "labels": body.labels}
    outputs |= {name: np.asarray(values, dtype=np.int64) for name, values in classes.items() if values is not None}
    outputs["threshold"] = body.threshold
    if body.ids is not None:
        outputs["ids"] = np.array([str(value) for value in body.ids])
    time = None if body.time is None else as_times(np.array(body.time, dtype=object))
    # Lists: an array of text would take for each row as much memory as the longest needs.
    yield Batch(Outputs(**outputs), time, {name: [str(v) for v in values] for name, values in body.by.items()})


def _matrix(name: str, rows: list[list[float]]) -> NDArray[np.float64]:
    if len({len(row) for row in rows}) > 1:
        raise GdscoreError(f"Expected `{name}` to have as many numbers for each row, but their numbers differ")
    return np.asarray(rows, dtype=np.float64)
