from __future__ import annotations

import pytest

from seatrial.machine.secrets import mask


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
