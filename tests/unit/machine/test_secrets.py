"""Masking secrets by name, by format and by value."""

from __future__ import annotations

import base64
import json

import pytest

from seatrial.machine.secrets import (
    collect_secrets,
    is_ordinary_value,
    is_secret_name,
    is_secret_option,
    is_secret_parameter,
    mask,
    mask_argv,
    mask_lines,
    mask_text,
)

DIGITS = "0123456789abcdefghijABCDEFGHIJ0123456789"
SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
UUID = "123e4567-e89b-12d3-a456-426614174000"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nq1w2e3r4t5y6u7i8\n-----END RSA PRIVATE KEY-----"


def t(prefix: str, length: int) -> str:
    """A token of a service's format, put together here so that no scanner reports this file."""
    return prefix + (DIGITS * 3)[:length]


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN", "hf_token", "MYTOKEN", "TOKEN", "GITHUB_TOKEN_2", "ACTIONS_ID_TOKEN", "NPM_AUTH_TOKEN", "accessToken", "hub.token",
        "WANDB_API_KEY", "OPENAI_API_KEY", "OPENAI_APIKEY", "ANTHROPIC_API_KEY", "apiKey", "API_KEYS", "KEY", "KEY_FILE", "SSH_KEY_PATH",
        "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY", "AccountKey", "SharedAccessKey",
        "PRIVATE_KEY", "DB_PASSWORD", "PGPASSWORD", "MYSQL_PWD", "SMTP_PASS", "REDIS_PASS", "RSYNC_PASSWD", "GPG_PASSPHRASE",
        "GOOGLE_APPLICATION_CREDENTIALS", "CLIENT_SECRET", "SECRET_VALUE", "HTTP_BASIC_AUTH", "GITHUB_PAT", "AZURE_DEVOPS_EXT_PAT",
        "MLFLOW_TRACKING_PASSWORD", "SESSION_COOKIE", "SERVICE_JWT", "GH_PAT", "basic_auth", "session-cookie", "ACCESS_TOKENS",
        "private-key", "Authorization", "MY_PW", "DB_PW", "PW", "SSHPASS", "PGPASS", "MYSQLPASS", "BINDPW", "ROOTPW", "DOCKER_AUTH_CONFIG",
        "GITLAB_SESSION", "app.session", "COOKIE", "COOKIES", "COOKIE_JAR", "COOKIEFILE", "COOKIE_SECRET",
    ],
)  # fmt: skip
def test_value_of_a_secret_name_is_masked(name: str) -> None:
    assert is_secret_name(name) and is_secret_option(name) and is_secret_parameter(name)
    assert mask(name, "anything at all") == "***"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false"),
        ("MAX_TOKENS", "2048"),
        ("KEY_DIM", "64"),
        ("PAD_TOKEN", "<pad>"),
        ("IMAGE_KEY", "jpg"),
        ("MONKEY", "see"),
        ("FORWARD_PASS", "fused"),
        ("PWD", "/home/me/work"),
        ("PGPASSFILE", "/home/me/.pgpass"),
        ("SESSION_NAME", "training"),
        ("COOKIECUTTER_CONFIG", "x.yaml"),
        ("BYPASS", "checks"),
        ("COMPASS", "north"),
        ("NUM_PW_LAYERS", "pointwise"),
        ("OLDPWD", "/home/me"),
        ("SSH_AUTH_SOCK", "/tmp/ssh/agent.1"),
        ("HF_HOME", "/data/disk-0123456789abcdef"),
        ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"),
        ("HTTP_PROXY", "http://proxy:3128"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:512"),
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
        ("postgresql://u:p@ss@db/name", "postgresql://u:***@db/name"),
        ("postgres://u:p@h:5432/db and redis://:q@r", "postgres://u:***@h:5432/db and redis://:***@r"),
        ("amqp://u:pa/ss@mq:5672/v", "amqp://u:***@mq:5672/v"),
        ("redis://:hunter2@cache:6379/0", "redis://:***@cache:6379/0"),
        ("mongodb://u:p@h1:27017,h2:27017/db", "mongodb://u:***@h1:27017,h2:27017/db"),
        (f"https://{t('x', 39)}@git.example.org/a", "https://***@git.example.org/a"),
        (f"git+https://{t('ghp_', 36)}@github.com/a/b", "git+https://***@github.com/a/b"),
        ("https://h/api?token=hunter2&page=2", "https://h/api?token=***&page=2"),
        ("https://h/v1?key=hunter2#top", "https://h/v1?key=***"),
        ("https://a.blob.core.windows.net/c?sv=2024&sig=aB%2Fc%3D&se=1", "https://a.blob.core.windows.net/c?sv=2024&sig=***&se=1"),
        (
            "https://b.s3/x?X-Amz-Credential=AK%2F1&X-Amz-Date=2&X-Amz-Security-Token=Fw&X-Amz-Signature=9f",
            "https://b.s3/x?X-Amz-Credential=***&X-Amz-Date=2&X-Amz-Security-Token=***&X-Amz-Signature=***",
        ),
        ("Server=h,1433;Database=d;User Id=u;Password=p@w;Encrypt=yes", "Server=h,1433;Database=d;User Id=u;Password=***;Encrypt=yes"),
        ("Driver={ODBC};Server=h;Uid=u;Pwd=hunter2;", "Driver={ODBC};Server=h;Uid=u;Pwd=***;"),
        (
            "Endpoint=sb://n/;SharedAccessKeyName=root;SharedAccessKey=aB/c=",
            "Endpoint=sb://n/;SharedAccessKeyName=root;SharedAccessKey=***",
        ),
        ("AccountName=a;AccountKey=aB+/c==;EndpointSuffix=core", "AccountName=a;AccountKey=***;EndpointSuffix=core"),
    ],
)
def test_secret_in_a_url_is_masked_and_the_rest_stays(value: str, shown: str) -> None:
    assert mask("EXTRA", value) == shown


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (t("hf_", 34), "hf_***"),
        (t("api_org_", 34), "api_org_***"),
        ("sk-proj-0123456789abcdef", "sk-***"),
        (t("sk-ant-api03-", 60), "sk-***"),
        (t("sk_live_", 24), "sk_live_***"),
        (t("gsk_", 40), "gsk_***"),
        (t("nvapi-", 40), "nvapi-***"),
        (t("ghp_", 36), "ghp_***"),
        (t("github_pat_", 60), "github_pat_***"),
        (t("glpat-", 20), "glpat-***"),
        (t("npm_", 36), "npm_***"),
        (t("pypi-AgEIcHlwaS5vcmc", 60), "pypi-***"),
        ("AKIAIOSFODNN7EXAMPLE", "AKIA***"),
        (t("AIza", 35), "AIza***"),
        (t("ya29.", 60), "ya29.***"),
        (t("GOCSPX-", 28), "GOCSPX-***"),
        (t("xoxb-123-456-", 24), "xoxb-***"),
        (t("xapp-1-", 40), "xapp-***"),
        (t("wandb_v1_", 60), "wandb_v1_***"),
        ("local-" + "0123456789" * 4, "local-***"),
        ("dapi" + "0123456789abcdef" * 2, "dapi***"),
        (t("SG.", 22) + "." + DIGITS, "SG.***"),
        (t("hvs.", 60), "hvs.***"),
        ("https://hooks.slack.com/services/T0/B0/abcDEF012", "https://hooks.slack.com/services/***"),
        ("https://discord.com/api/webhooks/12345/ab-CD_01", "https://discord.com/api/webhooks/12345/***"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl", "eyJ***"),
        ("Bearer abcDEF0123456789", "Bearer ***"),
        (PEM, "-----BEGIN RSA PRIVATE KEY-----***"),
        (PEM.replace("\n", "\\n"), "-----BEGIN RSA PRIVATE KEY-----***"),
    ],
)
def test_token_of_a_known_format_is_masked_everywhere(token: str, shown: str) -> None:
    assert mask("EXTRA", token) == shown
    assert mask_text(f"fetch failed for {token} (401)") == f"fetch failed for {shown} (401)"
    assert mask_argv(["train.py", "--extra", token]) == ["train.py", "--extra", shown]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("train.py --hf_token abc --bs 8", "train.py --hf_token *** --bs 8"),
        ("train.py --api-key=abc --bs 8", "train.py --api-key=*** --bs 8"),
        ("train.py --password=p,w;x --bs 8", "train.py --password=*** --bs 8"),
        ("train.py --password 12345 --bs 8", "train.py --password *** --bs 8"),
        ("train.py --key abc --pass def", "train.py --key *** --pass ***"),
        ("docker run --env=HF_TOKEN=abc image", "docker run --env=HF_TOKEN=*** image"),
        ("HF_TOKEN=abc python train.py", "HF_TOKEN=*** python train.py"),
        ("env A=1 WANDB_API_KEY='a b' python", "env A=1 WANDB_API_KEY=*** python"),
        ("python t.py --password 'it'\"'\"'s' x", "python t.py --password *** x"),
        ("python t.py hub.token=abc +logger.api_key=def", "python t.py hub.token=*** +logger.api_key=***"),
        ("-token abc --passphrase 'unclosed word", "-token *** --passphrase *** word"),
        ("--use_auth_token --bs 8", "--use_auth_token --bs 8"),
        ("train.py --hf_token", "train.py --hf_token"),
        ("curl -u me:hunter2 https://h", "curl -u me:*** https://h"),
        ('curl -H "Authorization: Bearer abc" -H "Accept: x" https://h', 'curl -H "Authorization: Bearer ***" -H "Accept: x" https://h'),
        ("curl -H 'X-Api-Key: abc' -H 'PRIVATE-TOKEN: def' h", "curl -H 'X-Api-Key: ***' -H 'PRIVATE-TOKEN: ***' h"),
        ("{'Authorization': 'Bearer abc', 'Accept': 'x'}", "{'Authorization': '***', 'Accept': 'x'}"),
        ("Namespace(bs=8, hf_token='abc', lr=0.1)", "Namespace(bs=8, hf_token=***, lr=0.1)"),
        ("{'db': {'password': 'abc', 'port': 1}}", "{'db': {'password': '***', 'port': 1}}"),
        ("  password: hunter2", "  password: ***"),
        ("api_key = abc", "api_key = ***"),
        (f"token: {DIGITS}", "token: ***"),
        ('wandb: {\\"api_key\\": \\"abc\\", \\"x\\": 1}', 'wandb: {\\"api_key\\": ***", \\"x\\": 1}'),
    ],
)
def test_value_of_a_secret_option_or_name_is_masked(text: str, shown: str) -> None:
    assert mask_text(text) == mask_text(shown) == shown


LOOK_ALIKES = [
    *("--max_tokens 2048", "--max-new-tokens=128", "--tokenizer gpt2", "--key-dim 64", "--num-key-value-heads=8", "--pad_token 0"),
    *("model.token_dropout=0.1", "eos-token=</s>", "--loss-per-token 1", "--image-key jpg", "--monkey see", "--keyboard us", "--hotkey=q"),
    *("--use_auth_token=True", "--bypass yes", "--passes 3", "--forward_pass fused", "--public-key abc", "sorted(names,key=len)", "pass=3"),
    *(f"--checkpoint sha256:{SHA256}", f"--revision {SHA256[:40]}", f"--run-id {UUID}", f"GPU-{UUID}", f"thf_{DIGITS}"),
    *("/data/keys/train/token_shards/part-0001.bin", "s3://bucket/date=2024-01-01/key=7/x", "http://host:8080/path@v2"),
    *("https://user@host/x", "git@github.com:org/repo.git", "ssh://git@host:22/x", "rdzv-endpoint=node1:29500"),
    *("python -u train.py", "docker -u 1000:1000", "hf_trainer_callback", "sk-learn-pipeline-config-file", "pypi-mirror"),
    *("task-0123456789abcdef0123", "NCCL_DEBUG=INFO", "C:\\Users\\me", "KeyError: 'model.embed_tokens.weight'", "Bearer of bad news"),
    *("json.decoder.JSONDecodeError: Unexpected token: }", "Missing key: lm_head.weight", "tokens: 1024, pad_token: [PAD]"),
    *("GPT2TokenizerFast(name_or_path='gpt2', bos_token='<s>')", "step 10: loss=2.31 token_acc=0.5 key_norm=1.2"),
]


@pytest.mark.parametrize("text", LOOK_ALIKES)
def test_settings_of_a_command_stay_readable(text: str) -> None:
    assert mask_text(text) == text
    assert mask_argv(text.split()) == text.split()


def test_json_stays_json() -> None:
    shown = mask_text(json.dumps({"api_key": "abc", "hub": {"token": "d e f"}, "bs": 8}))
    assert json.loads(shown) == {"api_key": "***", "hub": {"token": "***"}, "bs": 8}


def test_arguments_are_masked_one_by_one() -> None:
    argv = ["HF_TOKEN=a", "python", "t.py", "--hf_token", "b c", "--api-key=d", "--use-auth-token", "--bs", "8", "--token", ""]
    shown = ["HF_TOKEN=***", "python", "t.py", "--hf_token", "***", "--api-key=***", "--use-auth-token", "--bs", "8", "--token", ""]
    assert mask_argv(argv) == shown
    assert mask_argv(["bash", "-c", "HF_TOKEN=abc python t.py"]) == ["bash", "-c", "HF_TOKEN=*** python t.py"]
    assert mask_argv(["curl", "-u", "me:hunter2"]) == ["curl", "-u", "me:***"]
    assert mask_argv([]) == []


def test_private_key_over_several_lines_of_a_log() -> None:
    lines = ["before", *PEM.split("\n"), "after"]
    assert mask_lines(lines) == ("before", "-----BEGIN RSA PRIVATE KEY-----***", "after")
    assert mask_lines(lines[3:]) == ("***-----END RSA PRIVATE KEY-----", "after"), "the tail of a log may begin inside it"
    assert mask_lines(lines[:3]) == ("before", "-----BEGIN RSA PRIVATE KEY-----***")
    assert mask_lines([]) == ()


def test_known_secrets_are_masked_under_any_name() -> None:
    known = collect_secrets(
        {"HF_TOKEN": "correct-horse", "DB_PASSWORD": "correct-horse-battery", "BS": "correct", "X_TOKEN": "1", "Y_KEY": "dev"},
        ["t.py", "--api-key", "staple-of-gold", "--token", "--bs", "8"],
    )
    assert known == ("correct-horse", "correct-horse-battery", "staple-of-gold")
    text = "401 for correct-horse-battery, then correct-horse; staple-of-gold is no user"
    assert mask_text(text, known) == "401 for ***, then ***; *** is no user"


def test_names_that_are_secret_only_as_an_option_or_in_a_url() -> None:
    assert [name for name in ("key", "pass", "pwd", "bypass", "publickey", "PWDX", "label_key", "") if is_secret_name(name)] == []
    assert all(is_secret_option(name) and is_secret_parameter(name) for name in ("key", "pass", "auth", "KEY"))
    in_url = ("sig", "signature", "pwd", "X-Amz-Signature", "X-Goog-Signature")
    assert all(is_secret_parameter(name) and not is_secret_option(name) for name in in_url)


@pytest.mark.parametrize(("value", "ordinary"), [("OFF", True), ("123456", True), ("0.5", True), ("", False), ("1234567", False)])
def test_a_switch_or_a_count_is_no_secret_but_a_password_may_be_a_number(value: str, ordinary: bool) -> None:
    assert is_ordinary_value("use_token", value) is ordinary and not is_ordinary_value("db_password", value)


PASSWORD_OPTIONS = (
    ("sshpass -p hunter ssh me@host", "sshpass -p *** ssh me@host"),
    ("sshpass -p 12345 ssh -p 2222 me@host", "sshpass -p *** ssh -p 2222 me@host"),
    ("mysql -u root -phunter db", "mysql -u root -p*** db"),
    ("docker login -u me -p secretword registry", "docker login -u me -p *** registry"),
    ("./upload -p hunter-22x", "./upload -p ***"),
    ("['./upload', '-p', 'hunter22']", "['./upload', '-p', '***']"),
)
OTHER_OPTIONS = (
    "mkdir -p outputs2", "mkdir -p a/b", "cp -p file1 file2", "ssh -p 2222 host1", "docker run -p 8080:80 image", "-p 127.0.0.1:80:80",
    "serve -p 8080", "train.py -p 0.25", "train.py -p folder/run1", "train.py -p fp16=1", "pytest -p no:cacheprovider", "unzip -p archive",
    "grep -p pattern9", "run -p -x", "kill -pgid abc123",
)  # fmt: skip


@pytest.mark.parametrize(("text", "shown"), PASSWORD_OPTIONS)
def test_a_password_after_p_is_masked(text: str, shown: str) -> None:
    assert mask_text(text) == shown
    if "[" not in text:
        assert " ".join(mask_argv(text.split())) == shown


@pytest.mark.parametrize("text", OTHER_OPTIONS)
def test_other_values_of_p_stay(text: str) -> None:
    assert mask_text(text) == text
    assert mask_argv(text.split()) == text.split()


def test_credentials_of_headers_are_masked_and_words_are_not() -> None:
    basic = base64.b64encode(b"me:hunter-0001").decode()
    assert mask_text(f"sent Basic {basic} to x") == "sent Basic *** to x"
    assert mask_text(f'{{"Authorization": "Basic {basic}"}}') == '{"Authorization": "***"}'
    for words in ("Basic training went well", "Basic data1234", "basic understanding="):
        assert mask_text(words) == words
    assert mask_text("> Cookie: id=hunter; theme=dark\nnext") == "> Cookie: ***\nnext"
    assert mask_text("Set-Cookie: sid=hunter; Path=/") == "Set-Cookie: ***"
    assert mask_text('{"Cookie": "id=hunter; a=b", "x": 1}') == '{"Cookie": "***", "x": 1}'
    assert mask_text("the cookie jar is empty") == "the cookie jar is empty"


def test_a_password_after_p_is_known_wherever_it_reappears() -> None:
    assert collect_secrets({}, ["sshpass", "-p", "hunter-0001", "ssh", "-p", "2222", "host"]) == ("hunter-0001",)
