import subprocess
import sys


def test_notices_and_mlflow_do_not_need_sqlalchemy():
    code = (
        "import sys; sys.modules['sqlalchemy'] = None; "
        "from gdscore.monitor import Command, Email, Webhook, log_to_mlflow; "
        "print(log_to_mlflow.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "log_to_mlflow"
