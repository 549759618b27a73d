"""Contexts that one hook of a trainer opens and another one closes. In: contexts of a probe, each under a key. Out: calls on them."""

from __future__ import annotations

from seatrial.probe.contexts import Nothing, PauseContext, PhaseContext, SpanContext, StepContext, UntimedPhase

Open = StepContext | PhaseContext | UntimedPhase | PauseContext | SpanContext | Nothing


class OpenParts:
    """What is open of a training at the moment."""

    def __init__(self) -> None:
        self._open: dict[str, Open] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._open

    def enter(self, key: str, context: Open) -> None:
        self._open[key] = context
        context.__enter__()

    def leave(self, *keys: str) -> None:
        """Close those of them that are open, in this order."""
        for key in keys:
            context = self._open.pop(key, None)
            if context is not None:
                context.__exit__(None, None, None)

    def forget(self, *keys: str) -> None:
        """Drop what was begun too early, as if it had not been; all of it where no key is named."""
        for key in keys or tuple(self._open):
            self._open.pop(key, None)
