"""Command lines of flowsim 0.1.0 that are spelled otherwise now: one sentence with the new way."""

from __future__ import annotations

_NAMES = "canonical, uniform, linear, untied or rank-one"


def former_spelling(words: list[str]) -> str | None:
    """What to write instead of a command line's former spelling; None if it has none.

    Args:
        words: the command and its arguments.
    """
    if not words:
        return None
    command, given = words[0], _options(words[1:])
    if command == "portrait" and given.get("--attention") is not None:
        return (
            f"--attention KIND is now --model NAME with one of {_NAMES}; --attention alone gives "
            "the rank-one model its attention"
        )
    if command in ("portrait", "compare") and "--a" in given:
        return f"--a is now --fix a={given['--a'] or 'X'}"
    if command == "compare" and given.get("--model") == "attention":
        return "--model attention is now --model uniform"
    if command == "compare" and "--from" in given and set(given) - _REDRAWING:
        return "--from now redraws a comparison; the starts of a file or record are --points FILE"
    if command == "scan" and "--compile" in given:
        return "--compile is gone: every integrator is compiled now; omit it"
    return None


#: Options that do not tell that --from is meant as it was; --require is refused beside it later.
_REDRAWING = {
    "--from", "--out", "--json", "--overwrite", "--quiet", "--require", "-h", "--help",
}  # fmt: skip


def _options(words: list[str]) -> dict[str, str | None]:
    """Options with the word that follows, or that stands after =; None if there is none."""
    found: dict[str, str | None] = {}
    for word, after in zip(words, [*words[1:], "--"], strict=False):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found[name] = value if equals else None if after.startswith("--") else after
    return found
