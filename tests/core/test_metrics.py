"""Blocks, weights and MACs, each by hand or against torch's own counter."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from sparsepath import kernels, macs, outputs, sparsity


def test_sparsity_is_counted_three_ways() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.Linear(2, 4, bias=False), nn.Linear(4, 1))
    with torch.no_grad():
        for p in model.parameters():
            p.fill_(1.0)
        model[0].weight[0] = 0  # one of 2 kernels, of 4 weights
        model[1].weight[1:4] = 0  # 3 of 4 rows, of 2 weights
        model[1].weight[0, 0] = 0  # in a row that lives: a zero weight in no zero block
        model[2].bias.zero_()  # a zero weight of the model, in no sparsified layer
    blocks = {"0.weight": kernels(model[0]), "1.weight": kernels(model[1])}
    found = sparsity(model, blocks)
    assert found.blocks == {"0.weight": 2, "1.weight": 4}
    assert found.zero_blocks == {"0.weight": 1, "1.weight": 3}
    assert found.of_blocks == 4 / 6
    assert found.of_sparsified == (4 + 7) / (8 + 8)
    assert found.of_model == (4 + 7 + 1) / (8 + 2 + 8 + 4 + 1)


LAYERS = {
    "conv1d": (nn.Conv1d(3, 4, 3, padding=1), (2, 3, 8)),
    "conv2d": (nn.Conv2d(3, 4, 3, stride=2), (2, 3, 9, 7)),
    "conv3d": (nn.Conv3d(2, 3, 2, dilation=2), (1, 2, 5, 5, 5)),
    "grouped": (nn.Conv2d(4, 6, 3, groups=2), (2, 4, 5, 5)),
    "depthwise": (nn.Conv2d(4, 4, 3, groups=4), (1, 4, 5, 5)),
    "transposed": (nn.ConvTranspose2d(3, 4, 3, stride=2), (2, 3, 5, 6)),
    "grouped transposed": (nn.ConvTranspose2d(4, 6, 2, groups=2), (1, 4, 5, 5)),
    "linear": (nn.Linear(5, 7), (4, 5)),
    "linear over a sequence": (nn.Linear(5, 7), (4, 3, 5)),
    "without a batch": (nn.Conv2d(3, 4, 3), (3, 9, 7)),
    "transposed without a batch": (nn.ConvTranspose1d(3, 4, 3), (3, 9)),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_dense_macs_are_half_of_torchs_flops(kind: str) -> None:
    layer, shape = LAYERS[kind]
    with FlopCounterMode(display=False) as counter:
        layer(torch.randn(shape))
    assert macs(layer, torch.randn(shape)).dense * 2 == counter.get_total_flops() > 0


@pytest.mark.parametrize("kind", LAYERS)
def test_a_zero_weight_saves_its_share_of_the_macs(kind: str) -> None:
    layer, shape = LAYERS[kind]
    with torch.no_grad():
        layer.weight.fill_(1.0)
        layer.weight.view(-1)[::3] = 0
    found, zero = macs(layer, torch.randn(shape)), (layer.weight == 0).sum().item()
    assert found.sparse * layer.weight.numel() == found.dense * (layer.weight.numel() - zero)
    assert found.speedup == found.dense / found.sparse
    nn.init.zeros_(layer.weight)
    assert macs(layer, torch.randn(shape)).sparse == 0
    assert macs(layer, torch.randn(shape)).speedup == found.dense


def test_a_layer_that_is_used_twice_counts_twice() -> None:
    layer = nn.Linear(3, 3)
    assert macs(nn.Sequential(layer, nn.ReLU(), layer), torch.randn(1, 3)).dense == 18


class Failing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise RuntimeError("no forward pass")


def test_counting_leaves_the_model_as_it_was() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 2), nn.BatchNorm2d(2), nn.Dropout(), nn.Identity())
    model.train()
    model[1].eval()  # a batch norm that was frozen on purpose
    modes = [module.training for module in model.modules()]
    mean = model[1].running_mean.clone()
    macs(model, torch.randn(1, 1, 4, 4))
    model[3] = Failing()
    with pytest.raises(RuntimeError, match="no forward pass"):
        macs(model, torch.randn(1, 1, 4, 4))
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(model[1].running_mean, mean)
    assert not any(module._forward_hooks for module in model.modules())


def test_a_block_of_small_weights_is_not_zero() -> None:
    layer = nn.Linear(2, 1, bias=False)
    nn.init.constant_(layer.weight, 1e-30)  # of which the norm underflows
    assert sparsity(layer, {"weight": outputs(layer)}).of_blocks == 0


def test_the_macs_of_a_model_of_several_inputs_are_counted():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, a, b):
            return self.conv(a + b)

    image = torch.zeros(1, 3, 5, 5)
    assert macs(Sum(), (image, image)).dense == macs(nn.Conv2d(3, 4, 1), [image]).dense == 300


def test_a_model_of_which_nothing_is_sparsified_has_no_zeros():
    found = sparsity(nn.Conv2d(3, 4, 1), {})
    assert (found.of_blocks, found.of_sparsified, found.of_model) == (0, 0, 0)
