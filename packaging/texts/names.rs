//! Adds the names of pods, namespaces and containers to the completions that clap generates. `wherry __complete` prints the
//! candidates for its last argument, and nothing if that argument is not such a name.

use clap_complete::Shell;

/// Returns the completion script with the names added. Where no names apply, clap's own candidates remain.
pub fn with_names(shell: Shell, script: String) -> String {
    match shell {
        Shell::Bash => script + BASH,
        Shell::Zsh => zsh(&script),
        Shell::Fish => script + FISH,
        _ => script,
    }
}

const BASH: &str = r#"
# The names of the running agent's pods, namespaces and containers.
_wherry_names() {
    _wherry "$@"
    local IFS=$'\n' names
    names=$("$1" __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ -n "$names" ]]; then
        COMPREPLY=($names)
    fi
}

complete -F _wherry_names -o nosort -o bashdefault -o default wherry 2>/dev/null ||
    complete -F _wherry_names -o bashdefault -o default wherry
"#;

const FISH: &str = r#"
# The names of the running agent's pods, namespaces and containers.
function __wherry_names
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    command wherry __complete $before[2..-1] "$current" 2>/dev/null
end

complete -c wherry -n "__fish_seen_subcommand_from attach debug describe drain events exec keep logs pods port-forward retry top undrain" -f -a "(__wherry_names)"
complete -c wherry -n "__fish_seen_subcommand_from attach cp debug describe drain events exec keep logs pods port-forward retry top undrain" -s n -l namespace -x -a "(__wherry_names)"
complete -c wherry -n "__fish_seen_subcommand_from attach cp exec logs" -s c -l container -x -a "(__wherry_names)"
complete -c wherry -n "__fish_seen_subcommand_from debug" -l target -x -a "(__wherry_names)"
"#;

/// The function that replaces `_default`, which completes files. It takes the words from the line editor's buffer, which
/// contains the whole command line.
const ZSH: &str = r#"
# The names of the running agent's pods, namespaces and containers.
_wherry_names() {
    local -a typed names
    typed=(${(Q)${(z)LBUFFER}})
    [[ $LBUFFER == *[[:space:]] ]] && typed+=('')
    while (( $#typed )) && [[ ${typed[1]:t} != wherry ]]; do shift typed; done
    names=(${(f)"$(command wherry __complete "${(@)typed[2,-1]}" 2>/dev/null)"})
    (( $#names )) && compadd -a names
}
"#;

fn zsh(script: &str) -> String {
    let is_name = |line: &str| {
        let line = line.trim_start();
        let positional = ["pod", "pods", "names"]
            .iter()
            .any(|id| ["':", "'::", "'*:", "'*::"].iter().any(|begin| line.starts_with(&format!("{begin}{id} -- "))));
        positional || line.contains(":NAMESPACE:_default") || line.contains(":CONTAINER:_default")
    };
    let mut text = String::new();
    for (at, line) in script.lines().enumerate() {
        match is_name(line) {
            true => text += &line.replace(":_default'", ":_wherry_names'"),
            false => text += line,
        }
        text.push('\n');
        // The first line tells zsh which command the file completes.
        if at == 0 {
            text += ZSH;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::process::Command;

    fn script(shell: Shell) -> String {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut wherry::commands::definition(), "wherry", &mut text);
        with_names(shell, String::from_utf8(text).unwrap())
    }

    /// Returns the candidates that bash shows for the last word, and the arguments with which it called the program. The
    /// program prints `names`.
    fn bash(words: &[&str], names: &str) -> (Vec<String>, String) {
        let directory = tempfile::tempdir().unwrap();
        let (program, completions) = (directory.path().join("wherry"), directory.path().join("completions"));
        let called = directory.path().join("called");
        let text = format!("#!/bin/sh\nprintf '<%s>' \"$@\" > {}\nprintf '{names}'\n", called.display());
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&completions, script(Shell::Bash)).unwrap();
        // Calls the function that `complete` has registered, as readline does.
        let call = r#"
            . "$1"; shift
            function=$(complete -p wherry | sed 's/.*-F \([^ ]*\).*/\1/')
            COMP_WORDS=("$PROGRAM" "$@") COMP_CWORD=$#
            "$function" "$PROGRAM" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
            printf '%s\n' "${COMPREPLY[@]}"
        "#;
        let mut command = Command::new("bash");
        command.args(["--norc", "-c", call, "bash"]).arg(&completions).args(words).env("PROGRAM", &program);
        let output = command.output().expect("bash");
        assert!(output.status.success(), "{output:?}");
        let candidates = String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        (candidates, fs::read_to_string(called).unwrap_or_default())
    }

    #[test]
    fn bash_offers_names_where_there_are_some_and_otherwise_what_clap_offers() {
        let (candidates, called) = bash(&["logs", "web", "-c", ""], "load\\nmain\\n");
        assert_eq!((candidates.join(" ").as_str(), called.as_str()), ("load main", "<__complete><logs><web><-c><>"));
        let (candidates, called) = bash(&["describe", "sh"], "shop/web\\n");
        assert_eq!((candidates.join(" ").as_str(), called.as_str()), ("shop/web", "<__complete><describe><sh>"));
        let (candidates, _) = bash(&["describe", "--na"], "");
        assert_eq!(candidates, ["--namespace"]);
        let (candidates, _) = bash(&["desc"], "");
        assert_eq!(candidates, ["describe"]);
    }

    #[test]
    fn zsh_calls_the_function_for_each_name() {
        let text = script(Shell::Zsh);
        assert!(text.starts_with("#compdef wherry\n\n# The names"), "{}", &text[..80]);
        let called = |part: &str| text.lines().filter(|l| l.contains(part) && l.contains(":_wherry_names'")).count();
        for (part, least) in [("':pod -- ", 4), ("::pod -- ", 2), ("*::pods -- ", 2), ("*::names -- ", 1)] {
            assert!(called(part) >= least, "{part} {}", called(part));
        }
        // Short and long.
        assert!(called(":CONTAINER:") >= 4 && called(":NAMESPACE:") >= 10, "{text}");
        assert!(!text.contains(":CONTAINER:_default") && !text.contains(":NAMESPACE:_default"));
        // Other arguments still complete files.
        assert!(text.contains(":FILE:_files") || text.contains(":FILE:_default"));
    }

    #[test]
    fn fish_knows_every_command_with_a_pod() {
        let definition = wherry::commands::definition();
        let with_pod = definition
            .get_subcommands()
            .filter(|c| c.get_positionals().any(|arg| matches!(arg.get_id().as_str(), "pod" | "pods" | "names")));
        let mut names: Vec<&str> = with_pod.map(clap::Command::get_name).collect();
        names.sort_unstable();
        let condition = format!("-n \"__fish_seen_subcommand_from {}\" -f -a", names.join(" "));
        assert!(script(Shell::Fish).contains(&condition), "{condition}");
    }
}
