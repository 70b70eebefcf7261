"""The completion scripts of shells, where click's own would not do."""

import os

from click.shell_completion import BashComplete, FishComplete, add_completion_class, split_arg_string

# readline replaces only what follows the last : or = of a word (COMP_WORDBREAKS), so an answer is cut there, too.
_BASH = """\
%(complete_func)s() {
    local IFS=$'\\n' line=${COMP_LINE:0:COMP_POINT} breaks=${COMP_WORDBREAKS//[^:=]/} cut= last type value
    last=${line##*[[:space:]]}
    [[ -z $breaks ]] || cut=${last%%"${last##*[$breaks]}"}
    COMPREPLY=()
    while IFS=',' read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                [[ $value != *= ]] || compopt -o nospace
                COMPREPLY+=("${value#"$cut"}")
                ;;
        esac
    done < <(env TACO_LAUNCH_COMPLETE_LINE="$line" %(complete_var)s=bash_complete "$1")
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""
_LINE = "TACO_LAUNCH_COMPLETE_LINE"


class WholeWords(BashComplete):
    """bash, with words that have a colon or an equals sign: gpu1:8,gpu2 and lab:NAME."""

    source_template = _BASH

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the cursor, and what is typed of the last one."""
        line = os.environ.get(_LINE)
        if line is None:
            return super().get_completion_args()
        words = split_arg_string(line)[1:]
        last = "" if not words or line[-1:].isspace() else words.pop()
        return words, last


class WholeValues(FishComplete):
    """fish, with values that have a comma: gpu1:8,gpu2."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


def register() -> None:
    """Use these scripts in place of click's."""
    add_completion_class(WholeWords, "bash")
    add_completion_class(WholeValues, "fish")
