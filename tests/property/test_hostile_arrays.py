from tests.property.hostile_arrays import run


def test_kernels_read_what_the_buffers_of_an_array_hold_or_nothing() -> None:
    outcomes = run(seed=1, cases=2_000)
    assert outcomes["rejected"] > 400
    assert outcomes["read"] > 400
