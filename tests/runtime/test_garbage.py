"""The collector of cycles: rarer, and still there."""

import gc
import subprocess
import sys

SCRIPT = """
import gc, weakref
from runtime import garbage

class Ring:
    pass

garbage.search_seldom()
assert gc.isenabled() and gc.get_freeze_count() > 1000
gone = []
for _ in range(3 * garbage.YOUNG_OBJECTS):
    ring = Ring()
    ring.self = ring
    if not gone:
        gone.append(weakref.ref(ring))
assert gone[0]() is None, "cycles pile up"
"""


def test_cycles_are_still_found() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert gc.get_threshold()[0] == 700, "only the process that asked for it"
