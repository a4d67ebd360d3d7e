"""The command ``explore``: the plane of initializations in the browser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from flowsim.cli import options
from flowsim.cli.groups import ReducedModelOptions
from flowsim.cli.output import say
from flowsim.errors import InputError

if TYPE_CHECKING:
    from flowsim.explorer.view import View


@dataclass(frozen=True)
class Explore(ReducedModelOptions):
    """The options of ``explore``."""

    p: options.P = None
    q: options.Q = None
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="PORT", rich_help_panel=options.WORK,
            help="Where the page is served, on this machine only; 0 for any free port.",
        ),
    ] = 5006  # fmt: skip
    no_browser: Annotated[
        bool,
        typer.Option(
            "--no-browser", help="Open no browser.", rich_help_panel=options.WORK
        ),
    ] = False  # fmt: skip
    quiet: options.Quiet = False


def explore(given: Explore) -> None:
    """Explore basins, orbits and full training in the browser, until Ctrl-C.

    The page is served by this machine to this machine alone and needs no internet. Its address
    brings back what is on it. Needs the extra: pip install "flowsim[explore]".

    \b
    Examples:
      flowsim explore
      flowsim explore --p 0.2 --q 0.3 --model rank-one
    """
    view = _view(given)
    try:
        import bokeh  # noqa: F401
    except ImportError:
        raise InputError('explore needs Bokeh: pip install "flowsim[explore]"') from None
    import torch

    from flowsim.explorer.server import serve

    torch.set_num_threads(1)  # several pages share the cores

    def ready(address: str) -> None:
        if not given.quiet:
            say(f"the explorer is at {address} (end it with Ctrl-C)")
        if not given.no_browser:
            import webbrowser

            webbrowser.open(address)

    serve(view, given.port, ready)


def _view(given: Explore) -> View:
    """What a page shows first."""
    from flowsim.explorer.view import View

    usual = View()
    states = given.model == "states"
    if states and given.q is not None:
        raise InputError("the states model takes no q: its chain stays with probability 1 - p")
    p = given.p if given.p is not None else (0.9 if states else usual.p)
    choice = given.choice()
    return View(choice, p, usual.q if given.q is None else given.q, tuple(given.fixed().items()))
