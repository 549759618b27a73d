"""Rows of examples: packed as tightly as they go, attention within each example, the same loss as padded."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from seatrial_workloads.sft.model import build_model  # noqa: E402
from seatrial_workloads.sft.packing import COUNTS, IGNORED, Collator, Example, labels_of, mixes_examples, pack  # noqa: E402
from seatrial_workloads.sft.settings import Settings  # noqa: E402

ROW = 48
CPU = torch.device("cpu")


def _examples() -> list[Example]:
    rng = random.Random(3)
    lengths = (20, 17, 11, 30, 9, 9)
    return [Example(number, [rng.randrange(3, 500) for _ in range(length)], length // 2) for number, length in enumerate(lengths)]


def _inputs(batch: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in batch.items() if name != COUNTS}


def test_rows_hold_every_example_once_and_are_nearly_full():
    rng = random.Random(0)
    lengths = [min(512, max(20, round(rng.lognormvariate(4.4, 0.7)))) for _ in range(2048)]
    rows = pack(lengths, 512)
    assert sorted(number for row in rows for number in row) == list(range(len(lengths)))
    filled = [sum(lengths[number] for number in row) for row in rows]
    assert max(filled) <= 512
    assert sum(filled) / (512 * len(rows)) > 0.98
    assert rows == pack(lengths, 512)


@pytest.fixture(scope="module", params=["eager", "sdpa"])
def model(request):
    return build_model(Settings(lora_dropout=0.0, attn_impl=request.param), CPU)[0]


def test_a_token_of_one_example_changes_nothing_in_another(model):
    model.train()
    first, second, third = _examples()[:3]
    collate = Collator(pad_id=2, row_length=ROW, packing=True)
    changed = Example(first.number, [499 - first.ids[0], *first.ids[1:]], first.prompt_length)
    with torch.no_grad():
        before, after = (model(**_inputs(collate([[one, second, third]]))).logits[0] for one in (first, changed))
    border = len(first.ids)
    assert not torch.equal(before[:border], after[:border])
    assert torch.equal(before[border:], after[border:])


class Recurrent(torch.nn.Module):
    """A model that sees everything before a token, whatever the positions say."""

    def __init__(self) -> None:
        super().__init__()
        self.config, self.embedding = SimpleNamespace(vocab_size=16), torch.nn.Embedding(16, 4)

    def forward(self, input_ids: Any, **_: Any) -> Any:
        return SimpleNamespace(logits=self.embedding(input_ids).cumsum(1))


def test_an_architecture_that_mixes_examples_is_found_by_trying(model):
    assert mixes_examples(Recurrent())
    assert not mixes_examples(model.train()) and model.training


def test_packed_and_padded_learn_the_same(model):
    model.train()
    examples = _examples()
    rows = [[examples[number] for number in row] for row in pack([len(example.ids) for example in examples], ROW)]
    padded = Collator(pad_id=2, row_length=ROW)([[example] for example in examples])
    losses = []
    for batch in (
        padded,
        Collator(pad_id=2, row_length=ROW, packing=True)(rows),
        Collator(pad_id=2, row_length=ROW, packing=True, flat=True)(rows),
    ):
        losses.append(model(**_inputs(batch), num_items_in_batch=batch[COUNTS].learnt).loss.item())
        assert batch[COUNTS].real == sum(len(example.ids) for example in examples)
        assert batch[COUNTS].learnt == padded[COUNTS].learnt == sum(len(example.ids) - 1 for example in examples)
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)


def test_one_row_a_batch_has_no_padding_and_neither_have_flat_rows():
    examples = _examples()
    one = Collator(pad_id=2, row_length=ROW, packing=True)([examples[:2]])
    assert one["input_ids"].shape == (1, 37) and one[COUNTS].computed == one[COUNTS].real
    flat = Collator(pad_id=2, row_length=ROW, packing=True, flat=True)([examples[:2], examples[2:4]])
    assert flat["input_ids"].shape == (1, 78) and flat[COUNTS].computed == flat[COUNTS].real
    static = Collator(pad_id=2, row_length=ROW, packing=True, static=True)([examples[:2], examples[2:4]])
    assert static["input_ids"].shape == (2, ROW)


def test_the_end_is_learnt_though_it_is_the_padding_token_too_and_a_prompt_only_where_requested():
    example = Example(0, [1, 5, 6, 7, 2], 3)
    batch = Collator(pad_id=2, row_length=8)([[example]])
    assert batch["labels"].tolist() == [[IGNORED, 5, 6, 7, 2, IGNORED, IGNORED, IGNORED]]
    assert batch["attention_mask"].sum() == 5
    assert labels_of(example, "response") == [IGNORED] * 3 + [7, 2]
