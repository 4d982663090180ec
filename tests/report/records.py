"""The record of a small run of two layers, for tables and the page."""

LATENCY = {
    "dense": {
        "runtime": "torch",
        "p50": 0.03,
        "p95": 0.05,
        "throughput": 4000.25,
        "throughput_runtime": "onnxruntime",
    },
    "sparse": {
        "runtime": "sparsepath",
        "p50": 0.02,
        "p95": 0.04,
        "throughput": 8000.75,
        "throughput_runtime": "sparsepath",
    },
}


def point(index, *, zero, validation, test):
    blocks = round(100 * zero)
    return {
        "index": index,
        "mu": 0.00123456 * (index + 1),
        "rho": 0.2,
        "validation_W": 0.9012,
        "validation_F": 0.8034,
        "validation": validation,
        "test": test,
        "sparsity": {
            "blocks": {"a.weight": 10, "b.weight": 90},
            "zero_blocks": {"a.weight": min(1, blocks), "b.weight": max(0, blocks - 1)},
            "of_blocks": zero,
            "of_sparsified": 0.4321,
            "of_model": 0.3219,
        },
        "macs": {"dense": 3_430_000, "sparse": 1_715_000, "speedup": 2.0},
        "epochs": 7,
        "iterations": 3,
        "converged": False,
        "residuals": [{"flipped": 5}, {"flipped": 41}],
        "seconds": 12.3,
    }


def record(**changes):
    dense = {
        "images": {"train": 3500, "validation": 500, "test": 1000},
        "parameters": 44_138,
        "blocks": {"a.weight": 10, "b.weight": 90},
        "sparsity": {"of_blocks": 0.01, "of_sparsified": 0.02, "of_model": 0.03},
        "macs": {"dense": 3_430_000, "sparse": 3_430_000, "speedup": 1.0},
        "epochs": 16,
        "validation": 0.98,
        "test": 0.9765,
        "seconds": 20.0,
    }
    settings = {
        "network": "digit-net",
        "data": "digits",
        "penalty": "l0",
        "blocks": "kernels",
        "seed": 0,
        "points": 2,
        "tolerance": 0.01,
    }
    points = [
        point(0, zero=0.5, validation=0.981, test=0.975),
        point(1, zero=0.9, validation=0.975, test=0.9712),
    ]
    whole = {
        "name": "my-run",
        "finished": True,
        "settings": settings,
        "dense": dense,
        "points": points,
        "chosen": 1,
    }
    return {**whole, **changes}


def walked(count, **settings):
    """A finished run of so many points that rise in zeros and fall in accuracy."""
    whole = record()
    points = [
        point(n, zero=0.5 + 0.4 * n / count, validation=0.98 - 0.01 * n, test=0.975 - 0.01 * n)
        for n in range(count)
    ]
    rows = [{"primal": 2.0, "dual": 1.0, "flipped": 4}, {"primal": 1.5, "dual": 0.25, "flipped": 1}]
    points = [{**each, "residuals": rows} for each in points]
    changed = {**whole["settings"], "points": count, **settings}
    return {**whole, "settings": changed, "points": points, "chosen": 0}
