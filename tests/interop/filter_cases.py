"""Selectors and property strings made from a seed: most by the grammar, many broken on purpose."""

from random import Random

NAMES = ("a", "b", "c", "TAGS", "_x", "$y", "a1", "Not", "nullable", "color")
INTEGERS = (
    "0", "1", "5", "42", "00", "007", "0L", "1L", "5l", "12L3", "2147483647", "2147483648", "4294967296",
    "9223372036854775807", "9223372036854775808", "9007199254740993", "99999999999999999999", "1a", "0x10",
)  # fmt: skip
FLOATS = (
    "0.0", "0.5", ".5", "5.", "5.0", "1e3", "1E+3", "1e-3", "5.e2", ".5E1", "1e400", "1e-400", "4.9e-324",
    "2.4e-324", "9007199254740993.0", "1.7976931348623157e308", "3.14", "1.5.5", "1e", "00.5", "0e0", "1e5L",
)  # fmt: skip
TEXTS = (
    "''", "'a'", "'abc'", "'it''s'", "''''", "'5'", "'5.0'", "'true'", "'TRUE'", "'NaN'", "'x", "'é'",
    "'日本'", "'𝒳'", "'a\nb'", "'--'", "'/*'", "'%'", "'null'", "' '", "'b'", "'\x00'", "'1e3'",
)  # fmt: skip
VALUES = (
    "5", "-5", "+5", "5.0", "05", " 5", "5 ", "\t5", "abc", "a", "b", "", "true", "TRUE", "tRuE", "false", "truе",
    "NaN", "-NaN", "+NaN", "nan", "Infinity", "-Infinity", "+Infinity", "inf", "1e3", "1E3", "1e", "1e+", "1d", "1D",
    "1f", "1.5F", "1dd", "0x1p3", "0x1.8P+1d", "0x.8p0", "0x1", "0xp3", "0x1p99999", "-0x1p-99999", "٣", "５", "𝟓", "-٣",
    "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "000000000000000000000000000005", "1_000", "5L", ".5", "5.", ".", "-",
    "+", "e5", "1e400", "-1e400", "1e-400", "4.9e-324", "2.4e-324", "-0", "0", "-0.0", "0.0", "9007199254740993",
    "9007199254740992", "it's", "'", "é", "日本", "𝒳", "null", "NULL", "--1", "+-1", "1 2", "a\x01b", "\x01", "5\u00a0",
    "1e0000000000000000000000005", "1e99999999999999999999", "0e99999999999999999999", "0.1", "0.10000000000000000001",
    "123456789012345678901234567890.5", "1.", "x5", "5x", "\u2003" + "5", "5\x00", "\x1f5\x1f", "İ", "ſ",
)  # fmt: skip
SOUND_NUMBERS = (
    "0", "1", "42", "1L", "2147483647", "2147483648", "9223372036854775807", "9007199254740993", ".5", "1e3",
    "4.9e-324", "1.7976931348623157e308", "9007199254740993.0", "0.1", "5.", "1000",
)  # fmt: skip
KEYWORDS = ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")  # fmt: skip
SYMBOLS = ("=", "<>", ">", ">=", "<", "<=", "(", ")", ",", "+", "-")
NOISE = ("!", "@", "#", "%", "*", "/", ";", "!=", "==", "\\", '"', "[", "é", "ſ", "K", "日", "\x00", "\x0b", "&&", "||", ".", "'")  # fmt: skip
BLANKS = (" ", "  ", "\t", "\n", "\r\n", "\f", "/* x */", "-- x\n", "/**/", "/***/", "/* ** / */", "--\r", " ", " ")  # fmt: skip


class Cases:
    """An endless row of (selector, property strings)."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def next(self, strings: int = 4) -> tuple[str, list[str]]:
        """One selector with property strings to ask it about."""
        random = self._random
        kind = random.random()
        words = (
            self._sound(random.choice((0, 1, 1, 2)))
            if kind < 0.6
            else self._or(random.choice((1, 2, 3)))
        )
        if kind > 0.9 or 0.55 < kind < 0.6:
            words = self._broken(words)
        return self._joined(words), [self._properties() for _ in range(strings)]

    def tags(self) -> str:
        """A tag expression."""
        random = self._random
        pieces = [random.choice((*VALUES, "||", "||", "|", " || ", "*", "A", "TagB", " ", "\ud83d", "😀")) for _ in range(random.randrange(5))]  # fmt: skip
        return "".join(pieces)

    # Selectors that pass Apache's checks.

    def _sound(self, depth: int) -> list[str]:
        random = self._random
        if depth == 0 or random.random() < 0.2:
            return self._condition()
        left, right = self._sound(depth - 1), self._sound(depth - 1)
        kind = random.randrange(5)
        if kind == 0:
            return ["(", *left, ")", random.choice(("=", "<>")), "(", *right, ")"]
        if kind == 1:
            return ["NOT", "(", *left, ")", random.choice(("AND", "OR")), *right]
        if kind == 2:
            return ["(", *left, ")", *random.choice((["IS", "NULL"], ["IS", "NOT", "NULL"]))]
        return ["(", *left, ")", random.choice(("AND", "OR")), *right]

    def _condition(self) -> list[str]:
        random = self._random
        name, other = random.choice(NAMES[:6]), random.choice(NAMES[:6])
        sign = random.choice(([], [], [], ["-"], ["+"], ["-", "-"]))
        number = [*sign, random.choice((*SOUND_NUMBERS, "5", "5", "5.0", other))]
        order = random.choice(("<", "<=", ">", ">="))
        text = random.choice(TEXTS[:10] + TEXTS[11:])
        negated = random.choice(([], ["NOT"]))
        kind = random.randrange(11)
        if kind < 3:
            return [name, order, *number] if random.random() < 0.7 else [*number, order, name]
        if kind < 5:
            sides = [
                [name],
                random.choice((number, [text], ["TRUE"], ["FALSE"], [other], ["-", text])),
            ]
            random.shuffle(sides)
            return [*sides[0], random.choice(("=", "<>")), *sides[1]]
        if kind == 5:
            low, high = random.choice(
                (("1", "5"), ("-5", "5.0"), ("0", "9L"), (other, "7"), ("3", "3"), ("-", "5"))
            )
            return [name, *negated, "BETWEEN", low, "AND", high] if low != "-" else [name]
        if kind == 6:
            return [name, *negated, "IN", "(", text, ",", "'5'", ",", "'abc'", ")"]
        if kind in (7, 8):
            how = random.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
            return [
                random.choice((name, name, name, text, "5", "TRUE")),
                *negated,
                how,
                random.choice(("'a'", "'5'", "'é'", text)),
            ]
        if kind == 9:
            return [name, "IS", *negated, "NULL"]
        return random.choice(
            ([name], ["NOT", name], ["TRUE"], ["NULL"], ["NOT", "FALSE"], ["-", name, "=", other])
        )

    # The grammar, with operands of any kind: many of these are refused.

    def _or(self, depth: int) -> list[str]:
        words = self._and(depth)
        while self._random.random() < 0.25:
            words += ["OR", *self._and(depth)]
        return words

    def _and(self, depth: int) -> list[str]:
        words = self._equality(depth)
        while self._random.random() < 0.25:
            words += ["AND", *self._equality(depth)]
        return words

    def _equality(self, depth: int) -> list[str]:
        random = self._random
        words = self._comparison(depth)
        while random.random() < 0.45:
            kind = random.randrange(4)
            if kind < 2:
                words += [("=", "<>")[kind], *self._comparison(depth)]
            else:
                words += ["IS", "NULL"] if kind == 2 else ["IS", "NOT", "NULL"]
        return words

    def _comparison(self, depth: int) -> list[str]:
        random = self._random
        words = self._unary(depth)
        while random.random() < 0.4:
            negated = ["NOT"] if random.random() < 0.4 else []
            kind = random.randrange(4)
            if kind == 0:
                words += [random.choice((">", ">=", "<", "<=")), *self._unary(depth)]
            elif kind == 1:
                words += [*negated, "BETWEEN", *self._unary(0), "AND", *self._unary(0)]
            elif kind == 2:
                items = [random.choice(TEXTS) for _ in range(random.choice((1, 2, 6)))]
                listed = [word for item in items for word in (item, ",")][:-1]
                words += [*negated, "IN", "(", *listed, ")"]
            else:
                how = random.choice(("CONTAINS", "STARTSWITH", "ENDSWITH"))
                words += [*negated, how, random.choice(TEXTS)]
        return words

    def _unary(self, depth: int) -> list[str]:
        random = self._random
        kind = random.random()
        if kind < 0.05:
            return ["+", *self._unary(depth)]
        if kind < 0.15:
            return ["-", *self._unary(depth)]
        if kind < 0.22:
            return ["NOT", *self._unary(depth)]
        if kind < 0.35 and depth > 0:
            return ["(", *self._or(depth - 1), ")"]
        return [self._literal()]

    def _literal(self) -> str:
        random = self._random
        kind = random.random()
        if kind < 0.55:
            return random.choice(NAMES)
        if kind < 0.7:
            return random.choice(INTEGERS)
        if kind < 0.8:
            return random.choice(FLOATS)
        if kind < 0.92:
            return random.choice(TEXTS)
        return random.choice(("TRUE", "FALSE", "NULL"))

    # What comes out of it.

    def _broken(self, words: list[str]) -> list[str]:
        random = self._random
        for _ in range(random.choice((1, 1, 2, 3))):
            place = random.randrange(len(words) + 1)
            odd = random.choice((*NOISE, *KEYWORDS, *SYMBOLS, *NAMES, *INTEGERS, *FLOATS, *TEXTS))
            kind = random.randrange(4)
            if kind == 0:
                words = [*words[:place], odd, *words[place:]]
            elif kind == 1:
                words = [*words[:place], *words[place + 1 :]]
            elif kind == 2:
                words = [*words[:place], odd, *words[place + 1 :]]
            else:
                words = words[:place]
        return words

    def _joined(self, words: list[str]) -> str:
        random = self._random
        tight = random.random() < 0.15
        text = ""
        for word in words:
            if word in KEYWORDS and random.random() < 0.5:
                word = random.choice((word.lower(), word.title(), word.swapcase()))
            if not tight or random.random() < 0.5:
                text += random.choice(BLANKS) if random.random() < 0.2 else " "
            text += word
        return text + random.choice(("", "", "", " ", "-- end", "-- end\n", "/*", "/* end */", " 'x", " @"))  # fmt: skip

    def _properties(self) -> str:
        random = self._random
        found = ""
        for name in NAMES:
            if random.random() < 0.6:
                found += f"{name}\x01{random.choice(VALUES)}\x02"
        if random.random() < 0.1:  # doubles, empty values, pieces that are no property
            found += random.choice(("a\x01\x02", "a\x01b", "b\x01TRUE\x02b\x01\x02", "\x02\x02c\x015", "a\x02", "\x01\x02", "ab\x015\x02"))  # fmt: skip
        return found
