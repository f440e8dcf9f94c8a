"""The service as a process: ``python -m tests.monitor.server DATABASE PORT``."""

import sys

import uvicorn

from gdscore.monitor import Monitor
from gdscore.monitor.app import create_app
from tests.monitor.conftest import OPEN

if __name__ == "__main__":
    uvicorn.run(create_app(Monitor(sys.argv[1]), OPEN), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
