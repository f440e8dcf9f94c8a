"""The first version; a new history is created from `schema.py`."""

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Nothing is older."""
