"""The command ``explore``: the plane of initializations in the browser."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from flowsim.cli import groups, options
from flowsim.cli.options import WORK, flag, option
from flowsim.cli.output import echo, warn
from flowsim.errors import InputError
from flowsim.spec import BUILT_IN, ModelSpec, built_in, parameters

if TYPE_CHECKING:
    from flowsim.explorer.view import View


@dataclass(frozen=True)
class Explore(groups.ModelOnChain, groups.Window):
    port: Annotated[
        int,
        option(WORK, "PORT", "Where the page is served, on this machine only; 0 for any free port.",
               min=0, max=65535),
    ] = 5006  # fmt: skip
    no_browser: Annotated[bool, flag(WORK, "--no-browser", "Open no browser.")] = False
    quiet: options.Quiet = False


def explore(given: Explore) -> None:
    """Explore basins, orbits and full training in the browser, until Ctrl-C.

    The page can be opened on this machine only and needs no internet. Its address
    brings back what is on it. Needs the extra: pip install ".[explore]".

    \b
    Examples:
      flowsim explore
      flowsim explore --p 0.2 --q 0.3 --model rank-one
      flowsim explore --model mine.py:DoubleWell --window x=-2:2,y=-2:2
    """
    if not given.quiet and sys.stderr.isatty():  # before the first import, which takes seconds
        warn("the explorer starts; its address follows in a few seconds")
    view = first_view(given)
    try:
        import bokeh  # noqa: F401
    except ImportError:
        raise InputError('explore needs Bokeh: pip install ".[explore]"') from None
    import torch

    from flowsim.explorer.server import serve

    torch.set_num_threads(1)  # several pages share the cores

    def ready(address: str) -> None:
        """Say the page's address, and open it in the browser, as the options ask."""
        if not given.quiet:
            echo(f"the explorer is at {address} (end it with Ctrl-C)")
        if not given.no_browser:
            import webbrowser

            webbrowser.open(address)

    serve(view, given.port, ready)


def first_view(given: Explore) -> View:
    """Return the view with which the page opens."""
    from flowsim.explorer.view import View, Window
    from flowsim.interface import chosen_axes, with_axes

    known = parameters(built_in(given.model)) if given.model in BUILT_IN else {}
    usual = {name: known[name].default for name in ("p", "q") if name in known}
    spec = ModelSpec(given.model, usual | given.arguments())
    View(spec)  # refuses sizes that no page shows, before a model of that size is built
    model = with_axes(spec.build(), *given.windows())
    plane = model.plane
    window = plane.window | given.windows()
    return View(
        spec, fixed=tuple(given.fixed().items()),
        window=Window(*window[plane.x], *window[plane.y]), axes=chosen_axes(model),
    )  # fmt: skip
