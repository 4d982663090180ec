"""The example runs as it stands, on fewer digits, and ends in a file that does what it says."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from sparsepath import BadInput, deploy

EXAMPLE = Path(__file__).parent.parent / "examples" / "own_model.py"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch):
    spec = importlib.util.spec_from_file_location("own_model", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    whole = module.loaders()

    def few():
        for loader in whole:
            images, labels = next(iter(loader))
            yield DataLoader(TensorDataset(images, labels), batch_size=40)

    monkeypatch.setattr(module, "loaders", few)
    return module


def test_the_example_ends_in_a_sparse_file(example, tmp_path, monkeypatch, capsys):
    file = tmp_path / "net.sparsepath"
    monkeypatch.setattr(sys, "argv", ["own_model.py", "--epochs", "2", "--out", str(file)])
    example.main()
    said = capsys.readouterr().out
    assert "of the kernels are zero" in said
    assert "times as fast as the dense network" in said
    artifact = deploy.load(file)
    assert artifact.model(torch.zeros(1, 1, 28, 28)).shape == (1, 10)
    weights = artifact.model.state_dict()
    kernels = torch.cat([w.flatten(0, 1).flatten(1) for w in weights.values() if w.dim() == 4][1:3])
    assert (kernels == 0).all(1).any(), "no kernel of the first block died"
    # Found out at once, not after the training.
    with pytest.raises(SystemExit):
        example.main()
    assert "exists: name another file" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["own_model.py", "--out", str(tmp_path / "gone" / "net")])
    with pytest.raises(SystemExit):
        example.main()
    assert "No file can be written" in capsys.readouterr().err


def test_an_accuracy_counts_images_not_batches(example):
    labels = torch.tensor([1] * 100 + [0])
    loader = DataLoader(TensorDataset(torch.zeros(101, 1), labels), batch_size=100)
    ones = lambda images: torch.tensor([[0.0, 1.0]]).expand(len(images), 2)
    assert example.accuracy(ones, loader) == 100 / 101


def test_no_ruined_network_is_chosen(example, tmp_path, monkeypatch):
    monkeypatch.setattr(
        sys, "argv", ["own_model.py", "--epochs", "1", "--out", str(tmp_path / "n")]
    )
    accuracies = iter([0.97, *[0.4] * 99])
    monkeypatch.setattr(example, "accuracy", lambda model, loader: next(accuracies))
    with pytest.raises(BadInput, match="No point is within one of dense accuracy"):
        example.main()
    assert not list(tmp_path.iterdir())
