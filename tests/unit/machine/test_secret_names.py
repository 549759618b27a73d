"""Names that hold a secret, and the many that only look so."""

from __future__ import annotations

import pytest

from seatrial.machine.secret_names import is_ordinary_value, is_secret_name, is_secret_option, is_secret_parameter

SECRET = [
    *("WANDB_API_KEY", "HF_TOKEN", "hub.token", "AccountKey", "AWS_SECRET_ACCESS_KEY", "db_password", "PASSPHRASE", "GH_PAT"),
    *("SSH_KEY_PATH", "private-key", "api_keys", "ACCESS_TOKENS", "TOKEN_2", "SMTP_PASS", "basic_auth", "Authorization", "session-cookie"),
]
ORDINARY = [
    *("", "max_tokens", "TOKENIZERS_PARALLELISM", "pad_token", "eos-token", "tokens_per_step", "key-dim", "sort_key", "label_key"),
    *("monkey", "forward_pass", "num_pass", "bypass", "PATH", "key", "pass", "pwd", "keyboard", "cache_key", "publickey", "PWDX"),
]


@pytest.mark.parametrize("name", SECRET)
def test_a_secret_has_this_name(name: str) -> None:
    assert is_secret_name(name) and is_secret_option(name) and is_secret_parameter(name)


@pytest.mark.parametrize("name", ORDINARY)
def test_a_setting_has_this_name(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize("name", ["key", "pass", "auth", "KEY"])
def test_short_words_say_enough_as_an_option(name: str) -> None:
    assert is_secret_option(name) and is_secret_parameter(name)


@pytest.mark.parametrize("name", ["sig", "signature", "pwd", "X-Amz-Signature", "X-Goog-Signature"])
def test_and_some_only_inside_an_address(name: str) -> None:
    assert is_secret_parameter(name) and not is_secret_option(name)


@pytest.mark.parametrize("value", ["true", "OFF", "none", "auto", "3", "-1", "123456", "0.5"])
def test_a_switch_or_a_count_is_no_secret_but_a_password_may_be_a_number(value: str) -> None:
    assert is_ordinary_value("use_token", value) and not is_ordinary_value("db_password", value)


@pytest.mark.parametrize("value", ["", "abc", "1234567", "truely", "1e9"])
def test_anything_else_may_be_one(value: str) -> None:
    assert not is_ordinary_value("use_token", value)
