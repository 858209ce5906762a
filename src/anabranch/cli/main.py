"""The command line. Each command is a few lines here; the work is in its own module."""

from __future__ import annotations

import os
import signal
import sys
from importlib.metadata import version as installed
from pathlib import Path
from typing import Annotated

import typer

from anabranch.cli.show.tables import err, show_error
from anabranch.cli.signals import stop_cleanly_on_signals
from anabranch.config.address import read_address
from anabranch.config.model import DEFAULT_STATE
from anabranch.errors import AnabranchError, SetupError
from anabranch.units import duration_us

app = typer.Typer(
    name="anabranch",
    help="Continuous queries over many Spark sites, as if they were one stream system.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"anabranch {installed('anabranch')} (Spark {installed('pyspark')})")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", is_eager=True, callback=_show_version),
    ] = False,
) -> None:
    pass


ClusterFile = Annotated[
    Path | None, typer.Option("--cluster", help="cluster.toml; without it all sites run here.")
]
StateFolder = Annotated[
    Path, typer.Option("--state", envvar="ANABRANCH_STATE", help="Folder of the running system.")
]
Wait = Annotated[
    bool, typer.Option(help="Wait for sites that `up` is starting, or refuse at once.")
]
SiteName = Annotated[str, typer.Argument(help="Name of the site.")]
INTERRUPTED = 130
"""The exit code, which Typer too makes of a KeyboardInterrupt."""


@app.command()
def run(
    script: Annotated[Path, typer.Argument(help="File with statements.")],
    cluster: ClusterFile = None,
    for_: Annotated[
        str | None, typer.Option("--for", metavar="DURATION", help="Stop after this, e.g. 30s.")
    ] = None,
    until_idle: Annotated[
        bool,
        typer.Option(
            "--until-idle", help="Stop when every finite source is used up and all results are out."
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the final status as JSON.")] = False,
) -> None:
    """Run a script on sites of its own and show its queries live."""
    from anabranch.cli.queries.run import run_script

    seconds = duration_us(for_) / 1e6 if for_ else None
    run_script(script, cluster, seconds, until_idle, json)


@app.command()
def demo(
    for_: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long the fire takes.")
    ] = "30s",
    quick: Annotated[bool, typer.Option("--quick", help="The fire alone: a minute.")] = False,
    stay: Annotated[bool, typer.Option("--stay", help="Keep the dashboard until Ctrl-C.")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Keep what is written here.")] = None,
    kill: Annotated[bool, typer.Option(help="Kill the security centre meanwhile.")] = True,
    show: Annotated[bool, typer.Option("--show", help="Print its script instead.")] = False,
) -> None:
    """Watch what the system does, on the terminal and a dashboard: three minutes.

    A fire whose security centre is killed, a query that moves as the network changes, deadlines, a
    count under skew, and estimates of what a dead worker would have computed."""
    from anabranch.cli.sites.demo import run_demo, show_script

    if show:
        show_script()
    else:
        run_demo(duration_us(for_) / 1e6, out, kill=kill, quick=quick, stay=stay)


@app.command()
def up(
    cluster: ClusterFile = None,
    state: StateFolder = DEFAULT_STATE,
    site: Annotated[
        list[str] | None,
        typer.Option("--site", help="Without a cluster file: a site to start. Repeat it for more."),
    ] = None,
    http: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="Where the dashboard and the HTTP API are; or off."),
    ] = "",
    anew: Annotated[
        bool,
        typer.Option("--anew", help="Begin everything from the beginning; deletes what there is."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before --anew deletes.")] = False,
) -> None:
    """Start a coordinator and its sites, and keep them running. What ran before goes on where it
    was."""
    from anabranch.cli.sites.up import up as start

    at = read_address(http) if http not in ("", "off") else None
    start(cluster, state, site or [], at, face=http != "off", anew=anew, yes=yes)


@app.command()
def down(state: StateFolder = DEFAULT_STATE) -> None:
    """Stop the system that `up` started."""
    from anabranch.cli.sites.running import down as stop

    stop(state)


@app.command()
def sql(
    state: StateFolder = DEFAULT_STATE,
    execute: Annotated[
        str | None, typer.Option("--execute", "-e", help="Run these statements and leave.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Run this script.")] = None,
    wait: Wait = True,
) -> None:
    """Type statements at a running system."""
    from anabranch.cli.queries.sql import interactive, once

    if execute is not None or file is not None:
        once(state, execute, file, wait=wait)
    else:
        interactive(state, wait=wait)


@app.command()
def token(
    state: StateFolder = DEFAULT_STATE,
    reader: Annotated[
        bool, typer.Option("--reader", help="One that may only look, for scrapers and the like.")
    ] = False,
) -> None:
    """Print the token that the HTTP API of a running system asks for."""
    from anabranch.coordinator.service.state import endpoint_in

    _, credentials = endpoint_in(state)
    print(credentials.reader_token if reader else credentials.token)


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="Python file with a Pocket class.")],
    class_: Annotated[
        str | None, typer.Option("--class", metavar="NAME", help="Which, if it has several.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="What to call it; default: the name of its class.")
    ] = None,
    state: StateFolder = DEFAULT_STATE,
    wait: Wait = True,
) -> None:
    """Start a pocket, a program of your own, in a running system."""
    from anabranch.cli.queries.submit import submit as start

    start(file, class_, name, state, wait=wait)


@app.command()
def explain(
    script: Annotated[Path, typer.Argument(help="File with statements.")],
    query: Annotated[str | None, typer.Argument(help="One of its queries; default: all.")] = None,
    svg: Annotated[
        Path | None, typer.Option("--svg", metavar="FILE", help="Also draw a picture.")
    ] = None,
    cluster: ClusterFile = None,
) -> None:
    """Show how the queries of a script would run, before and after rewriting."""
    from anabranch.cli.queries.run import explain_script

    explain_script(script, query, svg, cluster)


@app.command()
def check(
    script: Annotated[Path, typer.Argument(help="File with statements.")],
    cluster: ClusterFile = None,
) -> None:
    """Look for mistakes in a script, in a moment: names, clauses, options and most types."""
    from anabranch.cli.queries.check import check_script

    check_script(script, cluster)


@app.command()
def status(
    state: StateFolder = DEFAULT_STATE,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Keep showing it.")] = False,
) -> None:
    """Show the sites and queries of a running system."""
    from anabranch.cli.sites.running import show_status

    show_status(state, as_json=json, watch=watch)


@app.command()
def move(
    query: Annotated[str, typer.Argument(help="Name of the query.")],
    site: Annotated[str, typer.Argument(help="Where it is to go on.")],
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Have a query go on at another site, without losing or repeating a tuple."""
    from anabranch.cli.queries.move import move as start

    start(query, site, state)


@app.command()
def replan(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would move, and what that saves.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Place again what runs, by the network as it is now, and move what should be elsewhere."""
    from anabranch.cli.queries.move import replan as start

    start(state, dry_run=dry_run, as_json=json)


@app.command()
def backup(
    folder: Annotated[Path, typer.Argument(help="A folder that is not there yet.")],
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Copy a whole running system: catalog, positions, logs of all sites."""
    from anabranch.cli.sites.backup import backup as start

    start(folder, state)


@app.command()
def restore(
    folder: Annotated[Path, typer.Argument(help="What `backup` has made.")],
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Make a state folder from a backup; `up` goes on from it."""
    from anabranch.cli.sites.backup import restore as start

    start(folder, state)


@app.command()
def network(
    export: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write one matrix a sample there.")
    ] = None,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw what runs, on the sites.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="All that was measured, as JSON.")] = False,
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Latencies between the sites, as measured."""
    from anabranch.cli.queries.move import network as show

    show(state, export, svg, as_json=json)


@app.command()
def report(
    out: Annotated[Path, typer.Argument(help="The file to write.")] = Path("report.html"),
    state: StateFolder = DEFAULT_STATE,
) -> None:
    """Write what a running system did in the last ten minutes to one HTML file."""
    from anabranch.cli.sites.running import report as write

    write(out, state)


@app.command()
def dashboard(state: StateFolder = DEFAULT_STATE) -> None:
    """Print an address that opens the dashboard of a running system: in one browser, once."""
    from anabranch.cli.sites.running import dashboard as show

    show(state)


@app.command()
def kill(site: SiteName, state: StateFolder = DEFAULT_STATE) -> None:
    """Kill a site's process, to see what happens then."""
    from anabranch.cli.sites.running import signal_site

    signal_site(site, signal.SIGKILL, state)


@app.command()
def pause(site: SiteName, state: StateFolder = DEFAULT_STATE) -> None:
    """Stop a site's process until `resume`, as if its machine hung."""
    from anabranch.cli.sites.running import signal_site

    signal_site(site, signal.SIGSTOP, state)


@app.command()
def resume(site: SiteName, state: StateFolder = DEFAULT_STATE) -> None:
    """Let a site that was paused go on."""
    from anabranch.cli.sites.running import signal_site

    signal_site(site, signal.SIGCONT, state)


@app.command()
def site(
    name: SiteName,
    coordinator: Annotated[str, typer.Option(help="host:port of the coordinator.")],
    listen: Annotated[
        str | None, typer.Option(help="host:port to bind; default: any port.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="host:port that others reach it at, if not --listen.")
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="The cluster's token; default: $ANABRANCH_TOKEN.")
    ] = None,
    tls_cert: Annotated[str | None, typer.Option(help="The certificate it shows.")] = None,
    tls_key: Annotated[str | None, typer.Option(help="The key of that certificate.")] = None,
    tls_ca: Annotated[
        str | None, typer.Option(help="The authority that others' certificates are checked with.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="Folder from which it goes on after a crash; default:"
            " ~/.local/state/anabranch/sites/NAME, wherever it is started."
        ),
    ] = None,
    parent: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> None:
    """Run one site here that joins a coordinator elsewhere."""
    from anabranch.cli.sites.site import credentials_from, own_state, run_site

    credentials = credentials_from(token_file, tls_cert, tls_key, tls_ca)
    run_site(
        name,
        coordinator,
        credentials,
        listen=listen,
        address=address,
        parent=parent,
        state=state or own_state(name),
    )


@app.command(hidden=True)
def spare() -> None:
    """Wait, with a Spark, to become a site that has died; `up` starts it."""
    from anabranch.cli.sites.site import run_spare

    run_spare(os.environ.get("ANABRANCH_TOKEN", ""))


@app.command()
def prepare() -> None:
    """Archive Spark's classes, once, so that Spark starts in less time."""
    from anabranch.cli.sites.prepare import prepare as archive

    archive()


def one_allocator() -> None:
    """Makes Arrow allocate with glibc throughout, because glibc gives memory back (`spark.memory`).
    Only the environment decides this for Arrow's own code, at the time when Arrow is loaded.
    """
    if sys.platform == "linux":
        os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


_OF_COORDINATORS = ("fastapi", "highspy", "nicegui", "scipy", "uvicorn")


def _without_package(error: Exception) -> AnabranchError | None:
    """The error that a package is missing: a site may be installed without the coordinator's
    packages.
    """
    if not isinstance(error, ModuleNotFoundError) or error.name not in _OF_COORDINATORS:
        return None
    return SetupError(
        f"a coordinator needs {error.name}, which is not installed",
        remedy="Run pip install 'anabranch[coordinator]', or join a coordinator as a site.",
    )


def _without_jvm(error: Exception) -> AnabranchError | None:
    """The error that Spark's JVM has ended, if that is what caused `error`."""
    if "pyspark" not in sys.modules:
        return None
    from anabranch.spark.jvm import NO_JVM, jvm

    how = jvm.end(error)
    return SetupError(f"Spark's JVM has ended ({how})", remedy=NO_JVM) if how else None


def app_main() -> None:
    run_command(app)


def run_command(commands: typer.Typer) -> None:
    """Runs what the command line says, and ends the process. An error is one line and exit code 1
    (2 for mistakes in the command line itself); an interrupt stops cleanly with 130.
    """
    stop_cleanly_on_signals()
    one_allocator()
    try:
        code = commands(standalone_mode=False)
    except AnabranchError as error:
        show_error(error)
        code = 1
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        code = getattr(error, "exit_code", None)
        if code is None and (lost := _without_jvm(error) or _without_package(error)):
            show_error(lost)
            code = 1
        if code is None:
            raise
        show = getattr(error, "show", None)
        if show:
            show()
    if code == INTERRUPTED:
        err.print("stopped")
    sys.exit(code)
