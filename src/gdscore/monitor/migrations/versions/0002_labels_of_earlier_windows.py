"""Estimates rest on the labels of earlier windows; the rule ``recalibrate`` is gone."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

INDEX = "ix_windows_series"
COLUMNS = (
    *("model_id", "segment", "start", "end", "rows", "accuracy", "low", "high", "level"),
    *("reference_accuracy", "label_free", "last_known", "labelled", "correct", "missed", "id"),
)


def upgrade() -> None:
    """Windows so far have estimates without labels, or had them corrected by labels."""
    op.drop_index(INDEX, "windows")
    op.add_column("windows", sa.Column("label_free", sa.Double, nullable=False, server_default="0"))
    for name, kind in (("last_known", sa.Double), ("missed", sa.Boolean), ("classes", sa.JSON), ("tracked", sa.JSON)):
        op.add_column("windows", sa.Column(name, kind))
    connection = op.get_bind()
    window = sa.table("windows", *map(sa.column, ("id", "accuracy", "label_free")), sa.column("scores", sa.JSON))
    connection.execute(window.update().values(label_free=window.c.accuracy))
    corrected = sa.cast(window.c.scores, sa.Text).contains('"label_free"')
    for number, scores in connection.execute(sa.select(window.c.id, window.c.scores).where(corrected)).all():
        connection.execute(window.update().where(window.c.id == number).values(label_free=scores["label_free"]))
    op.create_index(INDEX, "windows", COLUMNS)
    for name, columns in (("models", ("rules",)), ("rules_changes", ("rules", "changes"))):
        table = sa.table(name, sa.column("id"), *(sa.column(column, sa.JSON) for column in columns))
        for number, *before in connection.execute(sa.select(table)).all():
            after = [{rule: value for rule, value in rules.items() if rule != "recalibrate"} for rules in before]
            changed = dict(zip(columns, after, strict=True))
            connection.execute(table.update().where(table.c.id == number).values(changed))
