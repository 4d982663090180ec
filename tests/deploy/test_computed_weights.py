"""Weights that are computed at every run cannot be set: layers that do so are refused."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from sparsepath.deploy import int8_weights, share
from sparsepath.errors import BadInput


def old_weight_norm(layer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(layer)


COMPUTED = {
    "weight norm": (parametrizations.weight_norm, "remove_parametrizations"),
    "orthogonal": (parametrizations.orthogonal, "remove_parametrizations"),
    "old weight norm": (old_weight_norm, "its weight from weight_g, weight_v in a hook"),
    "old spectral norm": (nn.utils.spectral_norm, "its weight from weight_orig in a hook"),
    "pruned": (lambda layer: prune.l1_unstructured(layer, "weight", 0.5), "prune.remove"),
}


@pytest.mark.parametrize("kind", COMPUTED)
@pytest.mark.parametrize("change", [lambda model: share(model, 2), int8_weights])
def test_computed_weights_are_refused(kind, change):
    make, says = COMPUTED[kind]
    model = nn.Sequential(nn.Linear(6, 6), make(nn.Linear(6, 6)))
    with pytest.raises(BadInput, match=says) as caught:
        change(model)
    assert str(caught.value).startswith("'1' computes its weight")


def test_what_was_baked_in_is_taken():
    torch.manual_seed(0)
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(20, 20)), nn.Linear(20, 20))
    parametrize.remove_parametrizations(model[0], "weight")
    assert len(share(model, 2)[0].weight.unique()) == 4
    assert len(int8_weights(model)[0].weight[0].unique()) <= 20
