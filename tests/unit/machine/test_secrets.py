from __future__ import annotations

import pytest

from seatrial.machine.secrets import mask, mask_text, mask_words


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "WANDB_API_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "DB_PASSWORD",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "hf_token",
        "MYTOKEN",
        "KEY_FILE",
    ],
)
def test_value_of_a_secret_name_is_hidden(name: str) -> None:
    assert mask(name, "anything at all") == "***"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MAX_TOKENS", "2048"),
        ("NCCL_SOCKET_IFNAME", "eth0"),
        ("HF_HOME", "/data/disk-0123456789abcdef"),
        ("HTTP_PROXY", "http://proxy:3128"),
        ("HF_TOKEN", ""),
    ],
)
def test_settings_stay_readable(name: str, value: str) -> None:
    assert mask(name, value) == value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://me:hunter2@proxy:3128/x", "http://me:***@proxy:3128/x"),
        ("postgresql+psycopg://u:p%40ss@db/name", "postgresql+psycopg://u:***@db/name"),
        ("hf_abcdefghijklmnop", "hf_***"),
        ("--auth ghp_0123456789abcdef now", "--auth ghp_*** now"),
        ("sk-proj-0123456789abcdef", "sk-***"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIA***"),
    ],
)
def test_secret_inside_a_value_is_hidden_and_the_rest_stays(value: str, shown: str) -> None:
    assert mask("EXTRA", value) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train.py --hf_token abc --bs 8", "train.py --hf_token *** --bs 8"),
        ("train.py --api-key=abc --bs 8", "train.py --api-key=*** --bs 8"),
        ("HF_TOKEN=abc python train.py", "HF_TOKEN=*** python train.py"),
        ("env A=1 WANDB_API_KEY='a b' python", "env A=1 WANDB_API_KEY=*** python"),
        ("python t.py --password 'it'\"'\"'s' x", "python t.py --password *** x"),
        ("python t.py hub.token=abc", "python t.py hub.token=***"),
        ("-token abc --passphrase 'unclosed word", "-token *** --passphrase *** word"),
        ("--client-secret-value abc", "--client-secret-value ***"),
        ("--use_auth_token --bs 8", "--use_auth_token --bs 8"),
        ("train.py --hf_token", "train.py --hf_token"),
    ],
)
def test_value_of_an_option_or_a_name_that_looks_secret_is_hidden(text: str, shown: str) -> None:
    assert mask_text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "--max_tokens 2048",
        "--tokenizer gpt2",
        "--key_dim 64",
        "model.token_dropout=0.1",
        "--pad_token 0",
        "eos-token=</s>",
        "--loss-per-token 1",
    ],
)
def test_settings_of_a_command_stay_readable(text: str) -> None:
    assert mask_text(text) == text
    assert mask_words(text.split()) == text.split()


def test_words_are_masked_one_by_one() -> None:
    words = ["HF_TOKEN=a", "python", "t.py", "--hf_token", "b c", "--api-key=d", "--use-auth-token", "--bs", "8", "--token", ""]
    shown = ["HF_TOKEN=***", "python", "t.py", "--hf_token", "***", "--api-key=***", "--use-auth-token", "--bs", "8", "--token", ""]
    assert mask_words(words) == shown
    assert mask_words(["bash", "-c", "HF_TOKEN=abc python t.py"]) == ["bash", "-c", "HF_TOKEN=*** python t.py"]
    assert mask_words([]) == []
