"""Transcripts as token ids."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial_workloads.contrastive.loading.tokens import load_tokenizer, small_tokenizer, tokenise, vocabulary

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


TEXT = "THE LITTLE BOAT'S KEEPER WENT DOWN TO THE HARBOUR AT NIGHT"


def test_the_built_in_vocabulary_starts_with_the_special_tokens_and_has_no_duplicates(tokenizer):
    pieces = vocabulary()
    assert pieces[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert [getattr(tokenizer, f"{name}_token_id") for name in ("pad", "unk", "cls", "sep", "mask")] == [0, 1, 2, 3, 4]
    # No more than BERT's own.
    assert len(set(pieces)) == len(pieces) == len(tokenizer) < 30_522


def test_a_row_is_cls_words_sep_and_padding(tokenizer):
    token_ids, token_mask = tokenise(tokenizer, ["THE SEA", TEXT])
    assert tokenizer.convert_ids_to_tokens(token_ids[0][:5]) == ["[CLS]", "the", "sea", "[SEP]", "[PAD]"]
    assert token_mask[0].tolist() == [1] * 4 + [0] * (token_ids.shape[1] - 4)
    assert token_ids.dtype == token_mask.dtype == torch.int64
    assert token_ids.shape == token_mask.shape
    assert token_mask[1].sum() <= token_ids.shape[1] < token_mask[1].sum() + 8


def test_case_is_ignored(tokenizer):
    assert tokenise(tokenizer, [TEXT])[0].tolist() == tokenise(tokenizer, [TEXT.lower()])[0].tolist()


def test_words_of_letters_and_digits_are_never_unknown(tokenizer):
    token_ids, _ = tokenise(tokenizer, ["ZYXW QQQQQ O'ER XX 1984 BRRR RHYTHM", TEXT])
    assert tokenizer.unk_token_id not in token_ids
    assert tokenizer.unk_token_id in tokenise(tokenizer, ["∀"])[0]


def test_a_text_has_at_most_1_5_tokens_a_word(tokenizer):
    """BERT's own vocabulary gives 1.2 tokens a word of such a text."""
    text = (
        "there was a garden behind the house with an old wall around it and every morning the children came down to look at the river "
        "while their father read the paper beside the window and said that nothing had changed since the winter"
    )
    num_tokens = int(tokenise(tokenizer, [text])[1].sum()) - 2
    assert num_tokens < 1.5 * len(text.split())


@pytest.mark.parametrize("length", [1, 6, 7, 100])
def test_widths_are_multiples_of_eight(tokenizer, length):
    token_ids, _ = tokenise(tokenizer, [" ".join(["sea"] * length)])
    assert token_ids.shape[1] % 8 == 0
    assert 0 <= token_ids.shape[1] - (length + 2) < 8


def test_a_long_text_is_truncated(tokenizer):
    token_ids, token_mask = tokenise(tokenizer, ["sea " * 2000])
    assert token_ids.shape == (1, 512)
    assert tokenizer.convert_ids_to_tokens(token_ids[0][-1:]) == ["[SEP]"]
    assert token_mask.all()


def test_an_empty_text_is_a_row(tokenizer):
    token_ids, token_mask = tokenise(tokenizer, ["", " "])
    assert [tokenizer.convert_ids_to_tokens(row[:3]) for row in token_ids] == [["[CLS]", "[SEP]", "[PAD]"]] * 2
    assert token_mask.sum(dim=1).tolist() == [2, 2]


def test_every_process_has_the_same_vocabulary():
    command = (
        "from seatrial_workloads.contrastive.loading.tokens import small_tokenizer\n"
        "t = small_tokenizer(); print(t('the harbour master')['input_ids'], len(t))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True, env=environment)
    own = small_tokenizer()
    assert done.stdout == f"{own('the harbour master')['input_ids']} {len(own)}\n"


def test_a_tokenizer_is_loaded_from_a_folder(tokenizer, tmp_path: Path):
    tokenizer.save_pretrained(tmp_path / "bert")
    loaded = load_tokenizer(str(tmp_path / "bert"))
    assert tokenise(loaded, [TEXT])[0].tolist() == tokenise(tokenizer, [TEXT])[0].tolist()


def test_a_vocabulary_alone_is_loaded_as_bert(tmp_path: Path):
    (tmp_path / "vocab.txt").write_text(
        "".join(f"{piece}\n" for piece in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "sea", "##s"))
    )
    transformers.BertConfig().save_pretrained(tmp_path)
    token_ids, _ = tokenise(load_tokenizer(str(tmp_path)), ["THE SEAS"])
    assert token_ids.tolist() == [[2, 5, 6, 7, 3, 0, 0, 0]]


@pytest.mark.parametrize("content", [None, "{}"])
def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path, monkeypatch, content):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "weights" / "bert" / "none"
    if content is not None:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"text_model '.*none' has no tokenizer"):
        load_tokenizer(str(folder))


def test_a_tokenizer_without_padding_is_refused(tmp_path: Path):
    bare = transformers.PreTrainedTokenizerFast(tokenizer_object=small_tokenizer().backend_tokenizer, unk_token="[UNK]")
    bare.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"without \[PAD\] or \[CLS\]"):
        load_tokenizer(str(tmp_path))


def test_a_fork_after_use_neither_warns_nor_hangs():
    """tokenizers warns on stderr, past Python's own warnings."""
    command = (
        "import os; from seatrial_workloads.contrastive.loading.tokens import load_tokenizer, tokenise\n"
        "t = load_tokenizer('tiny'); tokenise(t, ['a sea'] * 50); pid = os.fork()\n"
        "tokenise(t, ['a sea'] * 50)\n"
        "os._exit(0) if pid == 0 else os._exit(os.waitpid(pid, 0)[1])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=False, env=environment, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_users_choice_of_threads_is_kept(monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    load_tokenizer("base")
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"
