//! The names that shell completions offer: pods, namespaces and containers of the running agent. The completion
//! scripts (packaging/texts) pass the words of the command line up to the cursor. The definition of the command line
//! determines what the last word names. If the agent is not running or does not respond within two seconds, there are
//! no names and no error.

use crate::api::kube::pod_row::text;
use crate::api::ordered::CollectOrdered;
use crate::commands::client;
use crate::commands::command_line::definition;
use crate::config::{self, Flags};
use clap::{Arg, Command};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The internal command that the scripts call. It is hidden from users.
pub const COMMAND: &str = "__complete";

/// The paths of the container lists in a pod.
const CONTAINERS: [&str; 3] = ["/spec/initContainers", "/spec/containers", "/spec/ephemeralContainers"];

/// What the word at the cursor names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WordSubject {
    Pod,
    /// The name of a pod without its namespace, for `wherry pods`.
    PodName,
    Namespace,
    Container,
}

/// The relevant content of the command line up to the cursor.
#[derive(Debug, Default, PartialEq, Eq)]
struct Line<'a> {
    subject: Option<WordSubject>,
    /// The word at the cursor, as far as it has been typed.
    begin: &'a str,
    pod: Option<&'a str>,
    namespace: Option<&'a str>,
    socket: Option<&'a str>,
}

/// Returns the candidates for the last word, one per line. `words` does not contain the name of the program.
pub fn candidates(words: &[String]) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let line = line(&definition(), &words);
    let Some(subject) = line.subject else { return String::new() };
    let socket = line.socket.map_or_else(|| config::load(&Flags::default()).config.socket, PathBuf::from);
    let mut list = pods(&socket);
    names(subject, &line, &client::take_items(&mut list)).iter().map(|name| format!("{name}\n")).collect()
}

fn pods(socket: &Path) -> Value {
    client::get_json_quickly(socket, "/pods").unwrap_or_default()
}

/// Determines what the last word names.
fn line<'a>(definition: &Command, words: &[&'a str]) -> Line<'a> {
    let mut line = Line::default();
    let Some((begin, before)) = words.split_last() else { return line };
    let Some((name, before)) = before.split_first() else { return line };
    let Some(command) = definition.find_subcommand(name) else { return line };
    line.begin = begin;
    let mut positionals = command.get_positionals();
    let mut positional = positionals.next();
    // The option whose value comes next.
    let mut open: Option<&Arg> = None;
    // bash passes `=` as a separate word, so skip it.
    for word in before.iter().filter(|word| **word != "=") {
        match (open.take(), word.split_once('=')) {
            (Some(arg), _) => take(&mut line, arg, word),
            (None, _) if *word == "--" => return line,
            (None, Some((option, value))) if word.starts_with("--") => {
                if let Some(arg) = option_of(command, option) {
                    take(&mut line, arg, value);
                }
            }
            (None, _) if word.starts_with('-') && word.len() > 1 => {
                open = option_of(command, word).filter(|arg| arg.get_action().takes_values());
            }
            (None, _) => {
                if let Some(arg) = positional {
                    take(&mut line, arg, word);
                    if arg.get_num_args().is_none_or(|n| n.max_values() <= 1) {
                        positional = positionals.next();
                    }
                }
            }
        }
    }
    if *begin == "=" {
        line.begin = "";
    }
    let arg = match open {
        Some(arg) => Some(arg),
        None if begin.starts_with('-') => None,
        None => positional.filter(|arg| !arg.is_last_set()),
    };
    line.subject = arg.and_then(|arg| match arg.get_id().as_str() {
        "pod" | "pods" => Some(WordSubject::Pod),
        "names" => Some(WordSubject::PodName),
        "namespace" => Some(WordSubject::Namespace),
        "container" | "target" => Some(WordSubject::Container),
        _ => None,
    });
    line
}

fn take<'a>(line: &mut Line<'a>, arg: &Arg, value: &'a str) {
    match arg.get_id().as_str() {
        "pod" => line.pod = Some(value),
        "source" | "target" => line.pod = super::cp::pod(value).or(line.pod),
        "namespace" => line.namespace = Some(value),
        "socket" => line.socket = Some(value),
        _ => {}
    }
}

/// Returns the option with this name, such as `--namespace` or `-n`.
fn option_of<'a>(command: &'a Command, word: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long() == Some(long),
        None => arg.get_short().is_some_and(|short| word.strip_prefix('-').is_some_and(|w| w == short.to_string())),
    })
}

/// Returns the names that begin with the word at the cursor.
fn names(subject: WordSubject, line: &Line<'_>, pods: &[Value]) -> BTreeSet<String> {
    let of = |pod: &Value| (text(pod, "/metadata/namespace").to_owned(), text(pod, "/metadata/name").to_owned());
    let within = |pod: &&Value| line.namespace.is_none_or(|n| n == text(pod, "/metadata/namespace"));
    let fits = |name: &String| name.starts_with(line.begin) && is_plain(name);
    let pods: Vec<&Value> = match subject {
        WordSubject::Namespace => pods.iter().collect(),
        _ => pods.iter().filter(within).collect(),
    };
    let all: Vec<(String, String)> = pods.iter().map(|pod| of(pod)).collect();
    match subject {
        WordSubject::Namespace => all.into_iter().map(|(namespace, _)| namespace).filter(fits).collect_set(),
        WordSubject::PodName => all.into_iter().map(|(_, name)| name).filter(fits).collect_set(),
        WordSubject::Pod => {
            // A name that exists in several namespaces is shown with its namespace.
            let is_unique = |name: &str| all.iter().filter(|(_, other)| other == name).count() == 1;
            let full = |(namespace, name): &(String, String)| format!("{namespace}/{name}");
            let short = all.iter().map(|pod| if is_unique(&pod.1) { pod.1.clone() } else { full(pod) });
            let found: BTreeSet<String> = short.filter(fits).collect_set();
            if found.is_empty() { all.iter().map(full).filter(fits).collect_set() } else { found }
        }
        WordSubject::Container => {
            let Some(target) = line.pod.and_then(|pod| super::select::PodTarget::parse(pod, line.namespace).ok())
            else {
                return BTreeSet::new();
            };
            let named = pods.iter().filter(|pod| {
                let (namespace, name) = of(pod);
                target.is(&namespace, &name, text(pod, "/metadata/uid"))
            });
            let containers = named.flat_map(|pod| CONTAINERS.map(|at| pod.pointer(at)));
            let containers = containers.flatten().filter_map(Value::as_array).flatten();
            containers.map(|c| text(c, "/name").to_owned()).filter(fits).collect_set()
        }
    }
}

/// Valid names contain only these characters. A shell must never see any other character.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of<'a>(words: &[&'a str]) -> Line<'a> {
        line(&definition(), words)
    }

    #[test]
    fn the_definition_tells_what_a_word_names() {
        for (words, subject) in [
            (&["describe", ""][..], Some(WordSubject::Pod)),
            (&["describe", "web", ""], None),
            (&["describe", "-"], None),
            (&["logs", "-f", "we"], Some(WordSubject::Pod)),
            (&["logs", "web", "-c", ""], Some(WordSubject::Container)),
            (&["logs", "web", "--container", "=", "m"], Some(WordSubject::Container)),
            (&["exec", "web", "--", "ls", ""], None),
            (&["exec", "-n", ""], Some(WordSubject::Namespace)),
            (&["cp", ""], None),
            (&["cp", "web:/etc", "-c", ""], Some(WordSubject::Container)),
            (&["exec", "-n", "shop", ""], Some(WordSubject::Pod)),
            (&["exec", "web", ""], None),
            (&["debug", ""], Some(WordSubject::Pod)),
            (&["debug", "web", "--target", ""], Some(WordSubject::Container)),
            (&["debug", "web", "-c", ""], None),
            (&["drain", "a", "b", ""], Some(WordSubject::Pod)),
            (&["undrain", ""], Some(WordSubject::Pod)),
            (&["retry", ""], Some(WordSubject::Pod)),
            (&["events", ""], Some(WordSubject::Pod)),
            (&["top", "--interval", ""], None),
            (&["top", "--interval", "2s", ""], Some(WordSubject::Pod)),
            (&["pods", "a", ""], Some(WordSubject::PodName)),
            (&["check", ""], None),
            (&["nothing", ""], None),
            (&["desc"], None),
            (&[], None),
        ] {
            assert_eq!(of(words).subject, subject, "{words:?}");
        }
        for words in [["cp", "web:/etc", ".", "-c", ""], ["cp", "/etc", "web:", "-c", ""]] {
            assert_eq!(of(&words).pod, Some("web"), "{words:?}");
        }
        let line = of(&["logs", "--socket=/s", "-n", "shop", "web", "--tail", "5", "-c", "ma"]);
        assert_eq!((line.socket, line.namespace, line.pod), (Some("/s"), Some("shop"), Some("web")));
        assert_eq!((line.subject, line.begin), (Some(WordSubject::Container), "ma"));
    }

    #[test]
    fn the_names_are_those_of_the_pods() {
        let pod = |namespace: &str, name: &str| {
            json!({
                "metadata": { "namespace": namespace, "name": name, "uid": format!("uid-{name}") },
                "spec": { "containers": [{ "name": "main" }, { "name": "$(x)" }],
                    "initContainers": [{ "name": "load" }] },
            })
        };
        let pods = [pod("shop", "web"), pod("test", "web"), pod("shop", "db")];
        let found = |words: &[&str]| {
            let line = of(words);
            names(line.subject.unwrap(), &line, &pods).into_iter().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(found(&["describe", ""]), "db shop/web test/web");
        assert_eq!(found(&["describe", "d"]), "db");
        assert_eq!(found(&["describe", "shop/"]), "shop/web");
        assert_eq!(found(&["describe", "shop/d"]), "shop/db");
        assert_eq!(found(&["describe", "-n", "shop", ""]), "db web");
        assert_eq!(found(&["describe", "-n", ""]), "shop test");
        assert_eq!(found(&["pods", "w"]), "web");
        assert_eq!(found(&["logs", "web", "-c", ""]), "load main");
        assert_eq!(found(&["logs", "shop/db", "-c", "m"]), "main");
        assert_eq!(found(&["logs", "none", "-c", ""]), "");
        assert_eq!(found(&["logs", "-c", ""]), "");
    }

    #[test]
    fn without_an_agent_there_are_no_names_and_no_error() {
        let words = ["describe", "--socket", "/nothing/here", ""].map(str::to_owned);
        assert_eq!(candidates(&words), "");
    }
}
