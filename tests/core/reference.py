"""The paper's Algorithm 1 in plain float64 Python, block by block; never to be optimised.

Weights are one flat list of numbers, blocks are lists of their indices.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

Vector = list[float]
Block = list[int]
Shrink = Callable[[float, float], float]


def soft(norm: float, step: float) -> float:
    """Equation 9: a = mu / rho is taken off the norm."""
    return max(0.0, norm - step)


def hard(norm: float, step: float) -> float:
    """Equation 10: a norm up to b = sqrt(2 mu / rho) is zeroed."""
    return norm if norm > math.sqrt(2 * step) else 0.0


def norm(v: Vector) -> float:
    return math.sqrt(sum(x * x for x in v))


def sparsity_step(V: Vector, blocks: list[Block], step: float, shrink: Shrink) -> Vector:
    """F = prox(V), one block after the other."""
    F = [0.0] * len(V)
    for block in blocks:
        length = norm([V[i] for i in block])
        for i in block:
            F[i] = V[i] * shrink(length, step) / length if length > 0 else 0.0
    return F


def iterate(
    W: Vector, F: Vector, Gamma: Vector, blocks: list[Block], mu: float, rho: float, shrink: Shrink
) -> tuple[Vector, Vector, float, float]:
    """Sparsity and dual step after a performance step: F, Gamma, ||W - F||, ||F - F_previous||."""
    V = [w + g / rho for w, g in zip(W, Gamma, strict=True)]
    F_new = sparsity_step(V, blocks, mu / rho, shrink)
    Gamma = [g + rho * (w - f) for g, w, f in zip(Gamma, W, F_new, strict=True)]
    primal = norm([w - f for w, f in zip(W, F_new, strict=True)])
    dual = norm([f - p for f, p in zip(F_new, F, strict=True)])
    return F_new, Gamma, primal, dual


@dataclass(frozen=True)
class Point:
    """What is known after one mu."""

    W: Vector
    F: Vector
    Gamma: Vector
    alive: list[bool]
    iterations: int
    primal: float
    dual: float


def algorithm_1(
    W: Vector,
    blocks: list[Block],
    gradient: Callable[[Vector], Vector],
    *,
    mus: list[float],
    rho: float,
    rate: float,
    delta: int,
    nu: int,
    xi: int,
    epsilon: float,
    shrink: Shrink,
    restart: bool,
) -> Iterator[Point]:
    """One point for each mu; an epoch is one step of gradient descent."""
    F, Gamma = list(W), [0.0] * len(W)
    for k, mu in enumerate(mus):
        if restart:
            F, Gamma = list(W), [0.0] * len(W)
        epochs = delta * min(k + 1, nu)
        iterations = 0
        while True:
            U = [f - g / rho for f, g in zip(F, Gamma, strict=True)]
            for _ in range(epochs):
                slope = gradient(W)
                W = [w - rate * (s + rho * (w - u)) for w, s, u in zip(W, slope, U, strict=True)]
            F, Gamma, primal, dual = iterate(W, F, Gamma, blocks, mu, rho, shrink)
            iterations += 1
            if iterations == xi or (primal <= epsilon and dual <= epsilon):
                break
        alive = [False] * len(W)
        for block in blocks:
            for i in block:
                alive[i] = any(F[j] != 0 for j in block)
        W = [w if a else 0.0 for w, a in zip(W, alive, strict=True)]
        for _ in range(epochs):
            slope = gradient(W)
            W = [w - rate * s if a else 0.0 for w, s, a in zip(W, slope, alive, strict=True)]
        yield Point(list(W), list(F), list(Gamma), alive, iterations, primal, dual)
