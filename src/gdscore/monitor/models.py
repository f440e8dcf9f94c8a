"""Models of the history: their versions, estimators and rules."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import TypeAlias

from sqlalchemy import select
from sqlalchemy.orm import Session

from gdscore.errors import GdscoreError, nearest
from gdscore.estimator import AccuracyEstimator
from gdscore.monitor.alarms import end_alarms
from gdscore.monitor.rules import Rules
from gdscore.monitor.schema import EstimatorFile, Model, check_name
from gdscore.monitor.windows import now_micros

__all__ = [
    "ConflictError",
    "EstimatorLike",
    "NotFoundError",
    "check_model_name",
    "find_model",
    "read_estimator",
    "store_model",
    "to_estimator",
]

LARGEST_ESTIMATOR = 256 << 20
UNKNOWN_REFERENCE = 1000
"""Rows of a reference that is not known."""

EstimatorLike: TypeAlias = AccuracyEstimator | str | Path | bytes


class NotFoundError(GdscoreError):
    """There is no such model, window or alarm."""


class ConflictError(GdscoreError):
    """What is added is there already, with other contents."""


def check_model_name(name: str, version: str) -> None:
    """Refuse a name that cannot be part of an address."""
    check_name("model", name)
    check_name("version", version)
    if "/" in name or "\\" in name or name in (".", ".."):
        raise GdscoreError(f"Expected a model name that can be part of an address, without slashes, but got {name!r}")


def find_model(session: Session, name: str, version: str | None = None) -> Model:
    """A model, of the newest version where none is given."""
    query = select(Model).where(Model.name == str(name)).order_by(Model.id.desc())
    if version is not None:
        query = query.where(Model.version == version)
    found = session.scalars(query).first()
    if found is None:
        known = session.scalars(select(Model.name).distinct().limit(1000)).all()
        hint = nearest(str(name)[:60], known) if known else "none is registered, call register first"
        raise NotFoundError(f"Unknown model {str(name)[:60]!r}: {hint}")
    return found


def store_model(
    session: Session,
    name: str,
    version: str,
    content: bytes | None,
    *,
    every: int,
    rules: Rules,
    reference_rows: int | None,
) -> None:
    """Register a model with the file of its estimator, or change one; a new version ends the alarms of older ones."""
    digest = None if content is None else hashlib.sha256(content).hexdigest()
    if content is not None and digest is not None and session.get(EstimatorFile, digest) is None:
        session.add(EstimatorFile(hash=digest, content=content))
        session.flush()
    known = session.scalars(select(Model).where(Model.name == name, Model.version == version)).first()
    if known is None:
        now = now_micros()
        end_alarms(session, session.scalars(select(Model.id).where(Model.name == name)).all(), now)
        known = Model(name=name, version=version, created_at=now, reference_rows=UNKNOWN_REFERENCE)
        session.add(known)
    elif digest is not None and known.estimator_hash not in (None, digest):
        raise ConflictError(
            f"Expected a new version of {name!r} for another estimator, but {version!r} has one: give version="
        )
    known.every, known.rules = every, rules.to_dict()
    if reference_rows is not None:
        known.reference_rows = reference_rows
    known.estimator_hash = digest or known.estimator_hash


def read_estimator(estimator: EstimatorLike) -> tuple[bytes, int]:
    """File of an estimator, and the rows of its reference."""
    if isinstance(estimator, AccuracyEstimator):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "estimator.gdscore"
            estimator.save(path)
            return path.read_bytes(), estimator.reference_rows_
    if not isinstance(estimator, bytes):
        path = Path(estimator)
        if path.stat().st_size > LARGEST_ESTIMATOR:
            raise GdscoreError(f"Expected an estimator of at most {LARGEST_ESTIMATOR >> 20} MiB")
        estimator = path.read_bytes()
    return estimator, to_estimator(estimator).reference_rows_


def to_estimator(content: bytes) -> AccuracyEstimator:
    """Estimator from the bytes of its file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "estimator.gdscore"
        path.write_bytes(content)
        return AccuracyEstimator.load(path)
