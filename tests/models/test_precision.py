"""What "auto" means, and how fast a device multiplies."""

from pathlib import Path

import pytest
import torch

from models.precision import BF16_FLAGS, peak, resolved

CPU = torch.device("cpu")


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp64"])
def test_a_precision_that_is_named_stays(precision):
    assert resolved(precision, CPU) == precision


def test_auto_is_bf16_where_the_processor_multiplies_it():
    words = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    assert resolved("auto", CPU) == ("bf16" if words & set(BF16_FLAGS) else "fp32")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_auto_on_a_gpu_is_what_it_supports():
    assert resolved("auto", torch.device("cuda")) in ("bf16", "fp32")


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp64"])
def test_a_peak_is_that_of_some_machine(precision):
    assert 1e7 < peak(precision, CPU, size=128, seconds=0.01) < 1e16
