"""The command line: `veredus VERB …`. Data on standard output, all else on standard error.

Only click is imported before a verb is known: what a verb needs is imported when it runs. Exit codes are in
`veredus.cli.exits`.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import click

VERBS = {
    "serve": ("veredus.cli.serve:serve", "Run a node."),
    "proxy": ("veredus.cli.proxy:proxy", "Run a proxy of the topic service."),
    "pub": ("veredus.cli.publish:publish", "Publish what comes on standard input, or from a file."),
    "sub": ("veredus.cli.subscribe:subscribe", "Print what a stream holds and will hold."),
    "stream": ("veredus.cli.streams:streams", "List, show, create, trim and remove streams."),
    "subscription": ("veredus.cli.subscriptions:subscriptions", "List, show and remove durable subscriptions."),
    "topics": (
        "veredus.cli.topics:topics",
        "Subscribe, unsubscribe, get and put, through the topic service's proxies.",
    ),
    "token": ("veredus.cli.tokens:tokens", "Make, list and remove the tokens of peers."),
    "journal": ("veredus.cli.journal:journal", "Verify and dump a journal while nobody uses it."),
    "bench": ("veredus.cli.bench:bench", "Measure a node: throughput, then latency."),
    "sim": ("veredus.cli.sim:sim", "Hold every guarantee in simulated worlds."),
    "chaos": ("veredus.cli.chaos:chaos", "Let real processes fail on purpose, then audit."),
    "verify": (
        "veredus.cli.verify:verify",
        "Prove that a node loses, doubles and reorders nothing.",
    ),
    "audit": ("veredus.cli.audit:audit", "Prove or refute it by what everybody wrote down, with Spark."),
}


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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that `args` name; for an unknown one, the nearest is told."""
        name = args[0]
        if name not in self._verbs and not name.startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(name, list(self._verbs), 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"There is no command {name!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    verbs=VERBS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes and the variables that are read: docs/reference/cli.md.",
)
@click.version_option(package_name="veredus", message="veredus %(version)s")
def veredus() -> None:
    """Exactly-once publish/subscribe, with Spark."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave the process with its exit code."""
    from veredus.cli.exits import run

    sys.exit(run(veredus, arguments))
