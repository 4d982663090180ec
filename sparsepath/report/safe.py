"""Text that may come from anyone, as it can be shown: nothing in it acts on what shows it."""

import re
import textwrap
import unicodedata

_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    # At the start of a row these two would be read as arguments of the line break before it.
    "[": "{[}",
    "*": "{*}",
    **{character: f"\\{character}" for character in "&%$#_{}"},
}
_MINUS = re.compile(r"(?<!\w)-(?=\d)")
_NORM = re.compile(r"\bl([01])\b")
_UNKNOWN_TO_LATEX = re.compile("[^ -~¡-ž]|[«»ÐÞðþĄąĐđĘęĦħĮįĸĿŀŉŊŋŦŧŲų]")
"""Where LaTeX's usual fonts have no sign, it stops."""
_MARKDOWN = re.compile(r"[\\`*\[\]<>|~&$]|(?<![^\W_])_|_(?![^\W_])")
"""An underscore inside a word is none."""
_OPENS_A_BLOCK = re.compile(r"(?P<sign>#+|[-+=](?=[-+= ]|$))|(?P<number>\d+)(?=[.)])")
_FORMULA = re.compile(r"[=@]|[-+](?![-+\d., ±()eE%x]*$)")


_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"
"""Unseen, but words of some languages and many emoji are spelled with them."""


def unseen(character: str) -> bool:
    """Whether it is a control character, a mark of direction, half a character or none at all."""
    return unicodedata.category(character) in _UNSEEN and character not in _JOINERS


def visible(text: str) -> str:
    """One line in which whatever would act on what shows it, or not be seen, is spelled out."""
    return "".join(repr(c)[1:-1] if unseen(c) else c for c in text)


def for_terminal(text: str, encoding: str) -> str:
    """Lines in which only their ends are control characters, and all else is in the encoding."""
    lines = "\n".join(map(visible, text.split("\n")))
    try:
        return lines.encode(encoding, "backslashreplace").decode(encoding)
    except LookupError:
        return lines.encode("ascii", "backslashreplace").decode()


def filled(line: str, width: int | None) -> str:
    """The line in several, none of them wider than the width where it is given."""
    return visible(line) if width is None else textwrap.fill(visible(line), width)


def for_markdown(text: str) -> str:
    """A cell in which markdown sees no markup."""
    return _MARKDOWN.sub(r"\\\g<0>", visible(text).strip())


def as_markdown_line(text: str) -> str:
    """A line of its own, which is no heading, list or rule either."""
    line = for_markdown(text)
    opening = _OPENS_A_BLOCK.match(line)
    if opening is None:
        return line
    before = opening.end() if opening["number"] else 0
    return f"{line[:before]}\\{line[before:]}"


def for_latex(text: str) -> str:
    """One line in which LaTeX sees no commands; a minus and the norms l0 and l1 look right."""
    escaped = "".join(_LATEX.get(character, character) for character in visible(text))
    known = _UNKNOWN_TO_LATEX.sub(lambda unknown: f"(U+{ord(unknown[0]):04X})", escaped)
    return _NORM.sub(r"$\\ell_\1$", _MINUS.sub("$-$", known))


def for_spreadsheet(text: str) -> str:
    """One line that no spreadsheet takes for a formula."""
    seen = visible(text)
    return f"'{seen}" if _FORMULA.match(seen) else seen


def for_figure(text: str) -> str:
    """One line in which matplotlib sees no mathematics, and that it does not hide in a legend."""
    seen = visible(text).replace("$", r"\$")
    return f" {seen}" if seen.startswith("_") else seen
