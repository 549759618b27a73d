"""From examples to token ids: the prompt, where the response begins and ends, every kind of source, the key of what is stored."""

from __future__ import annotations

import dataclasses
import json

import pytest

from tests.facts import states

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("torch")
pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

from seatrial_workloads.common.errors import StartupError  # noqa: E402
from seatrial_workloads.sft.dataset import Rows, encode, prepared_rows  # noqa: E402
from seatrial_workloads.sft.metrics import Window, mfu_fields, peak_tflops, scaling_efficiency  # noqa: E402
from seatrial_workloads.sft.model import build_tokenizer  # noqa: E402
from seatrial_workloads.sft.settings import Settings  # noqa: E402
from seatrial_workloads.sft.shapes import MISTRAL_7B  # noqa: E402
from seatrial_workloads.sft.sources import dataset_problem, split_note  # noqa: E402
from seatrial_workloads.sft.text import generated_examples, prompt_of  # noqa: E402

EXAMPLE = {"instruction": "Add.", "input": "1 2", "output": "3"}


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(Settings())


def test_the_prompt_is_the_seeds_and_leaves_out_an_empty_input():
    assert prompt_of(EXAMPLE) + EXAMPLE["output"] == "### Instruction:\nAdd.\n\n### Input:\n1 2\n\n### Response:\n3"
    assert prompt_of({**EXAMPLE, "input": ""}) == "### Instruction:\nAdd.\n\n### Response:\n"


def test_an_example_ends_with_the_end_unless_it_was_cut_or_the_recipe_is_the_seeds(tokenizer):
    ids, prompt_length = encode(EXAMPLE, Settings(), tokenizer)
    assert ids[0] == tokenizer.bos_token_id and ids[-1] == tokenizer.eos_token_id
    assert tokenizer.decode(ids[1:prompt_length]) == prompt_of(EXAMPLE)
    assert tokenizer.decode(ids[prompt_length:-1]) == "3"
    assert encode(EXAMPLE, Settings(recipe="seed"), tokenizer)[0] == ids[:-1]
    assert encode(EXAMPLE, Settings(append_eos=False), tokenizer)[0] == ids[:-1]
    assert encode(EXAMPLE, Settings(seq_len=10), tokenizer) == (ids[:10], 10)


def _ids(rows: Rows) -> list[list[int]]:
    return [list(example.ids) for example in rows.examples]


def test_every_kind_of_local_dataset_gives_the_same_rows(tmp_path, tokenizer, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    examples = list(generated_examples(5, seed=42))
    saved = datasets.Dataset.from_list(examples)
    (tmp_path / "a.json").write_text(json.dumps(examples))
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "b.jsonl").write_text("\n".join(map(json.dumps, examples)))
    saved.to_parquet(tmp_path / "c.parquet")
    saved.save_to_disk(tmp_path / "saved")
    base = Settings(subset_size=4, tok_cache_dir=str(tmp_path / "tokenized"))
    expected = _ids(prepared_rows(base, tokenizer))
    for name in ("a.json", "folder", "c.parquet", "saved"):
        assert _ids(prepared_rows(dataclasses.replace(base, dataset=str(tmp_path / name)), tokenizer)) == expected, name


def test_another_content_has_another_folder_and_the_same_content_none(tmp_path, tokenizer):
    source, base = tmp_path / "a.json", Settings(dataset=str(tmp_path / "a.json"), tok_cache_dir=str(tmp_path / "tokenized"))
    source.write_text(json.dumps([EXAMPLE] * 3))
    changes = [{}, {}, {"subset_size": 2}, {"seq_len": 64}, {"append_eos": False}, {"packing": True}, {"loss_on": "response"}]
    for change in changes:
        prepared_rows(dataclasses.replace(base, **change), tokenizer)
    source.write_text(json.dumps([EXAMPLE, {**EXAMPLE, "output": "4"}, EXAMPLE]))
    prepared_rows(base, tokenizer)
    folders = list((tmp_path / "tokenized").iterdir())
    # The second is the first; so is the last but one, since the loss is chosen when a batch is built.
    assert len(folders) == len(changes) - 2 + 1
    assert all("_L" in folder.name and "_N" in folder.name for folder in folders)


def test_packed_rows_are_stored_and_are_fewer(tmp_path, tokenizer):
    base = Settings(subset_size=64, seq_len=256, tok_cache_dir=str(tmp_path))
    padded, packed = (prepared_rows(dataclasses.replace(base, packing=packing), tokenizer) for packing in (False, True))
    assert len(packed) < len(padded) == 64
    assert sorted(example.number for index in range(len(packed)) for example in packed[index]) == list(range(64))


def _lines(*examples: object) -> bytes:
    return "\n".join(json.dumps(example, ensure_ascii=False) for example in examples).encode()


LATIN = "é".encode("latin-1")
BAD_DATA: dict[str, tuple[str, bytes, str]] = {
    "no field": ("a.json", json.dumps([EXAMPLE, {"prompt": "x", "output": "y"}]).encode(), "a.json, example 2 has no field 'instruction'"),
    "null output": ("a.jsonl", _lines(EXAMPLE, {**EXAMPLE, "output": None}), "a.jsonl, line 2 has output null: expected text"),
    "null instruction": ("a.json", json.dumps([{**EXAMPLE, "instruction": None}]).encode(), "example 1 has instruction null"),
    "a list": ("a.jsonl", _lines({**EXAMPLE, "output": ["3"]}), 'line 1 has output ["3"]'),
    "another encoding": ("a.jsonl", _lines(EXAMPLE) + b'\n{"output": "' + LATIN + b'"}', "line 2 is not UTF-8 (byte 0xe9)"),
    "numbers": ("a.json", b"[1, 2, 3]", "a.json, example 1 is 1: expected an object with instruction, input, output"),
    "an object": ("a.json", b'{"data": []}', "a.json holds a JSON dict: expected a list"),
    "no JSON": ("a.jsonl", _lines(EXAMPLE, EXAMPLE) + b"\n{oops", "a.jsonl, line 3 is not JSON"),
    "lines in a .json": ("a.json", _lines(EXAMPLE, EXAMPLE), "a.json, line 2 is not JSON (Extra data)"),
    "no Parquet": ("a.parquet", b"PAR1xxxx", "a.parquet is not a readable Parquet file"),
    "nothing": ("a.json", b"[]", "has no examples"),
    "no train split": ("test.jsonl", _lines(EXAMPLE), "has files of test and none of train"),
}


@pytest.mark.parametrize("what", BAD_DATA)
def test_data_that_cannot_be_used_is_one_sentence_with_its_place(what, tmp_path, tokenizer):
    name, content, sentence = BAD_DATA[what]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / name).write_bytes(content)
    settings = Settings(dataset=str(tmp_path / "data"), tok_cache_dir=str(tmp_path / "t"))
    problem = dataset_problem(settings.dataset, tmp_path)
    if problem is None:
        with pytest.raises(StartupError) as refused:
            prepared_rows(settings, tokenizer)
        problem = str(refused.value)
        assert not list((tmp_path / "t").iterdir())
    assert sentence in problem and "\n" not in problem


@pytest.mark.parametrize("output", ["a\u2028b", "a\u0085b", "a\x0cb"])
def test_only_a_line_feed_ends_a_line(output, tmp_path, tokenizer):
    (tmp_path / "a.jsonl").write_bytes(
        b"\xef\xbb\xbf" + _lines({**EXAMPLE, "output": output}, {**EXAMPLE, "input": None}).replace(b"\n", b"\r\n")
    )
    rows = prepared_rows(Settings(dataset=str(tmp_path / "a.jsonl"), tok_cache_dir=str(tmp_path / "t")), tokenizer)
    assert len(rows) == 2 and output in tokenizer.decode(rows.examples[0].ids)


def test_of_a_folder_with_splits_only_the_train_split_is_read_and_that_is_said(tmp_path, tokenizer):
    folder = tmp_path / "data"
    folder.mkdir()
    for number, name in enumerate(("train-0.jsonl", "train-1.jsonl", "test.jsonl"), 1):
        (folder / name).write_bytes(_lines(*[EXAMPLE] * number))
    rows = prepared_rows(Settings(dataset=str(folder), tok_cache_dir=str(tmp_path / "t")), tokenizer)
    assert len(rows.examples) == 3
    note = split_note("data", tmp_path)
    assert states(note, "data", "train-0.jsonl, train-1.jsonl", "left out", "test.jsonl")
    (folder / "test.jsonl").unlink()
    assert split_note("data", tmp_path) is None


def _window(seconds: float) -> Window:
    return Window(steps=8, seconds=seconds, real_tokens=100_000, computed_tokens=100_000, learnt_tokens=1, attended_tokens=100_000 * 256)


def test_mfu_is_below_one_of_known_hardware_and_none_else():
    options = {"lora_rank": 8, "world_size": 1, "precision": "bf16"}
    known = mfu_fields(MISTRAL_7B, _window(10.0), gpu="NVIDIA H100 80GB HBM3", **options)
    assert known["mfu"] == pytest.approx(known["model_tflops"] / 989.4) and 0.28 < known["mfu"] < 0.31
    too_fast = mfu_fields(MISTRAL_7B, _window(1.0), gpu="NVIDIA H200", **options)
    assert too_fast["mfu"] is None and "above the datasheet's" in too_fast["mfu_reason"]
    assert mfu_fields(MISTRAL_7B, _window(10.0), gpu="NVIDIA H200", **{**options, "precision": "fp32"})["mfu"] is None
    unknown = mfu_fields(None, _window(10.0), gpu="NVIDIA H200", no_shape="model_type is 'gpt2'", **options)
    assert (unknown["mfu"], unknown["model_tflops"]) == (None, None) and "gpt2" in unknown["mfu_reason"]


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA H100 PCIe", 756.0),
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H200", 989.4),
        ("NVIDIA H200 NVL", 835.5),
        ("NVIDIA L40S", 362.05),
        ("NVIDIA GH200 480GB", 989.4),
        ("A100-SXM4-40GB", 312.0),
        ("NVIDIA RTX A4000", None),
        ("NVIDIA RTX A400", None),
        ("NVIDIA RTX A1000 Laptop GPU", None),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", None),
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", None),
        ("Some GPU", None),
        (None, None),
    ],
)
def test_a_peak_belongs_to_a_product_by_its_whole_name(name, peak):
    found, reason = peak_tflops(name, "bf16")
    assert found == peak and bool(reason) == (peak is None)
    assert reason is None or (name or "CPU") in reason


def test_scaling_is_tokens_per_rank_relative_to_the_baseline():
    settings = Settings(baseline_tokens_per_s=1000.0, baseline_world_size=8)
    assert scaling_efficiency(settings, 1800.0, 16) == pytest.approx(0.9)
    assert scaling_efficiency(Settings(), 1800.0, 16) is None
