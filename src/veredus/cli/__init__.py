"""The command line: `veredus VERB …`. Data on standard output, all else on standard error.

Only click is imported before a verb is known: what a verb needs is imported when it runs. Exit codes are in
`veredus.cli.exits`.
"""

from __future__ import annotations

import gc
import importlib
import signal
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

VERBS = {
    "serve": ("veredus.cli.serve:serve", "Run a node."),
    "node": ("veredus.cli.node:node", "Make a running node read its changed settings."),
    "proxy": ("veredus.cli.proxy:proxy", "Run a proxy of the topic service."),
    "pub": ("veredus.cli.publish:publish", "Publish records from standard input or a file."),
    "sub": ("veredus.cli.subscribe:subscribe", "Print the publications of a stream, and wait for new ones."),
    "stream": ("veredus.cli.streams:streams", "List, show, create, alter, trim and remove streams."),
    "subscription": (
        "veredus.cli.subscriptions:subscriptions",
        "List, show, remove and redrive durable subscriptions.",
    ),
    "stage": ("veredus.cli.stages:stages", "List and drop the open stages of sinks."),
    "topics": (
        "veredus.cli.topics:topics",
        "Use the topic service: subscribe, unsubscribe, get and put.",
    ),
    "token": ("veredus.cli.tokens:tokens", "Make, list and remove access tokens."),
    "journal": ("veredus.cli.journal:journal", "Verify and dump a journal while its node is stopped."),
    "bench": ("veredus.cli.bench:bench", "Measure the throughput and the latency of a node."),
    "sim": ("veredus.cli.sim:sim", "Check every guarantee in simulated worlds."),
    "chaos": ("veredus.cli.chaos:chaos", "Make real processes fail, then audit the result."),
    "verify": (
        "veredus.cli.verify:verify",
        "Verify that a node causes no loss, duplicates or reordering.",
    ),
    "audit": ("veredus.cli.audit:audit", "Verify delivery from client recordings, with Spark."),
    "completion": ("veredus.cli.completion:completion", "Print what a shell needs to complete commands."),
}


_ENDS = """\b
Exit codes:
  0    success                     5    no node could be reached
  1    another failure             6    the journal is damaged
  2    bad options or settings     7    some publications are gone
  3    the node refused            8    in doubt
  4    fenced                      9    a guarantee was violated
  130  interrupted

\b
Variables:
  VEREDUS_ADDRESS      the address of the node
  VEREDUS_TOKEN        the access token
  VEREDUS_AUTHORITIES  certificate authorities to trust, PEM
  VEREDUS_SETTINGS     the settings file of `serve` and of the topic service
  VEREDUS_SECTION_NAME any setting of `serve`: `veredus serve --check` lists them
"""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are called; their help is known before."""

    def __init__(self, *args: Any, verbs: dict[str, tuple[str, str]], **kwargs: Any) -> None:
        """`verbs`: module:attribute and short help by name, in the order in which they are listed."""
        super().__init__(*args, **kwargs)
        self._verbs = verbs

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs in their order."""
        return list(self._verbs)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        if cmd_name not in self._verbs:
            return None
        module, _, attribute = self._verbs[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._verbs.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The verbs and options that begin so, without importing any verb."""
        from click.shell_completion import CompletionItem

        verbs = [
            CompletionItem(name, help=text) for name, (_, text) in self._verbs.items() if name.startswith(incomplete)
        ]
        return [*verbs, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that `args` name; for an unknown one, the error names the nearest."""
        name = args[0]
        if name not in self._verbs and not name.startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(name, list(self._verbs), 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"There is no command {name!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    verbs=VERBS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=_ENDS,
)
@click.version_option(package_name="veredus", message="veredus %(version)s")
def veredus() -> None:
    """Exactly-once publish/subscribe, with Spark."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    from veredus.cli.exits import Exit, hold_standard_streams, run

    hold_standard_streams()
    # SIGTERM ends a command as Ctrl-C does: what it made is removed, what it wrote is whole.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A verb imports some hundred modules, and what they make stays: looking for garbage in it took a fifth of the time.
    gc.set_threshold(50_000, 50, 100)
    try:
        code = run(veredus, arguments)
        _interrupt_no_more()
    except KeyboardInterrupt:
        # As the command ended. All is said; a sender that signals twice means one thing.
        _interrupt_no_more()
        code = Exit.INTERRUPTED
    # Nor is any looked for in it at the end, by which the interpreter takes it all apart: that took a quarter.
    gc.freeze()
    sys.exit(code)


def _interrupt_no_more() -> None:
    """Let no interrupt raise anything: the command is over, and the interpreter would show it as a fault in its end."""
    endings = sys.modules.get("veredus.client.endings")
    if endings is not None:
        endings.hear_interrupts(signal.SIG_IGN)
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is signal.default_int_handler:
            signal.signal(number, signal.SIG_IGN)
