"""Settings that change the work of a sample or a step.

In: a group's settings, and those that its workload declares (`SAMPLE_SIZE` of a bundled workload's settings.py). Out: a `WorkSetting` for
each that changes the size of a sample (sequence length, slice length, image size) or the number of samples in a step (batch size). What is
not declared is known by its name. Ranking, comparison, criteria and scaling decide by these whether two groups do the same work.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache

from seatrial.records.measure import WorkSetting
from seatrial.records.plan import RunSpec

TOKENS, AUDIO, PIXELS = "tokens", "audio_s", "pixels"
SAMPLE_UNITS = (TOKENS, AUDIO, PIXELS)
"""Units of the size of a sample."""
SAMPLES = "samples"
"""Unit of the size of a step."""
# The first that matches, by the last part of names such as `env.SEQ_LEN` and `train.seq_len`. `mb` and `block_size` only at the start:
# `bucket_cap_mb` is memory, `kv_block_size` a page of a cache.
_NAMES = (
    (
        TOKENS,
        r"(?:max_?)?seq(?:uence)?_?len(?:gth)?|seq_?length|max_?len(?:gth)?|model_max_length|cutoff_len|(?<!_)block_?size|context_?size"
        r"|(?:max_)?context_?(?:len(?:gth)?|window)|ctx_?(?:len|size)|n_ctx|num_tokens_per_sample|tokens_per_sample"
        r"|(?:source|target|input|output|prompt|sample|pack|packing|chunk)_?len(?:gth)?|max_(?:new_)?tokens|max_?seq"
        r"|n_positions|max_position_embeddings",
    ),
    (
        AUDIO,
        r"slice_?(?:s|sec|seconds|len(?:gth)?)|(?:max_|min_)?audio_?(?:s|sec|seconds?|len(?:gth)?)|clip_?(?:s|sec|seconds|len(?:gth)?)"
        r"|segment_?(?:s|sec|seconds|len(?:gth)?|size)|(?:max|min|fixed)_slice_seconds|(?:sample|audio|clip|utterance|segment|crop|slice)_?duration",
    ),
    (
        PIXELS,
        r"(?:image|img|crop|input|patch|train)_?(?:size|res|resolution|height|width|h|w)|imgsz|resolution|(?:num_)?frames|num_?crops",
    ),
)
_PATTERNS = (
    *((unit, re.compile(rf"(?:^|_)(?:{names})(?:_|$)", re.IGNORECASE)) for unit, names in _NAMES),
    # At the end of a name or before `per_gpu`: `sync_batch_norm`, `batch_first` and the batch of an evaluation are something else.
    (
        SAMPLES,
        re.compile(
            r"^(?!(?:eval|val|test|prefetch|log)_)(?:\w+_)?(?:(?:m?bs|gbs|bsz|(?:micro_?)?batch(?:_?size)?|batch_tokens)(?:_per_\w+)?"
            r"|accum(?:ulat[a-z]+)?(?:_steps|_iter)?"
            r"|(?:samples|images|imgs|seqs|sequences|examples|clips|rows|docs|tokens)_per_(?:gpu|device|node|rank|replica|core|worker|step|iter"
            r"|iteration|batch|process))$|^mb$",
            re.IGNORECASE,
        ),
    ),
)
# Words that count only as the whole name.
_WHOLE_NAMES = {
    **dict.fromkeys(("block", "seq", "seqs", "sequence", "context", "ctx", "len", "length", "tokens", "num_tokens", "n_tokens"), TOKENS),
    **dict.fromkeys(("img", "image", "res", "crop", "height", "img_px", "image_px", "px", "pixels"), PIXELS),
    "ga": SAMPLES,
}
# Words that usually mean the length or size of a sample, but not always: reports state only that they may. `T` and `L` only in capitals,
# as in papers. Whatever they count, the user can give tokens/s instead.
_LIKELY_NAMES = ("T", "L", "size", "sz", "win", "window", "n_seq", "num_seq", "n_points", "num_points", "points", "samples_len", "span")
# Known not to change the work of a sample or a step: data loading, communication, precision, the model, the optimiser, where it runs and
# where it writes. Names of data, configurations or kinds of parallelism may change it.
_HARMLESS = re.compile(
    r"(?:^|_)(?:lr|wd|eps|betas?|amp|nw|half|comm|heads?|ib|opt|gc|jit|bias|norm|act|lora|tag|pin|quant|impl|mmap|autocast|async|sync_?bn)(?:_|$)"
    r"|^(?:node|host|hostname|gpu|gpu_ids?|device|out|output|run_name|exp_name|experiment|profile|loader)$"
    r"|(?:^|_)(?:out|output|log|cache|ckpt|save|run|work|tmp|temp)_?(?:dir|path|folder|file)$|_every$|_interval$|_freq$"
    r"|workers|prefetch|pin_mem|persist|shuffle|thread|omp_|numa|affinity|non_?blocking|alloc"
    r"|learning_rate|decay|momentum|warmup|schedul|seed|dropout|grad_clip|clip_grad|precision|dtype|bf16|fp16|fp8|fp32|tf32|compile|fuse"
    r"|cudnn|benchmark|determin|zero|offload|bucket|overlap|nccl|gloo|backend|ddp|fsdp|shard|socket|p2p|allreduce|attn|attention|sdpa"
    r"|flash|kernel|checkpoint|ckpt|recompute|remat|optim|foreach|capturable|cuda_?graph|channels_last|d_model|hidden|layers?$|embd|ffn|mlp"
    r"|depth|vocab|expert|cuda_|torch_|log_|debug|temperature|weight|smoothing",
    re.IGNORECASE,
)
# Words for an amount, whatever else is in the name (`samples_per_gpu`, `attention_len`), except amounts of something else.
_AMOUNT = re.compile(
    r"_per_|(?:^|_)(?:samples?|images?|imgs?|tokens?|seqs?|sequences?|examples?|items?|rows?|docs?|clips?|frames?|views?|crops?|points?|rays"
    r"|len|lengths?|augs?|num_aug)(?:_|$)"
    r"|(?<!bucket)(?<!hidden)(?<!vocab)(?<!cache)(?<!pool)(?<!kernel)(?<!shard)(?<!group)(?<!ffn)(?<!mlp)(?<!embd)(?<!head)_size$",
    re.IGNORECASE,
)
# Names of the number of ranks: its effect is known where the ranks that were seen differ too.
_RANK_COUNT = re.compile(
    r"(?:^|_)(?:ranks?|nproc(?:_per_node)?|(?:num|n)_?(?:gpus|processes|procs|ranks|nodes|devices)|world_?size|gpus|nodes|nnodes)$",
    re.IGNORECASE,
)
_OPTION = re.compile(r"(?:--?|\+{0,2})(?P<name>[A-Za-z][\w.-]*)=(?P<value>.*)", re.DOTALL)
_FLAG = re.compile(r"--?(?P<name>[A-Za-z][\w.-]*)")
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>[^`]*)")
# Also `${L:-32}`, which is the value of L where something sets it.
_VARIABLE = re.compile(r"\$\{?(?P<name>[A-Za-z_]\w*|\d)(?::?-[^}]*(?=\}))?\}?")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=\((?P<first>.*)", re.DOTALL)
_END_OF_COMMAND = re.compile(r"[;&|\n]+")
_ARITHMETIC = "$(("
_SUBSTITUTION = re.compile(r"`|\$\((?!\()")
_REFERENCE = re.compile(r"\$\{?[#!]?(?P<name>[A-Za-z_]\w*)(?P<operator>[^\w}\s]?)")
# Commands that set variables of which the command line does not show the value.
_SETS_VARIABLES = frozenset({"source", ".", "eval", "read"})
_BLOCKS = {**dict.fromkeys(("if", "case", "for", "while", "until"), 1), **dict.fromkeys(("fi", "esac", "done"), -1)}
_NO_VARIABLES: Mapping[str, str] = {}


def run_work_settings(spec: RunSpec) -> tuple[WorkSetting, ...]:
    """The settings, axes, typed options and variables of the plan that change the work of a sample or a step."""
    settings = {name: "" if value is None else str(value) for name, value in {**spec.settings, **spec.axes}.items()}
    typed = {name: value for name, value in typed_settings(spec.workload.args, spec.env).items() if name not in settings}
    variables = {f"env.{name}": value for name, value in spec.env.items()}
    axes = ", ".join(f"{name}={value}" for name, value in spec.axes.items() if not is_harmless(name))
    unknown = {name: axes for name in options_set_by_shell(spec.workload.args, spec.env) if name not in settings}
    return work_settings(settings | dict.fromkeys(unknown, "") | typed | variables, spec.workload.sample_size, unknown)


def work_unit(name: str, declared: Mapping[str, str] | None = None) -> str:
    """The unit that a setting of this name counts; empty where it does not change the work, as far as known."""
    if declared and name in declared:
        return declared[name]
    return _unit_of(name)


@cache
def _unit_of(name: str) -> str:
    plain = name.rpartition(".")[2].replace("-", "_")
    found = _WHOLE_NAMES.get(plain.lower()) or (TOKENS if is_likely_size(name) else "")
    return found or next((unit for unit, pattern in _PATTERNS if pattern.search(plain)), "")


def is_likely_size(name: str) -> bool:
    """Whether a setting of this name may be the size of a sample or something else."""
    plain = name.rpartition(".")[2].replace("-", "_")
    return plain in _LIKELY_NAMES or (len(plain) > 1 and plain.lower() in _LIKELY_NAMES)


def is_harmless(name: str) -> bool:
    """Whether a setting of this name is known to change neither the size of a sample nor the number of samples in a step."""
    plain = name.rpartition(".")[2].replace("-", "_")
    return not _unit_of(name) and _HARMLESS.search(plain) is not None and _AMOUNT.search(plain) is None


def is_rank_count(name: str) -> bool:
    return _RANK_COUNT.search(name.rpartition(".")[2].replace("-", "_")) is not None


def typed_settings(argv: Sequence[str], variables: Mapping[str, str] = _NO_VARIABLES) -> dict[str, str]:
    """Options of a script with their values: `--seq_len 64`, `--seq_len=64`, `data.seq_len=64`. An axis may have another name than the
    option that it sets, a command line behind `bash -c` is one argument, and a value may be a variable that is set in it or before: by
    name, as an argument of the shell, or in an array."""
    tokens = _joined_substitutions(_without_arrays([token for one in argv for token in _tokens(one)]))
    known = {**variables, **_arguments_of_shell(argv, tokens)}
    for token in tokens:
        if each := _ASSIGNMENT.fullmatch(token):
            known[each["name"]] = _expanded(each["value"], known)
    expanded = ((token, _expanded(token, known)) for token in tokens)
    # A variable alone may hold several tokens: `$ARGS`.
    split = (_joined_substitutions(_tokens(text)) if _VARIABLE.fullmatch(token) else [text] for token, text in expanded)
    tokens = [part for parts in split for part in parts]
    return dict(_options(tokens))


def other_arguments(argv: Sequence[str]) -> list[str]:
    """The tokens of a command line that are neither an option nor its value."""
    tokens = [token for one in argv for token in _tokens(one)]
    found, is_value = [], False
    for token in tokens:
        is_flag = _FLAG.fullmatch(token) is not None
        if not is_flag and not is_value and not _OPTION.fullmatch(token):
            found.append(token)
        is_value = is_flag
    return found


def options_set_by_shell(argv: Sequence[str], variables: Mapping[str, str] = _NO_VARIABLES) -> frozenset[str]:
    """Options and variables whose value the command line does not show: the output of a command, a variable that a condition or another
    file sets, an option within a condition."""
    tokens = _joined_substitutions([token for one in argv for token in _tokens(one.replace("\n", " ; ") if "\n" in one else one)])
    in_condition = _in_conditions(tokens)
    unknown: set[str] = {tokens[at + 1] for at, token in enumerate(tokens[:-1]) if token == "for"}
    assigned: dict[str, str] = {}
    for token, is_conditional in zip(tokens, in_condition, strict=True):
        if each := _ASSIGNMENT.match(token):
            value = token.partition("=")[2]
            if is_conditional or assigned.setdefault(each["name"], value) != value or _is_unknown(value, unknown, assigned):
                unknown.add(each["name"])
    outside = {name for name in _references(tokens) if name not in assigned and name not in variables}
    unknown |= outside if _SETS_VARIABLES.intersection(tokens) else set()
    found = set(unknown)
    for at, token in enumerate(tokens):
        inner = _tokens(token.partition("=")[2]) if _ASSIGNMENT.match(token) else []
        for name, value in _options([*inner] or [token, *tokens[at + 1 : at + 2]]):
            if in_condition[at] or _is_unknown(value, unknown, assigned):
                found.add(name)
    return frozenset(found)


def _options(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    for at, token in enumerate(tokens):
        if option := _OPTION.fullmatch(token):
            yield option["name"], option["value"]
        elif (flag := _FLAG.fullmatch(token)) and at + 1 < len(tokens) and not _FLAG.fullmatch(tokens[at + 1]):
            yield flag["name"], tokens[at + 1]


def _is_unknown(value: str, unknown: Collection[str], assigned: Collection[str]) -> bool:
    if _SUBSTITUTION.search(value):
        return True
    names = set(re.findall(r"[A-Za-z_]\w*", value)) if _ARITHMETIC in value else set()
    names |= {each["name"] for each in _REFERENCE.finditer(value)}
    # `${L:-32}` is the default where nothing sets L.
    has_default = any(
        each["operator"] in (":", "-", "=", "+", "%", "#", "/") and each["name"] in assigned for each in _REFERENCE.finditer(value)
    )
    return has_default or not names.isdisjoint(unknown)


def _references(tokens: Iterable[str]) -> set[str]:
    return {each["name"] for token in tokens for each in _REFERENCE.finditer(token)}


def _joined_substitutions(tokens: Sequence[str]) -> list[str]:
    """The tokens with substitutions such as `$(cat file)` joined to one."""
    found: list[str] = []
    is_open = False
    for token in tokens:
        found[-1:] = [f"{found[-1]} {token}"] if is_open else [*found[-1:], token]
        last = found[-1]
        is_open = bool(_SUBSTITUTION.search(last)) and (last.count("(") > last.count(")") or last.count("`") % 2 == 1)
    return found


def _in_conditions(tokens: Sequence[str]) -> list[bool]:
    """Whether each token runs only under a condition or in a loop: within `if` and the like, or after a test and `&&`."""
    found: list[bool] = []
    depth, is_test, is_after_test = 0, False, False
    for token in tokens:
        if _END_OF_COMMAND.fullmatch(token):
            is_after_test = (is_after_test or is_test) and token in ("&&", "||")
            is_test = False
        is_test = is_test or token in ("[", "[[", "test")
        depth = max(0, depth + _BLOCKS.get(token, 0))
        found.append(depth > 0 or is_after_test)
    return found


def _without_arrays(tokens: Sequence[str]) -> list[str]:
    """The tokens with arrays such as `args=(--seq_len 64)` expanded: their elements are used where the array is."""
    found: list[str] = []
    is_in_array = False
    for token in tokens:
        if begun := _ARRAY.fullmatch(token):
            token, is_in_array = begun["first"], True
        if is_in_array and token.endswith(")"):
            token, is_in_array = token[:-1], False
        found.append(token)
    return found


def _arguments_of_shell(argv: Sequence[str], tokens: Sequence[str]) -> dict[str, str]:
    """The values of `$1` and further: the arguments after `bash -c COMMAND NAME`, or after `set --` in it."""
    found: Sequence[str] = ()
    if "-c" in argv:
        found = argv[list(argv).index("-c") + 3 :]
    if "set" in tokens and tokens[tokens.index("set") + 1 :][:1] == ["--"]:
        after = tokens[tokens.index("set") + 2 :]
        found = list(itertools.takewhile(lambda token: not _END_OF_COMMAND.fullmatch(token), after))
    return {str(number): value for number, value in enumerate(found, start=1)}


def _tokens(argument: str) -> list[str]:
    if not any(blank in argument for blank in " \t\n"):
        return [argument]
    lexer = shlex.shlex(argument, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError:
        return argument.split()


def _expanded(token: str, variables: Mapping[str, str]) -> str:
    """A token with the values of shell variables; an expression stays one, since it differs where they do."""
    if "$" not in token:
        return token
    if _ARITHMETIC in token:
        return re.sub(r"\$?\b([A-Za-z_]\w*)\b", lambda found: variables.get(found[1], found[0]), token)
    return _VARIABLE.sub(lambda found: variables.get(found["name"], found[0]), token)


def work_settings(
    settings: Mapping[str, str], declared: Mapping[str, str] | None = None, set_by_shell: Mapping[str, str] = _NO_VARIABLES
) -> tuple[WorkSetting, ...]:
    """The settings of a group that change the work, in their order. `set_by_shell`: by name, the axes on which a value may depend."""
    units = {name: work_unit(name, declared) for name in settings}
    return tuple(
        WorkSetting(name=name, value=value, unit=units[name], set_by_shell=set_by_shell.get(name, ""))
        for name, value in settings.items()
        if units[name]
    )
