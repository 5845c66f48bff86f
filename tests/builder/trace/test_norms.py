import pytest
import torch
from known import known
from torch import nn
from transformers.activations import ACT2FN

from enginesmith.builder.trace.gelu import recognise_gelu
from enginesmith.builder.trace.norms import NormKind, recognise_norm


class Norm(nn.Module):
    """A norm with a weight, whose formula the test gives."""

    def __init__(self, formula, shape: int | tuple[int, ...] = 6, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(shape, device="meta"))
        self.eps = eps
        self.formula = formula

    def forward(self, x):
        return self.formula(x, self.weight, self.eps)


def rms(x, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def centred(x, w, eps):
    x = x - x.mean(-1, keepdim=True)
    return rms(x, eps) * w


@pytest.mark.parametrize(
    ("formula", "kind"),
    [
        (lambda x, w, e: w * rms(x, e), NormKind(True, 1e-6)),
        (lambda x, w, e: rms(x, e) * (1 + w), NormKind(True, 1e-6, 1.0)),
        (centred, NormKind(False, 1e-6)),
        (lambda x, w, e: w * rms(x, 1e-5), NormKind(True, 1e-5)),
        (lambda x, w, e: w * rms(x, e) * 1.01, None),
        (lambda x, w, e: w * x / x.abs().mean(-1, keepdim=True), None),
        (lambda x, w, e: w * rms(x, 0.1), None),
        (lambda x, w, e: (w * rms(x, e)).mean(-1), None),
        (lambda x, w, e: x @ torch.ones(3), None),
    ],
)
def test_norms_are_known_by_what_they_compute(formula, kind):
    assert recognise_norm(Norm(formula)) == kind


def test_recognised_norm_computes_what_the_module_does():
    kind = known(recognise_norm(Norm(lambda x, w, e: rms(x, e) * (1 + w))))
    x, w = torch.randn(4, 6), torch.randn(6)
    torch.testing.assert_close(kind.apply(x, w), rms(x, 1e-6) * (1 + w))


@pytest.mark.parametrize(
    ("formula", "kind"),
    [
        (centred, NormKind(False, 1e-6)),
        (lambda x, w, e: rms(x, e) * (1 + w), NormKind(True, 1e-6, 1.0)),
        (lambda x, w, e: rms(x.flatten(-2), e).unflatten(-1, w.shape) * w, None),  # over all heads
    ],
)
def test_norms_with_a_weight_for_each_head(formula, kind):
    assert recognise_norm(Norm(formula, (2, 6))) == kind


def test_norms_with_two_parameters_or_three_axes_stay_as_they_are():
    assert recognise_norm(nn.BatchNorm1d(4, device="meta")) is None
    assert recognise_norm(Norm(lambda x, w, e: w * rms(x, e), (2, 2, 6))) is None


@pytest.mark.parametrize(
    ("name", "approximate"),
    [
        ("gelu", "none"),
        ("gelu_new", "tanh"),
        ("gelu_pytorch_tanh", "tanh"),
        ("gelu_fast", "tanh"),
        ("quick_gelu", None),
    ],
)
def test_gelus_are_known_by_what_they_compute(name, approximate):
    assert recognise_gelu(ACT2FN[name]) == approximate
