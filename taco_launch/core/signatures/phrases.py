"""Search long logs for phrases, each only where its longest word occurs: most lines repeat the words of others; pure."""

from collections import Counter
from typing import Dict, Iterable, List, Set

# Words are searched for where a part of so many characters occurs: there are far fewer parts than words.
_PART = 4
_DIGITS = str.maketrans("0123456789", " " * 10)


def _words(text: str) -> List[str]:
    """Return the words of a text; digits are in none."""
    return text.translate(_DIGITS).split()


def vocabulary(text: str) -> str:
    """Return the words of a text, each once."""
    return " ".join(set(_words(text)))


class Phrases:
    """Tells which of many phrases may stand in a text."""

    def __init__(self, phrases: Iterable[str]) -> None:
        """Choose a part of each phrase's longest word: the one that most of these words hold, so that parts are few."""
        self._of_word: Dict[str, List[str]] = {}
        for phrase in phrases:
            self._of_word.setdefault(max(_words(phrase), key=len, default=""), []).append(phrase)
        held = {word: {word[at : at + _PART] for at in range(max(1, len(word) - _PART + 1))} for word in self._of_word}
        common = Counter(part for parts in held.values() for part in parts)
        self._of_part: Dict[str, List[str]] = {}
        for word, parts in held.items():
            self._of_part.setdefault(max(parts, key=lambda part: (common[part], part)), []).append(word)

    def possible(self, words: str) -> Set[str]:
        """Return the phrases whose longest word is in the vocabulary of a text."""
        characters = set(words)
        parts = (part for part in self._of_part if characters.issuperset(part) and part in words)
        found = (word for part in parts for word in self._of_part[part] if word in words)
        return {phrase for word in found for phrase in self._of_word[word]}
