from typing import cast

import pytest
import torch
from transformers import masking_utils

from enginesmith.builder.trace.masks import LazyMask, MaskSpec, describe_mask
from enginesmith.errors import UnsupportedModelError


def test_causal_window_and_chunk_are_read_off_the_functions():
    sliding = masking_utils.sliding_window_causal_mask_function(4)
    chunked = masking_utils.chunked_causal_mask_function(8, torch.zeros(1))
    assert describe_mask(masking_utils.causal_mask_function) == MaskSpec(causal=True)
    assert describe_mask(sliding) == MaskSpec(causal=True, window=4)
    assert describe_mask(chunked) == MaskSpec(causal=True, chunk=8)
    assert describe_mask(masking_utils.bidirectional_mask_function) == MaskSpec()


def test_masks_for_packed_sequences_are_seen_through():
    packed = masking_utils.and_masks(
        masking_utils.remap_positions_for_packed_sequence(
            masking_utils.sliding_window_causal_mask_function(5), torch.zeros(1, 3, dtype=torch.int64)
        ),
        masking_utils.packed_sequence_mask_function(torch.zeros(1, 3, dtype=torch.int64)),
    )
    assert describe_mask(packed) == MaskSpec(causal=True, window=5)


def test_two_windows_give_the_narrower():
    both = masking_utils.and_masks(masking_utils.sliding_window_overlay(7), masking_utils.sliding_window_overlay(3))
    assert describe_mask(both).window == 3


@pytest.mark.parametrize(
    "function",
    [
        masking_utils.or_masks(masking_utils.causal_mask_function, masking_utils.sliding_window_overlay(3)),
        masking_utils.padding_mask_function(torch.ones(1, 3)),
        lambda batch, head, query, key: key < query,
    ],
)
def test_other_masks_are_refused_by_name(function):
    with pytest.raises(UnsupportedModelError, match=r"or_mask|padding_mask_function|lambda"):
        describe_mask(function)


def test_a_lazy_mask_may_be_trimmed_but_not_computed_with():
    mask = LazyMask(MaskSpec(causal=True))
    assert mask[:, :, :, :7] is mask
    for compute in (
        lambda: mask[:, :, 1:],
        lambda: mask.shape,
        lambda: torch.zeros(2) + cast(torch.Tensor, mask),
        lambda: mask.to("cpu"),
    ):
        with pytest.raises(UnsupportedModelError, match="computes with its attention mask"):
            compute()
