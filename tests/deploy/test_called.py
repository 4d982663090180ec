"""A runtime is called like its model: its names, its complaints, its empty results."""

import pytest
import torch
from torch import nn

from sparsepath.deploy.running.runtime import compile
from sparsepath.errors import BadInput

IMAGES = torch.randn(2, 3, 16, 16)


class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, left, right, scale=1.0):
        return self.conv(left) - self.conv(right) * scale


class Complaint(Exception):
    pass


class Picky(nn.Module):
    def __init__(self, complaint):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.complaint = complaint

    def forward(self, x):
        if x.shape[-1] % 8:
            raise self.complaint
        return self.conv(x)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("complaint", "says"),
    [
        (AssertionError(), "AssertionError: its code raised this without a word"),
        (RuntimeError(), "RuntimeError: its code raised this without a word"),
        (KeyError("wide"), "KeyError: 'wide'"),
        (AttributeError("no wide"), "AttributeError: no wide"),
        (Complaint("too wide\nby far"), "Complaint: too wide"),
        (ValueError("too wide"), "too wide"),
    ],
)
def test_what_the_models_own_code_raises_becomes_a_sentence(complaint, says, strict):
    model = Picky(complaint).eval()
    narrow = IMAGES[..., :15]
    runtime = compile(model, IMAGES, tune=False, strict=strict)
    for images in (narrow, torch.full_like(narrow, torch.inf)):
        with pytest.raises(BadInput) as caught:
            runtime(images)
        expected = f"The model cannot take inputs of shape (2, 3, 16, 15): {says}"
        assert str(caught.value) == expected
    with pytest.raises(BadInput, match=r"shape \(2, 3, 16, 15\): "):
        compile(model, narrow, tune=False)


@pytest.mark.parametrize("tune", [False, True])
@pytest.mark.parametrize("kind", [nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d])
def test_a_pool_to_nothing_gives_nothing(kind, tune, tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), kind((0, 1))).eval()
    runtime = compile(model, IMAGES, tune=tune, cache=tmp_path)
    assert runtime(IMAGES).shape == model(IMAGES).shape == (2, 4, 0, 1)


def test_inputs_may_be_given_by_their_names():
    model = Sum().eval()
    left, right = IMAGES, torch.randn_like(IMAGES)
    runtime = compile(model, (left, right), tune=False)
    expected = runtime(left, right)
    assert torch.equal(runtime(right=right, left=left), expected)
    assert torch.equal(runtime(left, right=right), expected)
    single = nn.Sequential(nn.Conv2d(3, 4, 3)).eval()
    torch.testing.assert_close(compile(single, IMAGES, tune=False)(input=IMAGES), single(IMAGES))


@pytest.mark.parametrize(
    ("given", "named", "says"),
    [
        ((), {"left": IMAGES}, "The input 'right' is missing; the model takes 'left', 'right'."),
        (
            (IMAGES,),
            {"left": IMAGES},
            "The input 'left' was given twice: in its place and by name.",
        ),
        (
            (IMAGES, IMAGES),
            {"scale": 2.0},
            "The model was compiled for the inputs 'left', 'right', not for 'scale'.",
        ),
        ((IMAGES,), {"right": 3}, "Input 2 must be a torch tensor, not int."),
    ],
)
def test_other_names_get_a_sentence(given, named, says):
    runtime = compile(Sum().eval(), (IMAGES, IMAGES), tune=False)
    with pytest.raises(BadInput) as caught:
        runtime(*given, **named)
    assert str(caught.value) == says
