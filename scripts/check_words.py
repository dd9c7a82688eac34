#!/usr/bin/env python3
"""Checks that identifiers and comments are made of words: those of Debian's list of American English
(wamerican), their usual endings, and the terms of the field in scripts/words.txt.

  scripts/check_words.py          prints each unknown word with the place where it is first used
  scripts/check_words.py --list   prints the unknown words alone, as a beginning of a list
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
FOLDERS = ("include", "src", "tools", "python", "examples", "test", "bench", "scripts", "cmake")
SUFFIXES = {".h", ".cc", ".c", ".py", ".yaml", ".cmake"}
DICTIONARY = pathlib.Path("/usr/share/dict/american-english")
LEAST = 4  # letters; shorter ones are abbreviations, or words
# Strings name files, formats and models of others.
STRING = re.compile(r'R"\((?:.|\n)*?\)"|"(?:[^"\\\n]|\\.)*"')
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Numbers in hexadecimal, links, and what a compiler or a format spells.
SKIPPED = re.compile(r"0[xX][0-9a-fA-F']+|https?://\S+|#\s*include.*|\b__\w+|_mm\w+|-[fmWO][\w=-]+")
ENDINGS = (("s", ""), ("es", ""), ("ies", "y"), ("ed", ""), ("ed", "e"), ("d", ""), ("ing", ""),
           ("ing", "e"), ("er", ""), ("er", "e"), ("ers", ""), ("ers", "e"), ("able", ""), ("able", "e"),
           ("ly", ""), ("or", "e"), ("ors", "e"), ("ion", "e"), ("ions", "e"), ("ization", "ize"),
           ("ized", "ize"), ("izer", "ize"), ("ness", ""))
BEGINNINGS = ("un", "re", "non", "sub", "pre", "de", "dis", "multi", "over", "inter", "mis")


def read_words(path):
    """Lower-case words of a list: one or more a line, `#` begins a comment."""
    lines = (line.partition("#")[0] for line in path.read_text(encoding="utf-8").splitlines())
    return {word.lower() for line in lines for word in line.split()}


class Dictionary:
    def __init__(self, words):
        self.words = words
        self.known = {}

    def has(self, word):
        if word not in self.known:
            self.known[word] = self.is_word(word)
        return self.known[word]

    def is_word(self, word):
        if self.is_form(word):
            return True
        return any(word.startswith(b) and len(word) - len(b) > 2 and self.is_form(word[len(b):])
                   for b in BEGINNINGS)

    def is_form(self, word):
        if word in self.words:
            return True
        for ending, base in ENDINGS:
            if not word.endswith(ending):
                continue
            stem = word[:len(word) - len(ending)] + base
            doubled = len(stem) > 3 and stem[-1] == stem[-2] and stem[:-1] in self.words
            if len(stem) > 2 and (stem in self.words or doubled):
                return True
        return False


def words_of(line):
    for found in WORD.finditer(line):
        word = found[0].lower()
        if len(word) >= LEAST:
            yield word


def files(root):
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in SUFFIXES and not any(part.startswith(".") for part in file.parts[len(root.parts):]):
                yield file


def check(root, words):
    """{unknown word: 'file:line' of its first use} below `root`."""
    dictionary = Dictionary(words)
    unknown = {}
    for file in files(root):
        text = file.read_text(encoding="utf-8")
        text = STRING.sub(lambda m: "\n" * m[0].count("\n"), text)
        for number, line in enumerate(text.splitlines(), 1):
            for word in words_of(SKIPPED.sub(" ", line)):
                if not dictionary.has(word):
                    unknown.setdefault(word, f"{file.relative_to(root)}:{number}")
    return unknown


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if not DICTIONARY.exists():
        print(f"{DICTIONARY} is missing: scripts/install.sh test", file=sys.stderr)
        return 2
    unknown = check(ROOT, read_words(DICTIONARY) | read_words(ROOT / "scripts" / "words.txt"))
    for word, place in sorted(unknown.items()):
        print(word if options.list else f"{place}: '{word}' is no word of scripts/words.txt")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
