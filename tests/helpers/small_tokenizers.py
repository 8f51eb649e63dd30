"""Small tokenizers of every usual kind, trained on a few lines: WordPiece, byte-level BPE in two ways, Unigram."""

from __future__ import annotations

from collections.abc import Callable

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LINES = [
    "The film was not as good as the book, and the ending was worse.",
    "A lovely, moving story; the cast is superb!",
    "Who wrote the book? It was written by nobody in particular.",
    "Zürich, naïve café, 42 % of it: déjà vu...",
    "Привет, мир! 你好，世界。 emoji 😀 and   blanks",
]


def word_piece() -> Tokenizer:
    """BERT's kind: [CLS] A [SEP] B [SEP], small letters, types 0 and 1."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    made.train_from_iterator(
        LINES, trainers.WordPieceTrainer(vocab_size=180, special_tokens=special, show_progress=False)
    )
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", ends)
    made.decoder = decoders.WordPiece()
    return made


def _bytes(special: list[str]) -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    how = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(LINES, how)
    return made


def roberta() -> Tokenizer:
    """RoBERTa's kind: byte-level BPE, <s> A </s></s> B </s>, all types 0; the padding is number 1."""
    made = _bytes(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True)
    return made


def gpt2() -> Tokenizer:
    """GPT-2's kind: byte-level BPE, nothing added."""
    made = _bytes(["<|endoftext|>"])
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    return made


def unigram() -> Tokenizer:
    """T5's kind: SentencePiece's Unigram, A </s> B </s>."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    special = ["<pad>", "</s>", "<unk>"]
    how = trainers.UnigramTrainer(vocab_size=120, special_tokens=special, unk_token="<unk>", show_progress=False)  # noqa: S106
    made.train_from_iterator(LINES, how)
    made.post_processor = processors.TemplateProcessing("$A </s>", "$A </s> $B </s>", [("</s>", 1)])
    return made


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "word_piece": word_piece,
    "roberta": roberta,
    "gpt2": gpt2,
    "unigram": unigram,
}
