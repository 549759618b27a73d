"""Instructions as text: the prompt template, a generated dataset in Alpaca's shape, and a tokenizer trained on it.

Generated responses are lists of words whose number is log-normally distributed (median 40, sigma 0.9, at most 700): as in Alpaca most are
short and a few long, so that padding and packing matter.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

TEMPLATE = "alpaca-1"
"""Name of the template in the key of a tokenised dataset; change it with the template."""
BOS, EOS, UNKNOWN = "<s>", "</s>", "<unk>"
FIELDS = ("instruction", "input", "output")
# Log-normal number of words in a generated response: exp(mean) is the median.
LENGTH_LOG_MEAN, LENGTH_LOG_SIGMA, LONGEST_WORDS = math.log(40), 0.9, 700
WORDS = (
    "river", "stone", "light", "water", "summer", "paper", "table", "green", "quiet", "market", "garden", "window", "letter", "music",
    "winter", "silver", "bridge", "forest", "morning", "island", "small", "large", "early", "late", "round", "open", "clear", "north",
    "south", "east", "west", "road", "house", "field", "cloud", "rain", "snow", "wind", "fire",
)  # fmt: skip
TASKS = ("List words about {}.", "Write about {} in simple words.", "Describe {} to a child.", "Name things that go with {}.")


def prompt_of(example: Mapping[str, Any]) -> str:
    """The prompt, with a section Input only where the example has one."""
    given = str(example.get("input") or "")
    middle = f"### Input:\n{given}\n\n" if given else ""
    return f"### Instruction:\n{example['instruction']}\n\n{middle}### Response:\n"


def response_of(example: Mapping[str, Any]) -> str:
    return str(example["output"])


def generated_examples(count: int, seed: int) -> Iterator[dict[str, str]]:
    """Examples with Alpaca's fields, each generated from its own index, whatever their number."""
    for index in range(count):
        rng = random.Random(f"example:{seed}:{index}")
        topic, task = rng.choice(WORDS), rng.choice(TASKS)
        number = min(LONGEST_WORDS, max(1, round(rng.lognormvariate(LENGTH_LOG_MEAN, LENGTH_LOG_SIGMA))))
        has_input = rng.random() < 0.4
        given = " ".join(rng.choices(WORDS, k=rng.randint(1, 12))) if has_input else ""
        yield {
            "instruction": task.format(topic),
            "input": given,
            "output": f"{topic.capitalize()}: {' '.join(rng.choices(WORDS, k=number))}.",
        }


def train_tokenizer(vocab_size: int, texts: Iterable[str]) -> Any:
    """A byte-level BPE tokenizer in the style of Mistral's: it adds <s> before a text, and has no padding token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, special_tokens=[UNKNOWN, BOS, EOS], initial_alphabet=sorted(alphabet), show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BOS, eos_token=EOS, unk_token=UNKNOWN)
