from typing import Any, cast

import pytest
import torch
from transformers import masking_utils

from enginesmith.builder.trace.masks import LazyMask, MaskSpec, describe_mask, lazy_mask


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
    described = describe_mask(both)
    assert described is not None
    assert described.window == 3


@pytest.mark.parametrize(
    "function",
    [
        masking_utils.or_masks(masking_utils.causal_mask_function, masking_utils.sliding_window_overlay(3)),
        masking_utils.padding_mask_function(torch.ones(1, 3)),
        lambda batch, head, query, key: key < query,
    ],
)
def test_other_masks_are_not_understood(function):
    assert describe_mask(function) is None
    assert describe_mask(masking_utils.and_masks(masking_utils.causal_mask_function, function)) is None


@pytest.mark.parametrize(
    "function",
    [
        masking_utils.causal_mask_function,
        masking_utils.sliding_window_causal_mask_function(3),
        masking_utils.chunked_causal_mask_function(4, torch.zeros(1, dtype=torch.int64)),
        masking_utils.or_masks(masking_utils.causal_mask_function, masking_utils.sliding_window_overlay(3)),
    ],
)
def test_a_mask_that_is_computed_with_is_the_one_of_eager_attention(function):
    sizes: dict[str, Any] = {"batch_size": 1, "q_length": 11, "kv_length": 11}
    mask = cast(torch.Tensor, lazy_mask(mask_function=function, config=None, **sizes))
    expected = masking_utils.eager_mask(mask_function=function, **sizes)
    assert torch.equal(mask + torch.zeros(1), expected)
    assert torch.equal(torch.zeros(1) + mask, expected)
    assert torch.equal(mask[:, :, 2:], expected[:, :, 2:])
    assert torch.equal(mask.to(torch.bool), expected.to(torch.bool))
    assert torch.equal(torch.where(mask < 0, 1, 0), torch.where(expected < 0, 1, 0))


def test_a_mask_that_is_trimmed_stays_as_it_is():
    mask = LazyMask(MaskSpec(causal=True), 7, 7)
    assert mask[:, :, :, :7] is mask
