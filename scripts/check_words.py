#!/usr/bin/env python3
"""Fails on words of names, comments, messages and documents that neither American English nor
scripts/words.txt has, and on words of the list that occur nowhere.

Names are taken apart: `SameKnownShape`, `same_known_shape`. A word has at least four letters. The
dictionary is Debian's package wamerican.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
DICTIONARY = pathlib.Path("/usr/share/dict/american-english")
LIST = pathlib.Path("scripts/words.txt")
SUFFIXES = {".h", ".cc", ".c", ".py", ".pyi", ".md", ".yaml", ".cmake", ".sh", ".txt", ".toml"}
# What is not English: links, hashes and numbers, escapes, Base64 and the like.
NOISE = re.compile(r"https?://\S+|\b[0-9a-fA-F]{8,}\b|\b0x\w+|\\.")
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
LEAST = 4  # letters of a word


def words_of(text):
    """The words of a text in lower case; those of `FP16Kernel` and `fp16_kernel` are `kernel`."""
    for found in WORD.finditer(NOISE.sub(" ", text)):
        if len(found[0]) >= LEAST:
            yield found[0].lower()


def files_of(root):
    names = subprocess.run(["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True,
                           text=True).stdout.split("\0")
    return [name for name in names if pathlib.Path(name).suffix in SUFFIXES and name != str(LIST)]


def places_of(root, names):
    """Of each word the places where it occurs."""
    places = collections.defaultdict(list)
    for name in names:
        path = root / name
        if not path.is_file():
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            for word in words_of(line):
                places[word].append(f"{name}:{number}")
    return places


def dictionary():
    if not DICTIONARY.exists():
        sys.exit(f"check_words: there is no {DICTIONARY}; scripts/install.sh test installs it")
    return {line.strip().lower() for line in DICTIONARY.read_text().splitlines()}


def listed(root):
    """The words of the list; a line may say behind '#' what its words are."""
    lines = (root / LIST).read_text().splitlines()
    return {word for line in lines for word in line.split("#")[0].split()}


def compare(places, accepted):
    """The words that are unknown, and those of the list that occur nowhere."""
    known = dictionary()
    return (sorted(word for word in places if word not in known and word not in accepted),
            sorted(word for word in accepted if word not in places))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=ROOT)
    parser.add_argument("--shown", type=int, default=3, help="places of each word")
    options = parser.parse_args()

    places = places_of(options.root, files_of(options.root))
    unknown, unused = compare(places, listed(options.root))
    for word in unknown:
        print(f"{word}: {', '.join(places[word][:options.shown])}")
    for word in unused:
        print(f"{LIST}: '{word}' occurs nowhere")
    print(f"words: {len(unknown)} unknown, {len(unused)} unused")
    return 1 if unknown or unused else 0


if __name__ == "__main__":
    sys.exit(main())
