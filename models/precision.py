"""Numbers' width: what "auto" means on a device, and how fast that device multiplies."""

import time
from pathlib import Path

import torch

BF16_FLAGS = ("avx512_bf16", "amx_bf16")


def resolved(precision: str, device: torch.device) -> str:
    """`auto` becomes bf16 where the hardware multiplies it, else fp32; anything else stays."""
    if precision != "auto":
        return precision
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    cpu = Path("/proc/cpuinfo")
    text = cpu.read_text(encoding="utf-8") if cpu.exists() else ""
    return "bf16" if any(flag in text for flag in BF16_FLAGS) else "fp32"


def peak(precision: str, device: torch.device, size: int = 2048, seconds: float = 0.3) -> float:
    """Floating-point operations a second of a square matrix product in that precision, measured now."""
    kind = {"bf16": torch.bfloat16, "fp64": torch.float64}.get(precision, torch.float32)
    left = torch.randn(size, size, device=device).to(kind)
    right = torch.randn(size, size, device=device).to(kind)
    products, started = -1, time.perf_counter()
    while products < 1 or time.perf_counter() - started < seconds:
        left @ right
        if device.type == "cuda":
            torch.cuda.synchronize()
        products += 1
        if products == 0:  # the first one warms up
            started = time.perf_counter()
    return products * 2 * size**3 / (time.perf_counter() - started)
