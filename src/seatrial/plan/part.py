"""What every part of a plan is built on."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """What all parts of a plan share: nothing is converted, nothing unknown is taken."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, use_attribute_docstrings=True, allow_inf_nan=False)
