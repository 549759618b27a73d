"""Shape of the sparse language model, checked on construction. Standard library only.

    ModelShape(dim=768, n_layers=12)             the production configuration: 78,295,332 parameters

Keys of a configuration's `nsa` section that have other names here: l → cmp_block, d → cmp_stride, l_sel → sel_block, w → window.
"""

from __future__ import annotations

from dataclasses import dataclass

from seatrial_workloads.common.settings import check_at_least, check_one_of, check_types

POOLINGS = ("avg", "conv")
# Block 0, the query's own block and the one before it are always selected.
NUM_FORCED = 3


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Widths of the model and block sizes of its attention."""

    vocab_size: int = 256
    """Size of the vocabulary; 256 is bytes."""
    dim: int = 768
    """Width of the residual stream."""
    n_layers: int = 12
    """Number of transformer blocks."""
    n_heads: int = 12
    """Query heads per block; a multiple of n_kv_groups."""
    n_kv_groups: int = 2
    """Groups of query heads that share keys, values and selected blocks."""
    d_k: int = 64
    """Width of a query or key head; even, for the rotary embedding."""
    d_v: int = 64
    """Width of a value head."""
    cmp_block: int = 32
    """Tokens pooled into one compressed block (l)."""
    cmp_stride: int = 16
    """Tokens between the starts of two compressed blocks (d); divides cmp_block and sel_block."""
    sel_block: int = 64
    """Tokens in a selection block (l_sel)."""
    n_sel: int = 16
    """Selected blocks per query; the three forced ones count."""
    window: int = 512
    """Tokens of the sliding window, the query's own included (w)."""
    phi: str = "avg"
    """Pooling of a compressed block: avg, or conv, a depthwise convolution that starts as the average."""
    gate_temperature: float = 1.0
    """Divides the gate's logits before their softmax."""
    rope_base: float = 10000.0
    """Base of the rotary embedding's wavelengths."""

    def __post_init__(self) -> None:
        check_types(self)
        check_at_least(self, vocab_size=2, dim=1, n_layers=1, n_heads=1, n_kv_groups=1, d_k=2, d_v=1)
        check_at_least(self, cmp_block=1, cmp_stride=1, sel_block=1, n_sel=NUM_FORCED, window=1)
        check_one_of(self, phi=POOLINGS)
        for name, divisor in (("n_heads", "n_kv_groups"), ("cmp_block", "cmp_stride"), ("sel_block", "cmp_stride")):
            self._check_multiple(name, divisor)
        if self.d_k % 2:
            raise ValueError(f"d_k is {self.d_k}; the rotary embedding turns pairs: use an even one, for example {self.d_k + 1}")
        for name in ("gate_temperature", "rope_base"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be above 0")

    def _check_multiple(self, name: str, divisor: str) -> None:
        value, by = getattr(self, name), getattr(self, divisor)
        if value % by:
            near = by * max(1, round(value / by))
            raise ValueError(f"{name} ({value}) is not a multiple of {divisor} ({by}): use for example {name}={near}")

    @property
    def heads_per_group(self) -> int:
        return self.n_heads // self.n_kv_groups

    def num_cmp(self, seq_len: int) -> int:
        """Compressed blocks that lie wholly within the first `seq_len` tokens."""
        return 0 if seq_len < self.cmp_block else (seq_len - self.cmp_block) // self.cmp_stride + 1

    def num_sel(self, seq_len: int) -> int:
        """Selection blocks that `seq_len` tokens begin, the last one partial."""
        return -(-seq_len // self.sel_block)

    @property
    def num_parameters(self) -> int:
        """Trained parameters of the model that has this shape."""
        query, key, value = self.n_heads * self.d_k, self.n_kv_groups * self.d_k, self.n_kv_groups * self.d_v
        attention = self.dim * (query + 3 * (key + value)) + self.n_heads * self.d_v * self.dim
        hidden = max(1, self.d_k // 2)
        gate = self.d_k * hidden + hidden + hidden * 3 + 3
        pooling = self.cmp_block * (self.d_k + self.d_v) if self.phi == "conv" else 0
        layer = attention + gate + pooling + 2 * 4 * self.dim * self.dim + 2 * self.dim
        return 2 * self.vocab_size * self.dim + self.dim + self.n_layers * layer
