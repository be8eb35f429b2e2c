"""Python's search for cycles, made rarer in processes that make many short-lived objects.

What is made for a batch has no cycles and goes by reference counts. By default the collector walks over all of it
again and again, a tenth of a worker's time. What is there at the start stays for good: it is not looked at any more.
"""

import gc

# Objects made, less those that are gone, before the youngest are looked at: the default is 700.
YOUNG_OBJECTS = 50_000


def search_seldom() -> None:
    """Call it once, when everything is imported."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)
