"""How large a generated catalogue is, and how its chapters are spread over its stories."""

from dataclasses import dataclass
from random import Random

LARGEST_SHARE = 0.02
# Of a Pareto distribution: most stories have a few chapters, some have hundreds, a handful thousands.
SKEW = 1.1


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the generator is asked for. Equal sizes give equal catalogues, byte for byte."""

    stories: int
    chapters: int
    bodies: int
    """How many chapters have a text: it is by far the largest part, and few benchmarks need all of it."""
    seed: int = 1


QUICK = Sizes(stories=1_000, chapters=20_000, bodies=400)
FULL = Sizes(stories=10_000, chapters=200_000, bodies=4_000)


def chapter_counts(sizes: Sizes) -> list[int]:
    """How many chapters each story has, the first story first. They add up exactly."""
    random = Random(f"{sizes.seed}:counts")
    weights = [random.paretovariate(SKEW) for _ in range(sizes.stories)]
    # Without a bound one lucky story could own most of the catalogue.
    most = sum(weights) * LARGEST_SHARE
    weights = [min(weight, most) for weight in weights]
    total = sum(weights)
    counts, running, given = [], 0.0, 0
    for weight in weights:
        running += weight
        upto = round(sizes.chapters * running / total)
        counts.append(upto - given)
        given = upto
    return counts
