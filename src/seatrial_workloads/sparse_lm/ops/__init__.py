"""Operators of native sparse attention, the shapes and paths they take. `naive` is the reference with explicit masks.

`masked`, `gathered` and `tiles` implement the same branches under the same function names; `attention_paths` chooses among them.
"""
