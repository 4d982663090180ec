"""What `reproduce` would write of a job, with accuracies that tell points and seeds apart."""

from records import point


def walk(job):
    keep = job.recipe.keep or [1 - 0.1 * n for n in range(job.recipe.length)]
    zeros = [0.0] * len(keep) if job.method == "fine-tuning" else [1 - share for share in keep]
    accuracies = [0.9 - 0.01 * n - 0.001 * job.seed for n in range(len(keep))]
    return {
        "network": job.start.network,
        "data": "cifar10",
        "penalty": job.method,
        "variant": job.variant,
        "seed": job.seed,
        "recipe": job.recipe.plain(),
        "dense": {"test": 0.9, "validation": 0.9},
        "mus": [],
        "points": [
            point(n, zero=x, validation=y, test=y)
            for n, (x, y) in enumerate(zip(zeros, accuracies, strict=True))
        ],
    }
