"""Print a completion script for a shell: commands, options and their fixed values; file names elsewhere.

Examples:

  bridle completion bash >> ~/.bash_completion
  bridle completion zsh > ~/.zfunc/_bridle          (a folder in $fpath)
  bridle completion fish > ~/.config/fish/completions/bridle.fish
"""

import argparse
from collections.abc import Iterable

from bridle.cli.format.printing import write_raw
from bridle.cli.main import COMMANDS, make_parser
from bridle.values.base import Value


class CompletedOption(Value):
    """An option of a command, with its fixed values if it has any."""

    names: tuple[str, ...]
    meaning: str
    choices: tuple[str, ...] = ()
    takes_value: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELL_WRITERS, help="shell to complete in")


def execute(options: argparse.Namespace) -> int:
    write_raw(SHELL_WRITERS[options.shell]({name: _list_options(name) for name in COMMANDS}))
    return 0


def _list_options(command: str) -> list[CompletedOption]:
    return [
        CompletedOption(
            names=tuple(action.option_strings),
            meaning=" ".join((action.help or "").replace("%%", "%").split()),
            choices=tuple(map(str, action.choices or ())),
            takes_value=action.nargs != 0,
        )
        for action in make_parser(command)._actions
        if action.option_strings
    ]


CommandOptions = dict[str, list[CompletedOption]]


def _write_bash(commands: CommandOptions) -> str:
    lines = [
        "# Completion of bridle in bash.",
        "_bridle() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" words=""',
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        f"    words={_quote(' '.join([*commands, 'help', '--help', '--version']))}",
        '  elif [ "${COMP_WORDS[1]}" = help ]; then',
        f"    words={_quote(' '.join(commands))}",
        "  else",
        '    case "${COMP_WORDS[1]} $previous" in',
    ]
    for name, options in commands.items():
        for option in options:
            if option.takes_value:
                patterns = "|".join(_quote(f"{name} {each}") for each in option.names)
                lines.append(f"      {patterns}) words={_quote(' '.join(option.choices))};;")
        flags = [each for option in options for each in option.names]
        lines.append(f"      {_quote(f'{name} ')}*) words={_quote(' '.join(flags))};;")
    lines += [
        "    esac",
        "  fi",
        '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "}",
        "complete -o default -F _bridle bridle",
    ]
    return "\n".join(lines) + "\n"


def _write_zsh(commands: CommandOptions) -> str:
    lines = [
        "#compdef bridle",
        "_bridle() {",
        "  local -a commands options",
        "  commands=(",
        *(f"    {_quote(f'{name}:{_escape_colon(what)}')}" for name, what in COMMANDS.items()),
        "  )",
        "  if (( CURRENT == 2 )); then _describe command commands; return; fi",
        '  case "$words[2] $words[CURRENT-1]" in',
    ]
    for name, options in commands.items():
        for option in options:
            if option.takes_value:
                patterns = "|".join(_quote(f"{name} {each}") for each in option.names)
                action = f"compadd -- {_quote_all(option.choices)}" if option.choices else "_files"
                lines.append(f"    {patterns}) {action}; return;;")
    lines += ["  esac", '  case "$words[2]" in']
    for name, options in commands.items():
        listed = [f"{each}:{_escape_colon(option.meaning)}" for option in options for each in option.names]
        lines.append(f"    {name}) options=({_quote_all(listed)});;")
    lines += ["  esac", "  _describe option options -o", "  _files", "}", '_bridle "$@"']
    return "\n".join(lines) + "\n"


def _write_fish(commands: CommandOptions) -> str:
    lines = ["# Completion of bridle in fish."]
    for name, what in COMMANDS.items():
        lines.append(f"complete -c bridle -f -n __fish_use_subcommand -a {name} -d {_quote_fish(what)}")
        for option in commands[name]:
            spelled = " ".join(
                f"-l {each[2:]}" if each.startswith("--") else f"-s {each[1:]}" for each in option.names
            )
            value = " -r" if option.takes_value else ""
            fixed = f" -f -a {_quote_fish(' '.join(option.choices))}" if option.choices else ""
            seen = _quote_fish(f"__fish_seen_subcommand_from {name}")
            meaning = _quote_fish(option.meaning)
            lines.append(f"complete -c bridle -n {seen} {spelled}{value}{fixed} -d {meaning}")
    return "\n".join(lines) + "\n"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _quote_all(texts: Iterable[str]) -> str:
    return " ".join(map(_quote, texts))


def _quote_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _escape_colon(text: str) -> str:
    return text.replace(":", "\\:")


SHELL_WRITERS = {"bash": _write_bash, "zsh": _write_zsh, "fish": _write_fish}
