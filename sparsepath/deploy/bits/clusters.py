"""k-means of numbers on a line: sorted, so that a cluster is a stretch and sums are differences."""

from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

Floats = NDArray[numpy.float64]
BINS = 2048
# Each step only moves bounds between neighbours; it ends much sooner, with nothing left to move.
STEPS = 1000


@dataclass(frozen=True, eq=False)
class Clusters:
    """Centroids in rising order, and the mean squared distance to the nearest."""

    centroids: Floats
    error: float

    def assigned(self, numbers: Floats) -> NDArray[numpy.int64]:
        """Which centroid is nearest to each number."""
        return numpy.searchsorted(_bounds(self.centroids), numbers).astype(numpy.int64)


def clusters(numbers: Floats, count: int) -> Clusters:
    """At most `count` centroids with a small error: the best of two starts, always the same.

    Numbers of no more different values are their own centroids.
    """
    line = numpy.sort(numbers)
    steps = numpy.flatnonzero(line[1:] != line[:-1])
    if len(steps) < count:
        return Clusters(line[numpy.append(steps, len(line) - 1)], 0.0)
    sums = numpy.zeros(len(line) + 1)
    numpy.cumsum(line, out=sums[1:])
    evenly = numpy.linspace(line[0], line[-1], 2 * count + 1)[1::2]
    starts = (evenly, _by_density(line, count))
    return min((_settled(line, sums, start) for start in starts), key=lambda found: found.error)


def _by_density(line: Floats, count: int) -> Floats:
    """Centroids as dense as the cube root of the numbers: where many of them would end up."""
    edges = numpy.linspace(line[0], line[-1], BINS + 1)
    counts = numpy.diff(numpy.searchsorted(line, edges[1:-1]), prepend=0, append=len(line))
    reached = numpy.concatenate(([0.0], numpy.cumsum(numpy.cbrt(counts))))
    places = (numpy.arange(count) + 0.5) / count * reached[-1]
    found: Floats = numpy.interp(places, reached, edges)
    return found


def _settled(line: Floats, sums: Floats, centroids: Floats) -> Clusters:
    """Lloyd's steps until no number changes its cluster; `sums` are those up to each number."""
    cuts = numpy.zeros(0, numpy.int64)
    for _ in range(STEPS):
        moved = _cuts(line, centroids)
        if numpy.array_equal(moved, cuts):
            break
        cuts = moved
        sizes, totals = numpy.diff(cuts), numpy.diff(sums[cuts])
        centroids = totals / sizes
    sizes, totals = numpy.diff(cuts), numpy.diff(sums[cuts])
    error = float(line @ line - (totals**2 / sizes).sum()) / len(line)
    return Clusters(totals / sizes, error)


def _cuts(line: Floats, centroids: Floats) -> NDArray[numpy.int64]:
    """Where each cluster starts and ends; one that would be empty takes half of the widest."""
    inner = numpy.searchsorted(line, _bounds(centroids))
    cuts = numpy.unique(numpy.concatenate(([0], inner, [len(line)])))
    while len(cuts) <= len(centroids):
        widths = line[cuts[1:] - 1] - line[cuts[:-1]]
        widest = int(widths.argmax())
        first, last = cuts[widest], cuts[widest + 1]
        middle = (line[first] + line[last - 1]) / 2
        cut = numpy.clip(numpy.searchsorted(line, middle), first + 1, last - 1)
        cuts = numpy.insert(cuts, widest + 1, cut)
    return cuts.astype(numpy.int64)


def _bounds(centroids: Floats) -> Floats:
    return (centroids[1:] + centroids[:-1]) / 2
