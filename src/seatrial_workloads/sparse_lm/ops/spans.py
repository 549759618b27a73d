"""Names of the attention's stages, for torch.profiler and for NVTX."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

# The attention of each branch, within the procedure's own stages.
COMPRESSED, SELECTED, WINDOW = "nsa.cmp.attn", "nsa.sel.attn", "nsa.win.attn"
_nvtx = False


def name_in_nvtx(enabled: bool) -> None:
    """Also push the names to NVTX, which raises without CUDA."""
    global _nvtx
    if enabled and not torch.cuda.is_available():
        raise RuntimeError("NVTX needs CUDA: leave it off, and read the names from torch.profiler")
    _nvtx = enabled


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    with torch.profiler.record_function(name), torch.cuda.nvtx.range(name) if _nvtx else contextlib.nullcontext():
        yield


def span(name: str) -> contextlib.AbstractContextManager[None]:
    """A named stage, while a profiler is on. Compiled code has none: its kernels cross stages."""
    if torch.compiler.is_compiling() or not (_nvtx or torch.autograd._profiler_enabled()):
        return contextlib.nullcontext()
    return _named(name)
