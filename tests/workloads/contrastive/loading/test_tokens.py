"""Words to numbers."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from seatrial_workloads.contrastive.loading.tokens import load_tokenizer, small_tokenizer, tokenise, vocabulary  # noqa: E402

TEXT = "THE LITTLE BOAT'S KEEPER WENT DOWN TO THE HARBOUR AT NIGHT"


def words_of(tokenizer, ids) -> list[str]:
    return tokenizer.convert_ids_to_tokens(ids)


def test_the_small_vocabulary_starts_with_the_special_tokens_and_has_no_piece_twice(tokenizer):
    assert (tokenizer.pad_token_id, tokenizer.convert_ids_to_tokens(0)) == (0, "[PAD]")
    pieces = vocabulary()
    assert pieces[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert len(set(pieces)) == len(pieces) == len(tokenizer)
    # It fits where BERT's own would be.
    assert len(tokenizer) < 30_522
    ids = {"pad", "unk", "cls", "sep", "mask"}
    assert all(getattr(tokenizer, f"{name}_token_id") < 5 for name in ids)


def test_a_row_is_cls_words_sep_and_padding(tokenizer):
    token_ids, token_mask = tokenise(tokenizer, ["THE SEA", TEXT])
    assert words_of(tokenizer, token_ids[0][:5]) == ["[CLS]", "the", "sea", "[SEP]", "[PAD]"]
    assert token_mask[0].tolist() == [1] * 4 + [0] * (token_ids.shape[1] - 4)
    assert token_ids.dtype == token_mask.dtype == torch.int64
    assert token_ids.shape == token_mask.shape
    assert token_mask[1].sum() <= token_ids.shape[1] < token_mask[1].sum() + 8


def test_capitals_count_for_nothing(tokenizer):
    assert tokenise(tokenizer, [TEXT])[0].tolist() == tokenise(tokenizer, [TEXT.lower()])[0].tolist()


def test_nothing_of_letters_is_unknown(tokenizer):
    token_ids, _ = tokenise(tokenizer, ["ZYXW QQQQQ O'ER XX 1984 BRRR RHYTHM", TEXT])
    assert tokenizer.unk_token_id not in token_ids
    assert tokenizer.unk_token_id in tokenise(tokenizer, ["∀"])[0]


def test_a_text_has_about_as_many_tokens_as_words(tokenizer):
    """BERT's own vocabulary gives 1.2 tokens a word of such a text."""
    text = (
        "there was a garden behind the house with an old wall around it and every morning the children came down to look at the river "
        "while their father read the paper beside the window and said that nothing had changed since the winter"
    )
    num_tokens = int(tokenise(tokenizer, [text])[1].sum()) - 2
    assert num_tokens < 1.5 * len(text.split())


@pytest.mark.parametrize("length", [1, 5, 6, 7, 30, 100])
def test_widths_are_multiples_of_eight(tokenizer, length):
    token_ids, _ = tokenise(tokenizer, [" ".join(["sea"] * length)])
    assert token_ids.shape[1] % 8 == 0
    assert 0 <= token_ids.shape[1] - (length + 2) < 8


def test_a_text_too_long_for_the_encoder_is_cut(tokenizer):
    token_ids, token_mask = tokenise(tokenizer, ["sea " * 2000])
    assert token_ids.shape == (1, 512)
    assert words_of(tokenizer, token_ids[0][-1:]) == ["[SEP]"]
    assert token_mask.all()


def test_no_text_is_still_a_row(tokenizer):
    token_ids, token_mask = tokenise(tokenizer, ["", " "])
    assert [words_of(tokenizer, row[:3]) for row in token_ids] == [["[CLS]", "[SEP]", "[PAD]"]] * 2
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


def test_a_folder_brings_its_own(tokenizer, tmp_path: Path):
    tokenizer.save_pretrained(tmp_path / "bert")
    loaded = load_tokenizer(str(tmp_path / "bert"))
    assert tokenise(loaded, [TEXT])[0].tolist() == tokenise(tokenizer, [TEXT])[0].tolist()


def test_a_folder_with_the_vocabulary_alone_is_a_bert(tmp_path: Path):
    (tmp_path / "vocab.txt").write_text(
        "".join(f"{piece}\n" for piece in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "sea", "##s"))
    )
    transformers.BertConfig().save_pretrained(tmp_path)
    token_ids, _ = tokenise(load_tokenizer(str(tmp_path)), ["THE SEAS"])
    assert token_ids.tolist() == [[2, 5, 6, 7, 3, 0, 0, 0]]


@pytest.mark.parametrize("content", [None, "{}"])
def test_a_folder_without_one_is_refused_by_its_key(tmp_path: Path, monkeypatch, content):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "weights" / "bert" / "none"
    if content is not None:
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(content)
    with pytest.raises(ValueError, match=r"text_model '.*none' gives no tokenizer \(.*\): expected a folder .* or one of base, tiny"):
        load_tokenizer(str(folder))


def test_a_tokenizer_without_padding_is_refused(tmp_path: Path):
    bare = transformers.PreTrainedTokenizerFast(tokenizer_object=small_tokenizer().backend_tokenizer, unk_token="[UNK]")
    bare.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"has a tokenizer without \[PAD\] or \[CLS\]; expected a BERT"):
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


def test_who_wants_threads_may_keep_them(monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    with warnings.catch_warnings():
        load_tokenizer("base")
    assert os.environ["TOKENIZERS_PARALLELISM"] == "true"
