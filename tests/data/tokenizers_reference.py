"""Byte-level BPE tokenizers of the tokenizers package and what they make of generated text.

    tokenizers_reference.py FOLDER LINES [--golden]

Trains in FOLDER gpt2.json (ByteLevel with its regex), gpt2-prefix.json (the same with add_prefix_space, and merges as
text), llama3.json (Split, ignore_merges) and qwen2.json (Split, NFC), and writes text.bin (for each line its length,
uint32, and its bytes, which need not be UTF-8) and for each tokenizer NAME.ids (count, uint32, and ids, int32) and
NAME.text (decode() of them, length and bytes; not with --golden). Broken UTF-8 goes to the package with errors="replace", because it
takes Unicode text. Behind the LINES come all characters of Unicode, surrogates excepted, unless --golden is given; then
the tokenizers are small enough to be kept in a repository.
"""
import json
import random
import struct
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

SCRIPTS = [(0x20, 0x7F), (0x20, 0x7F), (0x61, 0x7B), (0xA0, 0x180), (0x370, 0x400), (0x400, 0x460), (0x5D0, 0x5EB),
           (0x620, 0x660), (0x900, 0x970), (0xE00, 0xE5C), (0x1100, 0x1200), (0x1E00, 0x2000), (0x2000, 0x2070),
           (0x2100, 0x2200), (0x3040, 0x3100), (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0xF900, 0xFB00), (0xFB00, 0xFB50),
           (0x1D400, 0x1D500), (0x1F300, 0x1F650), (0x1F100, 0x1F190), (0x10400, 0x10450), (0x20000, 0x20100)]
SPACES = [" ", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "\u00a0", "\u2003", "\u3000", "\u0085",
          "\u2028", "\x0b", "\x1c", "\u180e", "\u200b", "      "]
MARKS = ["\u0301", "\u0308", "\u0327", "\u0323", "\u093c", "\u200d", "\ufe0f", "\u3099", "\u20e3", "\u1dc4"]
PIECES = ["'s", "'S", "'t", "'RE", "'ve", "'m", "'Ll", "'ll", "'d", "'\u017f", "'x", "''s", "I'm", "don't", "2024", "3.14159",
          "1234567", "\u0663\u0664", "\u00bd", "\u2167", "!!!", "...", "://", "->", "{};\n", "()\r\n\n", "\u2026",
          "\U0001F468\u200d\U0001F469\u200d\U0001F467", "\U0001F1E9\U0001F1EA", "\U0001F44D\U0001F3FD", "e\u0301",
          "a\u0323\u0308", "\u212b", "\u1100\u1161\u11a8", "\ufb01", "the", "The", "and", "ing", "token", "tokens",
          "<|endoftext|>", "<|eot|>", "<|end", "<lone>", " <lone> ", "x<lone>y", "<left>", "  <left>", "<right>",
          "<right>  \n", "caf\u00e9x", "cafe\u0301x", "<|a b|>", "\x00", "\ufffd", "\u0378", "\ue000"]
BROKEN = [b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", b"\x80",
          b"\xf0\x80\x80\x80", b"\xe0\x80", b"\xf8\x88\x80\x80\x80"]


def is_character(code):
    return not 0xD800 <= code < 0xE000


def piece(rng):
    kind = rng.random()
    if kind < 0.35:
        low, high = rng.choice(SCRIPTS)
        return "".join(chr(c) for c in (rng.randrange(low, high) for _ in range(rng.randrange(1, 12))) if is_character(c))
    if kind < 0.6:
        return rng.choice(SPACES)
    if kind < 0.9:
        return rng.choice(PIECES)
    if kind < 0.97:
        return rng.choice(MARKS)
    code = rng.randrange(0x110000)
    return chr(code) if is_character(code) else "?"


def line(rng):
    text = "".join(piece(rng) for _ in range(rng.randrange(0, 25))).encode()
    if rng.random() < 0.1:
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(BROKEN) + text[at:]
    if rng.random() < 0.002:
        text += rng.choice([b"a", b"ab", "\u00e9".encode(), b"!?"]) * rng.randrange(100, 3000)
    return text


def all_characters():
    """Each beside letters, digits, signs, white space, line ends, marks that come last and first (U+0345,
    U+0334), and an added token that wants to be alone."""
    codes = [c for c in range(0x110000) if is_character(c)]
    for at in range(0, len(codes), 64):
        yield "".join(f"a{c}b'd 1{c}2 !{c}? {c}'s{c}\n{c}\u0301 x\u0345{c} {c}\u0334<lone> <lone>{c}"
                      for c in map(chr, codes[at:at + 64])).encode()


def corpus(lines, every_character):
    rng = random.Random(1)
    return [line(rng) for _ in range(lines)] + (list(all_characters()) if every_character else [])


def tokenizer(pattern, nfc=False, prefix=False, **model):
    t = Tokenizer(models.BPE(**model))
    if nfc:
        t.normalizer = normalizers.NFC()
    if pattern:
        t.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    else:
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t


def train(t, size, texts):
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    t.train_from_iterator(texts, trainer)
    t.add_special_tokens(["<|endoftext|>", "<|eot|>"])
    t.add_tokens([AddedToken("<lone>", single_word=True), AddedToken("<left>", lstrip=True),
                  AddedToken("<right>", rstrip=True, normalized=False), AddedToken("caf\u00e9", normalized=True),
                  AddedToken("<|a b|>", normalized=False), AddedToken("<|end", normalized=True)])


def frame(path, parts):
    with open(path, "wb") as out:
        for part in parts:
            out.write(struct.pack("<I", len(part[0]) if isinstance(part, tuple) else len(part)))
            out.write(struct.pack(f"<{len(part[0])}i", *part[0]) if isinstance(part, tuple) else part)


def main():
    folder, lines, golden = sys.argv[1], int(sys.argv[2]), "--golden" in sys.argv
    texts = corpus(lines, not golden)
    frame(f"{folder}/text.bin", texts)
    texts = [t.decode("utf-8", errors="replace") for t in texts]
    size = 330 if golden else 3000
    # llama3's vocabulary has words whose merges are left out, which only ignore_merges finds.
    kinds = {"gpt2": tokenizer(None), "gpt2-prefix": tokenizer(None, prefix=True),
             "llama3": tokenizer(LLAMA3, ignore_merges=True), "qwen2": tokenizer(QWEN2, nfc=True)}
    for name, t in kinds.items():
        train(t, size, texts[:min(lines, 20000)])
        data = json.loads(t.to_str())
        if name == "gpt2-prefix":
            data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
        if name == "llama3":
            data["model"]["merges"] = [m for i, m in enumerate(data["model"]["merges"]) if i % 7 != 3]
        with open(f"{folder}/{name}.json", "w") as out:
            json.dump(data, out, ensure_ascii=False, separators=(",", ":"))
        t = Tokenizer.from_file(f"{folder}/{name}.json")
        ids = [t.encode(text, add_special_tokens=False).ids for text in texts]
        frame(f"{folder}/{name}.ids", [(i,) for i in ids])
        if golden:
            continue
        frame(f"{folder}/{name}.text", [t.decode(i, skip_special_tokens=False).encode() for i in ids])


if __name__ == "__main__":
    main()
