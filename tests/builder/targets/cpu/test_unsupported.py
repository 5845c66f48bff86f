"""What the cpu target cannot express is named: operation, place and reason, all at once."""

import pytest

from enginesmith.builder.build_options import BuildConfig
from enginesmith.builder.lowering.lower import lower
from enginesmith.errors import UnsupportedModelError
from enginesmith.plugins.discovery import kernels

CONFIG = BuildConfig(check=False)


def refusal(small_network, body: str) -> str:
    import numpy as np

    table = np.zeros((6, 4), np.float32)
    network = small_network(f"x = Gather<axis=0>(table, input_ids)\n{body}", 4, {"table": table}).network()
    with pytest.raises(UnsupportedModelError) as caught:
        lower(network, CONFIG, kernels("cpu"))
    return str(caught.value)


def test_every_unknown_operation_is_listed(small_network):
    text = refusal(small_network, "a = Selu(x)  b = Hardmax(a)  logits = Gather<axis=0>(b, logits_rows)")
    assert "TestForCausalLM" in text
    assert "Selu in a: the target has no such operation" in text
    assert "Hardmax in b" in text


def test_a_form_of_a_known_operation_that_is_not_supported(small_network):
    text = refusal(small_network, "a = Softmax<axis=0>(x)  logits = Gather<axis=0>(a, logits_rows)")
    assert "Softmax in a: it runs along the tokens of a step" in text


def test_what_the_logits_do_not_need_is_no_offence(small_network):
    import numpy as np

    body = "x = Gather<axis=0>(table, input_ids)  unused = Selu(x)  logits = Gather<axis=0>(x, logits_rows)"
    network = small_network(body, 4, {"table": np.zeros((6, 4), np.float32)}).network()
    assert lower(network, CONFIG, kernels("cpu")).vocab_size == 4
