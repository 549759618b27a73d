"""Transcripts as token ids: BERT's WordPiece, from a vocabulary on disk or a built-in one of common words."""

from __future__ import annotations

import os
from collections.abc import Sequence
from string import ascii_lowercase, digits

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from seatrial_workloads.common.errors import StartupError, first_line
from seatrial_workloads.contrastive.settings import CONFIG_NAMES, DEFAULT_REVISION

_TEXT = """
a able about above according account across action after again against age ages ago air all allow almost alone along already also always
among an and another answer any appeared appears are arms army arrived art as asked at attention away back bad bank battle be beautiful
beauty became because become bed been before began begin behind being believe bell beneath best better between beyond bird bit black blood
blue body book born both bound box boy break breath bridge bright bring broken brother brought built burst business but buy by call called
came camp can cannot captain care carriage carried carry case cause certain certainly chair chance change character charge chief child
children church circumstances city civil class clear close clothes cloud cold color colour come coming common company condition
conversation corner cost could country course court cover cried cross crowd cut daily danger dare dark daughter day days dead dear death
deep desire did die difference different difficult difficulty dinner direction distance do doctor does done door doubt down drawn dream
dress drew drink drive drop dry due during duty each ear early earth easily east easy eat effect effort eight either eleven else end enemy
england english enough entered entirely equal especially even evening event ever every evidence evil example except experience expression
eye eyes face fact faith fall family famous far fashion fast father fear features feel feeling feet fell felt few field fields fight
figure final finally find finding fine finger finished fire first fish five fixed flat flowers follow followed food foot for force foreign
forest forgotten form former forth forward found four france free french fresh friend friends from front full future game garden gates
gave general gentle gentleman gentlemen gently get getting gift girl give given glad glance glass glory god going gold gone good govern
government grass grave great green grew ground group grow grown guard had hair half hall hand hands happened happy hard has have having he
head heard hearing heart height held help her here herself high hill him himself his hold holding home honor honour hope horse horses hot
hour hours house how however human hundred husband i idea ideas if ill immediately important in increase indeed influence inside instant
instead interest into iron is island it its itself job joy judge june just keep kept kill killed kind king kitchen knew know known knows
lady laid land language large larger last late laughed law laws lay lead learn learned least leave led left legs length less let letter
lie lies life lifted light like line lines listen little live lived lives living london long longer look looked looking lord lost love
loved low made main make making man manner march mark married mary master matter may me mean means meet meeting memory men met middle
might mile miles mind minute minutes miss mistake moment money month months moon more morning most mother mountain mouth move moved
movement much music must my name named nation natural nature near nearly necessary neck need neither never new next night nine no noble
noise none north not note nothing now number object obliged observed occasion ocean of off offered office officer often old on once one
only open opened opinion opinions opportunity or order ordinary original other others ought our out over own pain pair pale paper part
party pass passed past peace people perfect perfectly perhaps period person persons piece place places plain plan play pleasant please
pleasure point political poor position possible power practice present president pretty prince private produced promise proper proud
proved public purpose put quarter question quickly quiet quite race rain raised ran rather reach reached read reading ready real reality
really reason received red remember replied reply respect rest result return rich right ring rise river road rock roof room rose round
royal run running safe said sake same sat saw say scarcely scene school science sea seat second secret see seeing seek seem seemed seems
seen sell send sense sent separate serious servant service set seven several shall shape sharp she ship shook short shot should shoulder
shoulders show shut sick side sight sign silence silent silver simple simply since single sir sister sit sitting situation six sky sleep
slow slowly small smile snow so social society soft soldier soldiers some something sometimes son song soon sorrow sorry sort soul sound
south space speak speaking special spent spirit spite spoke spot spread spring stage stand standing star stars started state states stay
step steps still stone stood stop stopped story straight strange stranger stream street strength strong struck study style subject success
such suddenly suffered suffering suit sum summer sun supper support suppose supposed sure surprise sweet system table take taken taking
talk tall tears tell ten than thank that the their them themselves then there therefore these they thing things think third thirty this
those thou though thought thousand three threw through throw thus time times tired to today together told tomorrow tone too took top touch
toward towards town trade train travel tree trees tried trouble true trust truth try turn turned turning twelve twenty two uncle under
understand understood union united until up upon us use used usual valley value various vast very vessel view village visit voice waited
waiting walk walked wall walls want wanted war warm was washington watch watched water way ways we weather week well went were west what
when where which while white who whole why wide wife wild will william wind window wine winter wisdom wise wish wished with within without
witness woman women wonder wonderful wood woods word words wore work working world worth would write writing written wrong wrote year
years yellow yes yesterday yet you young your youth
"""
COMMON_WORDS = tuple(_TEXT.split())


MAX_TOKENS = 512
# Few widths, so that a compiled or captured text encoder sees few shapes.
WIDTH_MULTIPLE = 8
# [PAD] must stay 0, as in BERT.
SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
VOWELS = "aeiouy"
PUNCTUATION = "'.,;:!?-"


def load_tokenizer(text_model: str, revision: str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer of a folder or hub id, or our own for `base` and `tiny`."""
    # Before the first use: a tokenizer that has used threads warns in a forked worker.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    return small_tokenizer() if text_model in CONFIG_NAMES else _pretrained(text_model, revision)


def tokenise(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Ids and mask, both (rows, tokens) int64. Lower-cased: a cased vocabulary splits LibriSpeech's capitals into letters."""
    encoded = tokenizer(
        [text.lower() for text in texts],
        padding="longest",
        pad_to_multiple_of=WIDTH_MULTIPLE,
        truncation=True,
        max_length=MAX_TOKENS,
        return_token_type_ids=False,
        return_tensors="pt",
    )
    return encoded["input_ids"], encoded["attention_mask"]


def small_tokenizer() -> PreTrainedTokenizerFast:
    """BERT's WordPiece with a small generated vocabulary."""
    ids = {piece: number for number, piece in enumerate(vocabulary())}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token=SPECIAL["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    ends = [SPECIAL["cls_token"], SPECIAL["sep_token"]]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{ends[0]} $A {ends[1]}", special_tokens=[(end, ids[end]) for end in ends]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=MAX_TOKENS, **SPECIAL)


def vocabulary() -> list[str]:
    """Special tokens, word beginnings, then continuations; no duplicates."""
    consonants = [letter for letter in ascii_lowercase if letter not in VOWELS]
    pairs = [first + second for first in ascii_lowercase for second in ascii_lowercase]
    syllables = [first + vowel + last for first in consonants for vowel in VOWELS for last in consonants]
    pieces = [*ascii_lowercase, *digits, *pairs, *syllables]
    beginnings = [*PUNCTUATION, *pieces, *COMMON_WORDS]
    return list(dict.fromkeys([*SPECIAL.values(), *beginnings, *(f"##{piece}" for piece in pieces)]))


def _pretrained(text_model: str, revision: str | None) -> PreTrainedTokenizerBase:
    try:
        tokenizer = AutoTokenizer.from_pretrained(text_model, revision=revision or DEFAULT_REVISION)
    except (OSError, ValueError) as error:
        raise StartupError(
            f"text_model '{text_model}' has no tokenizer ({first_line(error)}): expected a folder with tokenizer.json or vocab.txt, "
            f"a reachable hub id, or one of {', '.join(CONFIG_NAMES)}"
        ) from error
    if tokenizer.pad_token_id is None or tokenizer.cls_token_id is None:
        raise StartupError(f"text_model '{text_model}' has a tokenizer without [PAD] or [CLS]; expected a BERT")
    return tokenizer
