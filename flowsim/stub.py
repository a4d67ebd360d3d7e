"""Public names as the stub of a package, which editors and type checkers read, lists them."""


def names_of(file: str) -> dict[str, str]:
    """The module within the package of every name that the stub beside its file imports.

    A line of the stub is "from package.module import name as name".
    """
    with open(file.removesuffix(".py") + ".pyi", encoding="utf-8") as stub:
        lines = [line.split() for line in stub if line.startswith("from ")]
    homes = {words[3]: words[1].partition(".")[2] for words in lines if words[4:5] == ["as"]}
    return dict(sorted(homes.items()))
