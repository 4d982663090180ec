"""The first stage of a run, its dense reference: trained, or taken from a checkpoint."""

import json
import time
from dataclasses import asdict
from pathlib import Path

from sparsepath.errors import BadInput
from sparsepath.lab.bench import DENSE, Bench
from sparsepath.lab.folders import Record
from sparsepath.lab.training import Diverged, Momenta, train
from sparsepath.lab.weights import load_weights, part, prefixed
from sparsepath.metrics import sparsity
from sparsepath.storage import read_json, read_tensors, write_json, write_tensors

WARMUP = 0.15


def dense_reference(bench: Bench) -> None:
    """Leave the dense reference in the model, and F = W in its ADMM."""
    weights, figures = bench.folder / "dense.safetensors", bench.folder / "dense.json"
    training = bench.folder / "training.safetensors"
    if not weights.exists():
        seconds = _train(bench, training) if bench.settings.checkpoint is None else 0.0
        write_json(figures, _record(bench, seconds))
        write_tensors(weights, bench.model.state_dict(), bench.header())
    training.unlink(missing_ok=True)
    load_weights(bench.model, read_tensors(weights)[0], weights)
    bench.admm.restart()
    record: Record = read_json(figures)
    changed = [name for name in bench.digests if record["digests"][name] != bench.digests[name]]
    if changed:
        raise BadInput(
            f"The {' and '.join(changed)} of the run in {str(bench.folder)!r} changed since it "
            "began; choose another folder."
        )
    bench.watch.dense(record)


def _train(bench: Bench, training: Path) -> float:
    """Train with a checkpoint after each epoch; the seconds it took, earlier calls included."""
    start, before = Momenta(), 0.0
    if training.exists():
        tensors, header = read_tensors(training)
        state = json.loads(header["sparsepath"])
        load_weights(bench.model, part(tensors, "W"), training)
        start, before = Momenta(state["epoch"], part(tensors, "momentum")), state["seconds"]
    began = time.monotonic() - before

    def keep(momenta: Momenta) -> None:
        # Told first: an epoch that is told twice does less harm than one that is never told.
        bench.watch.epoch(
            DENSE,
            done=momenta.epoch,
            planned=bench.dense_epochs if bench.dense_only else bench.planned(),
            loss=momenta.loss,
        )
        tensors = {
            **prefixed("W", bench.model.state_dict()),
            **prefixed("momentum", momenta.by_name),
        }
        state = {"epoch": momenta.epoch, "seconds": time.monotonic() - began}
        write_tensors(training, tensors, {"sparsepath": json.dumps(state)})

    rate = bench.settings.dense_rate
    try:
        train(
            bench.model,
            bench.data,
            bench.recipe(rate, warmup=WARMUP, final=0.0),
            epochs=bench.dense_epochs,
            key=(bench.settings.seed, "dense"),
            start=start,
            on_epoch=keep,
        )
    except Diverged as error:
        raise Diverged(f"The dense reference's {error}; lower dense_rate = {rate:g}.") from error
    return time.monotonic() - began


def _record(bench: Bench, seconds: float) -> Record:
    data = bench.data
    return {
        "images": {
            "train": len(data.train),
            "validation": len(data.validation),
            "test": len(data.test),
        },
        "parameters": sum(weight.numel() for weight in bench.model.parameters()),
        "blocks": {name: cut.count for name, cut in bench.admm.blocks.items()},
        "sparsity": asdict(sparsity(bench.model, bench.admm.blocks)),
        "macs": bench.macs(),
        "digests": bench.digests,
        "epochs": bench.dense_epochs,
        "validation": bench.validation(),
        "test": bench.test(),
        "seconds": seconds,
    }
