"""A small catalogue to look at, pushed as any crawler would push it."""

import os
import subprocess
import sys
from pathlib import Path

CATALOGUE = Path(__file__).with_name("demo.jsonl")
PUSH_SECONDS = 60


def push(base_url: str, *, key_id: str, secret: str) -> bool:
    """Push it; pushed before, it is taken no second time. Says whether that worked: it is no reason not to start."""
    environ = os.environ | {"NOVEL_PUSH_KEY_ID": key_id, "NOVEL_PUSH_SECRET": secret}
    arguments = ["push", str(CATALOGUE), "--url", base_url, "--wait", "0", "--attempts", "3"]
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "cli", *arguments],
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PUSH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0
