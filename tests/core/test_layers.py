"""Which layers are sparsified: by name pattern, type or predicate, and what is refused."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from sparsepath import ADMM, L0, BadInput, Blocks, kernels, sparsity, tiles
from sparsepath.layers import Layers, targets


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Sequential(nn.Conv2d(4, 8, 1)), nn.Linear(8, 2)
    )


@pytest.mark.parametrize(
    ("layers", "names"),
    [
        (None, ["0.weight", "2.0.weight", "3.weight"]),
        ("*", ["0.weight", "2.0.weight", "3.weight"]),
        ("2.*", ["2.0.weight"]),
        (["3", "0"], ["0.weight", "3.weight"]),  # in the model's own order
        (nn.Linear, ["3.weight"]),
        ((nn.Linear, "0"), ["0.weight", "3.weight"]),
        (lambda name, layer: layer.weight.dim() == 4, ["0.weight", "2.0.weight"]),
    ],
)
def test_layers_are_chosen_by_pattern_type_or_predicate(layers: Layers, names: list[str]) -> None:
    assert [target.name for target in targets(network(), kernels, layers)] == names


def test_a_model_may_be_a_layer_itself() -> None:
    (target,) = targets(nn.Linear(2, 3), kernels)
    assert target.name == "weight"


def test_a_partition_of_ones_own_is_asked_about_nothing_without_a_weight() -> None:
    asked = []

    def whole(layer: nn.Module) -> Blocks:
        asked.append(type(layer))
        shape = layer.get_parameter("weight").shape
        return Blocks(tuple((length,) for length in shape), tuple(range(len(shape))))

    assert len(targets(network(), whole, [nn.Conv2d, nn.Linear])) == 3
    assert nn.Sequential not in asked


def test_a_partition_that_gives_no_blocks_is_refused() -> None:
    seven: Any = lambda layer: 7
    with pytest.raises(BadInput, match="gave 7 for a Linear: a partition gives Blocks, or None"):
        targets(nn.Linear(2, 3), seven)


def test_only_chosen_layers_must_divide_into_tiles() -> None:
    model = network()  # its first layer has 3 inputs
    chosen = targets(model, tiles(2, 2), ["2.0", "3"])
    assert [target.blocks.count for target in chosen] == [8, 4]
    with pytest.raises(BadInput, match="its 3 inputs are no multiple of 2"):
        targets(model, tiles(2, 2))


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        ("conv*", r"No layer matches 'conv\*'; this model has '0', '2.0', '3'\."),
        (nn.Conv1d, "No layer matches 'Conv1d'"),
        (["0", "1"], "No layer matches '1'"),
        (["0", nn.Conv2d], "Layer '0' is listed twice: by '0' and 'Conv2d'"),
        (["0", "0"], "Layer '0' is listed twice: by '0' and '0'"),
        ([], "An empty list of layers was given; this model has '0'"),
        (3, "by name pattern, type or predicate, not by 3"),
    ],
)
def test_a_choice_that_finds_nothing_or_too_much_is_refused(layers: Layers, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        ADMM(network(), L0(), rho=1.0, layers=layers)


def test_a_long_list_of_layers_is_shortened() -> None:
    model = nn.Sequential(*[nn.Linear(1, 1) for _ in range(11)])
    with pytest.raises(BadInput, match="'6', '7' and 3 more"):
        targets(model, kernels, "none")


def test_a_model_without_matching_layers_is_refused() -> None:
    with pytest.raises(BadInput, match="kernels cuts no layer of this Sequential into blocks"):
        ADMM(nn.Sequential(nn.ReLU()), L0(), rho=1.0)


def test_a_frozen_parameter_is_refused() -> None:
    model = network()
    model[3].requires_grad_(False)
    with pytest.raises(BadInput, match=r"'3.weight' is frozen"):
        ADMM(model, L0(), rho=1.0)
    assert list(ADMM(model, L0(), rho=1.0, layers=nn.Conv2d).W) == ["0.weight", "2.0.weight"]


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_an_empty_parameter_is_refused() -> None:
    with pytest.raises(BadInput, match=r"'0.weight' is empty \(shape \(0, 4\)\)"):
        ADMM(nn.Sequential(nn.Linear(4, 0)), L0(), rho=1.0)


def test_a_computed_weight_is_refused() -> None:
    model = network()
    parametrize.register_parametrization(model[3], "weight", nn.Tanh())
    with pytest.raises(BadInput, match=r"'3.weight' is computed from other tensors"):
        ADMM(model, L0(), rho=1.0)
    assert len(ADMM(model, L0(), rho=1.0, layers=nn.Conv2d).W) == 2


def test_a_lazy_layer_is_refused_only_where_it_is_chosen() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LazyLinear(2))
    with pytest.raises(BadInput, match="LazyLinear"):
        ADMM(model, L0(), rho=1.0)
    assert list(ADMM(model, L0(), rho=1.0, layers="0").W) == ["0.weight"]


def test_a_parameter_that_two_layers_share_is_refused_twice_and_taken_once() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].weight
    with pytest.raises(BadInput, match=r"'0.weight' and '1.weight' are one shared parameter"):
        ADMM(model, L0(), rho=1.0)
    for name in ("0", "1"):
        admm = ADMM(model, L0(), rho=1.0, mu=1e9, layers=name)
        admm.step()
        admm.support().impose(model)
        assert sparsity(model, admm.blocks).of_model == 1.0
        nn.init.ones_(model[0].weight)
    assert torch.equal(model[0].weight, model[1].weight)
