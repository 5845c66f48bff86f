"""Threads of NumPy's matrix products."""

import pytest

from enginesmith.builder.quantize import blas


def test_one_thread_within_the_block() -> None:
    functions = blas._openblas()
    if functions is None:
        pytest.skip("NumPy has another BLAS here")
    get, put = functions
    before = get()
    put(2)
    try:
        with blas.one_thread_a_product():
            assert get() == 1
        assert get() == 2
    finally:
        put(before)


def test_another_blas_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blas, "_openblas", lambda: None)
    with blas.one_thread_a_product():
        pass
