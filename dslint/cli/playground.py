"""`dslint playground`: the page that lints in the browser, served on this machine."""

from __future__ import annotations

import functools
import importlib.util
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import click

from dslint.errors import UserError
from dslint.project import SITE, install_command

BUILT = Path("build/site")
"""Where a clone of the repository builds the site."""

PACKAGE = "dslint_playground"
"""The package of the extra `playground`, which holds the page and the Python for browsers in it."""

FIRST, LAST = 1, 65535


@click.command(name="playground", short_help="Serve the page that lints in the browser.")
@click.option(
    "--site",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="The built documentation site, or the folder of the page in it.  [default: build/site, or else the installed page]",
)
@click.option("--port", type=click.IntRange(FIRST, LAST), metavar="PORT", default=8765, show_default=True, help="The port to serve at.")
@click.option("--open", "opens", is_flag=True, help="Also open the page in a browser.")
def command(site: Path | None, port: int, opens: bool) -> None:  # noqa: FBT001 - click passes it by name
    """Serve the playground on this machine, until interrupted: an editor that checks, estimates and diagnoses in the browser. No other
    machine can reach it.

    The page contains a Python for browsers, so it is a package of its own: pip install "deepspeed-lint[playground]". A clone of the
    repository builds it with python scripts/build_playground.py, which requires node.
    """
    root, page = find_page(site)
    try:
        server = serve(root, port)
    except OSError as error:
        raise UserError(f"cannot serve at port {port}: {error.strerror or error}; pass another --port.") from None
    address = f"http://localhost:{server.server_port}/{page}"
    click.echo(f"Serving the playground at {address} (Ctrl-C stops it)")
    if opens:
        import webbrowser

        webbrowser.open(address)
    with server:
        server.serve_forever()


def find_page(site: Path | None) -> tuple[Path, str]:
    """The folder to serve, and the path of the page in it. Without `site`, the page that a clone has built, or the installed one.

    Raises:
        UserError: the page is not there.
    """
    for folder in (BUILT, installed()) if site is None else (site,):
        for page in ("playground/", ""):
            if folder and (folder / page / "worker.js").is_file():
                return folder, page
    missing = f"there is no playground in {site}" if site else "the playground is not installed"
    elsewhere = f" It is also at {SITE}/playground/." if SITE else ""
    raise UserError(
        f"{missing}. Install it with `{install_command('playground')}`, or build it in a clone of the repository with "
        f"`python scripts/build_playground.py` (requires node).{elsewhere}"
    )


def installed() -> Path | None:
    """The folder of the installed page, if the extra is installed."""
    spec = importlib.util.find_spec(PACKAGE)
    return Path(spec.submodule_search_locations[0]) / "page" if spec and spec.submodule_search_locations else None


class Handler(SimpleHTTPRequestHandler):
    """Serves files without a line for each. The system's table of types is not asked: it is often wrong."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {
        ".css": "text/css",
        ".html": "text/html",
        ".js": "text/javascript",
        ".json": "application/json",
        ".mjs": "text/javascript",
        ".svg": "image/svg+xml",
        ".wasm": "application/wasm",
    }

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in the standard library
        """Say nothing."""


def serve(root: Path, port: int) -> ThreadingHTTPServer:
    """A server of a folder for this machine only; raises `OSError` if the port cannot be used."""
    return ThreadingHTTPServer(("127.0.0.1", port), functools.partial(Handler, directory=str(root)))
