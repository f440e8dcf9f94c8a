"""A nightly job: yesterday's outputs into the history, then the notices of alarms.

As a cron line:       15 2 * * * python nightly.py
As an Airflow task:   PythonOperator(task_id="accuracy", python_callable=run)
As a Dagster asset:   @asset(deps=[predictions]) with run() as its body
"""

import os
from datetime import UTC, date, datetime, timedelta

from gdscore.io import Columns, read_batches
from gdscore.monitor import Monitor, Webhook


def run(day: date | None = None, folder: str = "predictions") -> None:
    """Add one day, yesterday in UTC by default; running it again changes nothing."""
    day = day or datetime.now(UTC).date() - timedelta(days=1)
    hook = os.environ.get("GDSCORE_WEBHOOK")
    notify = [Webhook(hook, os.environ.get("GDSCORE_WEBHOOK_SECRET"))] if hook else []
    monitor = Monitor(os.environ.get("GDSCORE_MONITOR", "sqlite:///gdscore-history.db"), notify=notify)
    columns = Columns(probabilities="prob_*", by="country")
    monitor.add("churn", read_batches(f"{folder}/{day}.parquet", columns=columns), time=day)
    monitor.check()
    monitor.close()


if __name__ == "__main__":
    run()
