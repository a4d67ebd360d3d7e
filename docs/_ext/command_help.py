"""The directive ``command-help``: the help texts of all commands, as they are printed."""

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from flowsim.cli.main import app


def help_texts() -> dict[str, str]:
    """What ``flowsim --help`` and ``flowsim COMMAND --help`` print, by command."""
    group = typer.main.get_command(app)
    root = group.make_context("flowsim", [], resilient_parsing=True)
    texts = {"flowsim": group.get_help(root)}
    for name in group.list_commands(root):  # type: ignore[attr-defined]
        command = group.get_command(root, name)  # type: ignore[attr-defined]
        context = command.make_context(name, [], parent=root, resilient_parsing=True)
        texts[f"flowsim {name}"] = command.get_help(context)
    return texts


class CommandHelp(SphinxDirective):
    """A section for every command."""

    def run(self) -> list[nodes.Node]:
        sections: list[nodes.Node] = []
        for name, text in help_texts().items():
            section = nodes.section(ids=[nodes.make_id(name)], names=[name])
            section += nodes.title(text=name)
            section += nodes.literal_block(text, text, language="none")
            sections.append(section)
        return sections


def setup(sphinx: Sphinx) -> dict[str, bool]:
    sphinx.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True}
