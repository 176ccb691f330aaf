"""`veredus completion`: what a shell reads to complete commands and options, made from the commands themselves."""

from __future__ import annotations

import click

from veredus.cli.exits import COMPLETION_VARIABLE

SHELLS = ("bash", "zsh", "fish")
_PLACES = """\b
Where a shell looks for it:
  bash  veredus completion bash > ~/.local/share/bash-completion/completions/veredus
  zsh   veredus completion zsh > ~/.zfunc/_veredus, and fpath+=~/.zfunc before compinit
  fish  veredus completion fish > ~/.config/fish/completions/veredus.fish
"""


@click.command(epilog=_PLACES)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script by which SHELL completes commands, options and their values."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(context.find_root().command, {}, "veredus", COMPLETION_VARIABLE).source()
    # click's script for fish would end what is said of a command at its first comma.
    click.echo(script.replace('string split ","', 'string split --max 1 ","'))
