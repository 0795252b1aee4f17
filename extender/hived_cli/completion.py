"""`hived completion`: click's completion scripts under a name that people look for."""

import click
from click.shell_completion import get_completion_class

from hived.values.errors import UserError
from hived_cli import main


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that completes hived in your shell.

    \b
    Examples:
      source <(hived completion bash)                                 this shell only
      hived completion zsh > ~/.zfunc/_hived                          zsh, with ~/.zfunc in fpath
      hived completion fish > ~/.config/fish/completions/hived.fish   fish, for good
    """
    completion_class = get_completion_class(shell)
    if completion_class is None:
        raise UserError(f"no completion script for {shell}; expected bash, zsh or fish")
    click.echo(completion_class(main, {}, "hived", "_HIVED_COMPLETE").source())
