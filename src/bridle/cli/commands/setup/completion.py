"""Print a completion script for a shell: commands, options, their fixed values, session ids and model names.

File names complete everywhere else.
"""

import argparse
from collections.abc import Iterable
from typing import Literal

from bridle.cli.command_table import COMMANDS, DEFAULT_SUBCOMMANDS, SUBCOMMANDS, VIEWS
from bridle.cli.format.printing import write_raw
from bridle.cli.main import make_parser
from bridle.values.base import Value

CANDIDATE_KINDS: dict[str, Literal["sessions", "models"]] = {
    "session": "sessions",
    "a": "sessions",
    "b": "sessions",
    "model": "models",
    "fallback": "models",
}
"""Arguments whose values `bridle candidates` lists (candidates.py), by their name in the parsers."""
HELP_MEANING = "show the help of a command"


class CompletedArgument(Value, kw_only=True):
    """An option or, without names, a positional argument of a command."""

    names: tuple[str, ...]
    meaning: str
    choices: tuple[str, ...] = ()
    candidates: Literal["", "sessions", "models"] = ""
    takes_value: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELL_WRITERS, help="shell to complete in")


def execute(options: argparse.Namespace) -> int:
    write_raw(SHELL_WRITERS[options.shell](_list_all_arguments()))
    return 0


def _list_all_arguments() -> "CommandArguments":
    """The arguments by command; those of a group are its second words and the arguments of its default.

    A group follows its commands, because a pattern of bash for the group matches them too.
    """
    made: CommandArguments = {}
    for name in COMMANDS:
        if name not in SUBCOMMANDS:
            views = [f"show --as {view}" for view in VIEWS] if name == "show" else []
            made[name] = _join_arguments([name, *views])
            continue
        made |= {f"{name} {word}": _list_arguments(f"{name} {word}") for word in SUBCOMMANDS[name]}
        words = CompletedArgument(names=(), meaning="", choices=tuple(SUBCOMMANDS[name]))
        default = DEFAULT_SUBCOMMANDS.get(name)
        made[name] = [words, *(_list_arguments(f"{name} {default}") if default else ())]
    return made


def _join_arguments(commands: Iterable[str]) -> list[CompletedArgument]:
    """The arguments of several commands; of equal options the first one."""
    made: dict[tuple[str, ...], CompletedArgument] = {}
    for command in commands:
        for each in _list_arguments(command):
            made.setdefault(each.names, each)
    return [*made.values()]


def _list_arguments(command: str) -> list[CompletedArgument]:
    return [
        CompletedArgument(
            names=tuple(action.option_strings),
            meaning=" ".join((action.help or "").replace("%%", "%").split()),
            choices=tuple(map(str, action.choices or ())),
            candidates=CANDIDATE_KINDS.get(action.dest, ""),
            takes_value=action.nargs != 0,
        )
        for action in make_parser(command)._actions
    ]


CommandArguments = dict[str, list[CompletedArgument]]

BASH_START = """\
# Completion of bridle in bash.
_bridle() {
  local line="${COMP_LINE:0:COMP_POINT}" words="" candidates="" each
  local -a typed
  read -ra typed <<< "$line"
  if [[ $line == *[[:space:]] ]]; then typed+=(""); fi
  local count=${#typed[@]} command="${typed[1]}"
  local current="${typed[count-1]}" previous="${typed[count-2]}"
  if [[ $current == --*=* ]]; then previous="${current%%=*}" current="${current#*=}"; fi
  if (( count > 3 )); then
    case "$command ${typed[2]}" in
      @GROUPED@) command="$command ${typed[2]}";;
    esac
  fi
  case "$count $command $previous" in
"""
# Only fixed words are given to compgen, which expands what it gets.
BASH_END = """\
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ -n $candidates && $current != -* ]]; then
    while IFS= read -r each; do
      if [[ $each == "$current"* ]]; then COMPREPLY+=("$each"); fi
    done < <(bridle candidates "$candidates" 2>/dev/null </dev/null)
  fi
  # Readline replaces only what follows the last colon.
  if [[ $current == *:* && $COMP_WORDBREAKS == *:* ]]; then
    COMPREPLY=("${COMPREPLY[@]#"${current%"${current##*:}"}"}")
  fi
}
complete -o default -F _bridle bridle
"""


def _write_bash(commands: CommandArguments) -> str:
    lines = [
        f"    '2 '*) words={_quote(' '.join([*COMMANDS, 'help', '--help', '--version']))};;",
        f"    *' help '*) words={_quote(' '.join(COMMANDS))};;",
    ]
    for name, arguments in commands.items():
        for each in arguments:
            if each.names and each.takes_value:
                patterns = "|".join(f"*{_quote(f' {name} {option}')}" for option in each.names)
                lines.append(f"    {patterns}) {_fill_bash([each.choices], [each])};;")
        offered = [each.names or each.choices for each in arguments]
        positional = [each for each in arguments if not each.names]
        lines.append(f"    *{_quote(f' {name} ')}*) {_fill_bash(offered, positional)};;")
    return BASH_START.replace("@GROUPED@", _list_grouped(commands)) + "\n".join(lines) + "\n" + BASH_END


def _list_grouped(commands: CommandArguments) -> str:
    """The commands of two words as a pattern of a shell."""
    return "|".join(_quote(name) for name in commands if " " in name)


def _fill_bash(words: Iterable[Iterable[str]], arguments: Iterable[CompletedArgument]) -> str:
    kind = next((each.candidates for each in arguments if each.candidates), "")
    return f"words={_quote(' '.join(each for some in words for each in some))} candidates={_quote(kind)}"


ZSH_START = """\
#compdef bridle
_bridle_candidates() {
  local -a found
  found=(${(f)"$(bridle candidates $1 2>/dev/null </dev/null)"})
  compadd -V candidates -- $found
}
_bridle() {
  local chosen=$words[2] previous=$words[CURRENT-1]
  if (( CURRENT > 3 )); then
    case "$chosen $words[3]" in
      @GROUPED@) chosen="$chosen $words[3]";;
    esac
  fi
  local -a described
"""
ZSH_COMMANDS_END = """\
  if (( CURRENT == 2 )) && [[ $PREFIX == -* ]]; then compadd -- --help --version; return; fi
  if (( CURRENT == 2 )) || [[ $chosen == help ]]; then _describe command described; return; fi
  if [[ $PREFIX == --*=* ]]; then previous=${PREFIX%%=*}; compset -P 1 '*='; fi
  case "$chosen $previous" in
"""
# The file is a function of $fpath, or it is sourced after compinit.
ZSH_END = """\
    *) _files;;
  esac
}
if [[ $funcstack[1] == _bridle ]]; then _bridle "$@"; else compdef _bridle bridle; fi
"""


def _write_zsh(commands: CommandArguments) -> str:
    known = [*COMMANDS.items(), ("help", HELP_MEANING)]
    lines = [f"  described=({_quote_all(f'{name}:{_escape_colon(what)}' for name, what in known)})"]
    lines.append(ZSH_COMMANDS_END.rstrip("\n"))
    for name, arguments in commands.items():
        for each in arguments:
            if each.names and each.takes_value:
                patterns = "|".join(_quote(f"{name} {option}") for option in each.names)
                lines.append(f"    {patterns}) {_offer_zsh(each)}; return;;")
    lines += ["  esac", '  case "$chosen" in']
    for name, arguments in commands.items():
        listed = [f"{option}:{_escape_colon(each.meaning)}" for each in arguments for option in each.names]
        offers = [f"described=({_quote_all(listed)})", "_describe -o option described"]
        offers += dict.fromkeys(_offer_zsh(each) for each in arguments if not each.names)
        lines.append(f"    {_quote(name)}) {'; '.join(offers)};;")
    return ZSH_START.replace("@GROUPED@", _list_grouped(commands)) + "\n".join(lines) + "\n" + ZSH_END


def _offer_zsh(argument: CompletedArgument) -> str:
    if argument.candidates:
        return f"_bridle_candidates {argument.candidates}"
    return f"compadd -- {_quote_all(argument.choices)}" if argument.choices else "_files"


FISH_START = """\
# Completion of bridle in fish.
function __bridle_has_command
    set -l typed (commandline -opc)
    test (count $typed) -ge 2; and test "$typed[2]" = $argv[1]; or return 1
    if test (count $argv) -ge 2
        test (count $typed) -ge 3; and test "$typed[3]" = $argv[2]
    end
end
function __bridle_needs_command
    test (count (commandline -opc)) -eq 1
end
complete -c bridle -n __bridle_needs_command -f
complete -c bridle -n __bridle_needs_command -l version -d 'show the version'
complete -c bridle -n __bridle_needs_command -s h -l help -d 'list the commands'
"""


def _write_fish(commands: CommandArguments) -> str:
    lines = []
    for name, what in (*COMMANDS.items(), ("help", HELP_MEANING)):
        meaning = _quote_fish(what)
        for condition in ("__bridle_needs_command", "'__bridle_has_command help'"):
            lines.append(f"complete -c bridle -f -n {condition} -a {name} -d {meaning}")
    for name, arguments in commands.items():
        for each in arguments:
            before_word = "; and test (count (commandline -opc)) -eq 2" if name in SUBCOMMANDS else ""
            line = f"complete -c bridle -n '__bridle_has_command {name}{before_word}'{_offer_fish(each)}"
            if each.names:
                spelled = (f"-l {it[2:]}" if it.startswith("--") else f"-s {it[1:]}" for it in each.names)
                value = " -r" if each.takes_value else ""
                line += f" {' '.join(spelled)}{value} -d {_quote_fish(each.meaning)}"
            if each.names or each.choices or each.candidates:
                lines.append(line)
    return FISH_START + "\n".join(dict.fromkeys(lines)) + "\n"


def _offer_fish(argument: CompletedArgument) -> str:
    if argument.candidates:
        return f" -f -k -a '(bridle candidates {argument.candidates} 2>/dev/null </dev/null)'"
    return f" -f -a {_quote_fish(' '.join(argument.choices))}" if argument.choices else ""


def _quote(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _quote_all(texts: Iterable[str]) -> str:
    return " ".join(map(_quote, texts))


def _quote_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _escape_colon(text: str) -> str:
    return text.replace(":", "\\:")


SHELL_WRITERS = {"bash": _write_bash, "zsh": _write_zsh, "fish": _write_fish}
