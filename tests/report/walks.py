"""Small records of paths, and a paper of two layers, for tables and figures."""

KS = (0, 2, 4, 6, 8, 10)
BLOCKS = (10, 90)


def paper_row(k, *, accuracy, zero, baseline=False):
    return {
        "mu0": round(k / 19, 3),
        "baseline": baseline,
        "accuracy": accuracy,
        "zero_filters": list(zero),
        "sparsity": 1.5 * sum(zero),
        "epochs": 4 * (k + 1) if not baseline else 0,
        "speedup": 1 + k / 10,
    }


def paper():
    """Paths whose last point has 30 of 100 blocks zero, one point above a baseline of 80."""

    def path(last):
        rows = [paper_row(0, accuracy=80.0, zero=(0, 0), baseline=True)]
        rows += [paper_row(k, accuracy=80.5, zero=(1, k)) for k in KS]
        return [*rows, paper_row(last, accuracy=81.0, zero=(2, 28))]

    def networks():
        names = {"nin": 12, "low_rank_nin": 12, "cnn": 11, "low_rank_cnn": 11}
        return {
            name: {"filters_total": list(BLOCKS), "l1": path(last), "l0": path(last)}
            for name, last in names.items()
        }

    t_test = {
        "dataset": "cifar10",
        "model": "nin",
        "runs": 15,
        "admm_l0": {"mean": 91.34, "std": 0.04, "sparsity": 34.5},
        "fine_tuning": {"mean": 91.09, "std": 0.06, "sparsity": 0.0},
        "baseline": {"mean": 90.71},
        "p_value": 0.001,
    }
    return {
        "tables": {name: networks() for name in ("cifar10", "cifar100", "svhn")},
        "t_test": t_test,
    }


def point(k, *, zero, test, positions=20):
    residuals = [{"primal": 2.0 / (i + 1 + k), "dual": 1.0 / (i + 1 + k)} for i in range(3)]
    return {
        "index": k,
        "position": k / (positions - 1),
        "mu": 0.001 * 2**k,
        "test": test,
        "epochs": 11 * (k + 1),
        "sparsity": {
            "blocks": {"conv1.weight": BLOCKS[0], "conv2.weight": BLOCKS[1]},
            "zero_blocks": {"conv1.weight": zero[0], "conv2.weight": zero[1]},
            "of_blocks": sum(zero) / sum(BLOCKS),
            "of_sparsified": 0.1234,
            "of_model": 0.0567,
        },
        "macs": {"dense": 300, "sparse": 200, "speedup": 1.5},
        "residuals": residuals,
    }


def record(penalty="l0", *, last=11, variant="", test=0.91, network="cnn", data="cifar10"):
    """A path whose zero blocks are 3 (k + 1) of 100."""
    return {
        "network": network,
        "data": data,
        "penalty": penalty,
        "variant": variant,
        "seed": 0,
        "recipe": {"schedule": {"epsilon": 0.01}},
        "dense": {"test": 0.9},
        "points": [point(k, zero=(0, 3 * (k + 1)), test=test) for k in range(last + 1)],
    }
