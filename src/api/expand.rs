//! Expansion of `$(VAR)` in env values, commands and arguments, as in a kubelet.
//!
//! `$(NAME)` becomes the value of a known variable; an unknown reference stays unchanged. `$$` is a literal `$`, so
//! `$$(NAME)` becomes `$(NAME)`. An env value can refer only to the variables before it; command and args to all.
//!
//! References multiply: with `b: "$(a)$(a)"`, `c: "$(b)$(b)"` ... the value doubles on each line. Therefore
//! `container` builds the strings only up to `MAX_ARGUMENTS`.

use crate::api::environment::Variable;
use crate::api::k8s::{Container, EnvVar};
use crate::api::ordered::CollectOrdered;
use std::collections::BTreeMap;
use std::fmt;

/// The maximum size of the expanded environment, command and arguments of a container, in bytes. The size of a string
/// includes its NUL and its pointer; an env variable has the form `NAME=value`. Linux calculates the size in the same
/// way and allows a quarter of the stack limit (execve(2)): 2 MiB of the usual 8 MiB. A larger container cannot
/// start.
pub const MAX_ARGUMENTS: usize = 2 << 20;

/// The overhead of one string, in bytes: its NUL and its pointer.
const OF_EACH: usize = 1 + size_of::<u64>();

/// The expanded environment, command and arguments of a container.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Expanded {
    /// The variables in the order of the spec. Each name occurs once.
    pub env: Vec<(String, String)>,
    pub command: Vec<String>,
    pub args: Vec<String>,
}

/// Omits the values, which may be secret.
impl fmt::Debug for Expanded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Expanded { env, command, args } = self;
        write!(f, "Expanded({} variables, {} words)", env.len(), command.len() + args.len())
    }
}

/// The field at which a container exceeds `MAX_ARGUMENTS`. The number is the index of the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentPlace {
    Env(usize),
    Command(usize),
    Args(usize),
}

impl fmt::Display for ArgumentPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArgumentPlace::Env(i) => write!(f, "env[{i}].value"),
            ArgumentPlace::Command(i) => write!(f, "command[{i}]"),
            ArgumentPlace::Args(i) => write!(f, "args[{i}]"),
        }
    }
}

/// The environment, command and arguments of a container exceed `MAX_ARGUMENTS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    pub at: ArgumentPlace,
}

impl TooLong {
    /// Returns the problem and the remedy, without the field name.
    pub fn detail(&self) -> String {
        format!(
            "Too long: with this value the environment, command and arguments of the container are larger than \
             {MAX_ARGUMENTS} bytes once $(VAR) references are expanded: Linux cannot start such a container; shorten \
             the values, use fewer references, or write $$(VAR) for a plain $(VAR)"
        )
    }
}

impl fmt::Display for TooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.detail())
    }
}

/// A part of a string with references.
#[derive(Clone, Copy, Debug)]
enum Piece<'i> {
    Text(&'i str),
    /// `$(name)`
    Reference {
        name: &'i str,
        written: &'i str,
    },
}

struct Pieces<'i> {
    rest: &'i str,
    /// False if `rest` contains no `)`. Without this flag, each `$(` would search the whole rest again.
    may_close: bool,
}

fn pieces(input: &str) -> Pieces<'_> {
    Pieces { rest: input, may_close: true }
}

impl<'i> Iterator for Pieces<'i> {
    type Item = Piece<'i>;

    fn next(&mut self) -> Option<Piece<'i>> {
        let rest = self.rest;
        if rest.is_empty() {
            return None;
        }
        let (piece, length) = match rest.find('$') {
            None => (Piece::Text(rest), rest.len()),
            Some(0) => self.at_dollar(),
            Some(at) => (Piece::Text(&rest[..at]), at),
        };
        self.rest = &rest[length..];
        Some(piece)
    }
}

impl<'i> Pieces<'i> {
    /// Returns the piece that starts with the `$` at the beginning of `rest`, and its length in the input.
    fn at_dollar(&mut self) -> (Piece<'i>, usize) {
        let (dollar, after) = self.rest.split_at(1);
        if after.starts_with('$') {
            return (Piece::Text(dollar), 2);
        }
        let Some(inner) = after.strip_prefix('(').filter(|_| self.may_close) else { return (Piece::Text(dollar), 1) };
        match inner.find(')') {
            Some(end) => {
                let length = "$(".len() + end + ")".len();
                (Piece::Reference { name: &inner[..end], written: &self.rest[..length] }, length)
            }
            None => {
                self.may_close = false;
                (Piece::Text(dollar), 1)
            }
        }
    }
}

/// Expands `input`. `lookup` returns the value of a variable. None if the result is longer than `longest` bytes.
fn expand<'v>(input: &str, longest: usize, lookup: impl Fn(&str) -> Option<&'v str>) -> Option<String> {
    let mut out = String::with_capacity(input.len().min(longest));
    for piece in pieces(input) {
        let text = match piece {
            Piece::Text(text) => text,
            Piece::Reference { name, written } => lookup(name).unwrap_or(written),
        };
        if text.len() > longest - out.len() {
            return None;
        }
        out.push_str(text);
    }
    Some(out)
}

/// Expands environment, command and arguments. Of several variables with the same name, the last one wins; the others
/// count towards the limit too, because they must be built.
///
/// # Errors
/// The first value with which the total would exceed `MAX_ARGUMENTS`.
pub fn container(container: &Container) -> Result<Expanded, TooLong> {
    let written = |variable: &EnvVar| Variable::Written {
        name: variable.name.clone(),
        value: variable.value.clone().unwrap_or_default(),
    };
    process(&container.env.iter().flatten().map(written).collect::<Vec<_>>(), container)
}

/// Like `container`, with the variables that `environment::variables` returns.
///
/// # Errors
/// As for `container`. The index of a variable is its position in `variables`.
pub fn process(variables: &[Variable], container: &Container) -> Result<Expanded, TooLong> {
    let mut left = MAX_ARGUMENTS;
    let mut env: Vec<(String, String)> = Vec::new();
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for (i, variable) in variables.iter().enumerate() {
        let at = ArgumentPlace::Env(i);
        let (Variable::Written { name, value } | Variable::Found { name, value }) = variable;
        take(&mut left, at, OF_EACH + name.len() + 1)?;
        let value = match variable {
            Variable::Written { .. } => expand(value, left, |name| find(&env, &places, name)).ok_or(TooLong { at })?,
            Variable::Found { .. } => value.clone(),
        };
        take(&mut left, at, value.len())?;
        match places.get(name.as_str()) {
            Some(place) => env[*place].1 = value,
            None => {
                places.insert(name, env.len());
                env.push((name.clone(), value));
            }
        }
    }
    let mut words = |words: &Option<Vec<String>>, at: fn(usize) -> ArgumentPlace| {
        let word = |(i, word): (usize, &String)| {
            let at = at(i);
            take(&mut left, at, OF_EACH)?;
            let word = expand(word, left, |name| find(&env, &places, name)).ok_or(TooLong { at })?;
            take(&mut left, at, word.len())?;
            Ok(word)
        };
        words.iter().flatten().enumerate().map(word).collect::<Result<Vec<String>, TooLong>>()
    };
    let (command, args) =
        (words(&container.command, ArgumentPlace::Command)?, words(&container.args, ArgumentPlace::Args)?);
    Ok(Expanded { env, command, args })
}

/// Expands the command of a probe. As in a kubelet, the command may refer to the variables that have a literal value
/// in the spec of the container; references in these values are not expanded. A word that would exceed
/// `MAX_ARGUMENTS` stays unexpanded.
pub fn static_command(command: &[String], container: &Container) -> Vec<String> {
    let env = container.env.iter().flatten().filter(|e| e.value_from.is_none());
    let values: BTreeMap<&str, &str> = env.map(|e| (e.name.as_str(), e.value.as_deref().unwrap_or(""))).collect_map();
    let word =
        |word: &String| expand(word, MAX_ARGUMENTS, |name| values.get(name).copied()).unwrap_or_else(|| word.clone());
    command.iter().map(word).collect()
}

/// Expands `subPathExpr`, with the environment of the container.
///
/// # Errors
/// The name of a variable that the container does not have, or whose value makes the path longer than `longest`
/// bytes; `input` if its literal text does. A path must not contain an unexpanded reference.
pub fn path(input: &str, env: &[(String, String)], longest: usize) -> Result<String, String> {
    let mut out = String::new();
    for piece in pieces(input) {
        let (text, name) = match piece {
            Piece::Text(text) => (text, input),
            Piece::Reference { name, .. } => {
                let value = env.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
                (value.ok_or_else(|| name.to_owned())?, name)
            }
        };
        if text.len() > longest.saturating_sub(out.len()) {
            return Err(name.to_owned());
        }
        out.push_str(text);
    }
    Ok(out)
}

fn take(left: &mut usize, at: ArgumentPlace, length: usize) -> Result<(), TooLong> {
    *left = left.checked_sub(length).ok_or(TooLong { at })?;
    Ok(())
}

fn find<'e>(env: &'e [(String, String)], places: &BTreeMap<&str, usize>, name: &str) -> Option<&'e str> {
    Some(env.get(*places.get(name)?)?.1.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_expand_as_in_a_kubelet() {
        let lookup = |name: &str| match name {
            "A" => Some("alpha"),
            "EMPTY" => Some(""),
            "REF" => Some("$(A)"),
            "" => Some("nameless"),
            _ => None,
        };
        for (input, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("$(A)", "alpha"),
            ("x$(A)y$(A)", "xalphayalpha"),
            ("$(UNDEF)", "$(UNDEF)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$alpha"),
            ("$$$$(A)", "$$(A)"),
            ("$A ${A}", "$A ${A}"),
            ("[$(EMPTY)]", "[]"),
            ("$(A", "$(A"),
            ("$(A$(A)", "$(A$(A)"),
            ("$", "$"),
            ("a$", "a$"),
            ("$$", "$"),
            ("$(REF)", "$(A)"),
            ("$()", "nameless"),
            ("é$(A)é$", "éalphaé$"),
        ] {
            assert_eq!(expand(input, 100, lookup).as_deref(), Some(expected), "{input}");
            assert_eq!(expected.len().checked_sub(1).and_then(|less| expand(input, less, lookup)), None, "{input}");
        }
    }

    #[test]
    fn a_variable_can_refer_to_earlier_ones_and_a_command_to_all() {
        let env = |name: &str, value: Option<&str>| EnvVar {
            name: name.to_owned(),
            value: value.map(str::to_owned),
            value_from: None,
        };
        let container = Container {
            args: Some(vec!["$(B)".into(), "x$(LATE)y".into(), "$(UNDEF)".into()]),
            env: Some(vec![
                env("A", Some("alpha")),
                env("B", Some("b-$(A)-$$(A)-$(UNDEF)-$(LATE)")),
                env("EMPTY", None),
                env("LATE", Some("late")),
                env("A", Some("again-$(A)")),
            ]),
            ..Container::default()
        };
        let expanded = super::container(&container).unwrap();
        let seen: Vec<(&str, &str)> = expanded.env.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(
            seen,
            [("A", "again-alpha"), ("B", "b-alpha-$(A)-$(UNDEF)-$(LATE)"), ("EMPTY", ""), ("LATE", "late")]
        );
        assert_eq!(expanded.args, ["b-alpha-$(A)-$(UNDEF)-$(LATE)", "xlatey", "$(UNDEF)"]);
    }

    fn variable(name: &str, value: String) -> EnvVar {
        EnvVar { name: name.to_owned(), value: Some(value), value_from: None }
    }

    /// Returns a container whose variable `c0` has ten letters. Each further variable is twice as long as the
    /// previous one.
    fn doubling(count: usize) -> Container {
        let mut env = vec![variable("c0", "a".repeat(10))];
        env.extend((1..count).map(|i| variable(&format!("c{i}"), format!("$(c{0})$(c{0})", i - 1))));
        Container { env: Some(env), ..Container::default() }
    }

    #[test]
    fn references_that_multiply_are_built_only_up_to_the_limit() {
        // The eighteenth variable has 10 * 2^17 bytes, as many as all previous ones together: this exceeds 2 MiB.
        assert!(super::container(&doubling(17)).is_ok());
        for count in [18, 22, 25, 32, 64, 80, 6000] {
            assert_eq!(super::container(&doubling(count)), Err(TooLong { at: ArgumentPlace::Env(17) }), "{count}");
        }
        // Many variables with the same name: only the last value stays, but each must be built.
        let same = (0..100).map(|i| if i == 0 { "a".repeat(100_000) } else { "$(A)".to_owned() });
        let container = Container { env: Some(same.map(|v| variable("A", v)).collect()), ..Container::default() };
        assert_eq!(super::container(&container), Err(TooLong { at: ArgumentPlace::Env(20) }));
        let word = "$(A)".repeat(1000);
        let words = |n| Some(vec![word.clone(); n]);
        let env = Some(vec![variable("A", "a".repeat(500))]);
        let container = Container { env, command: words(4), args: words(1), ..Container::default() };
        assert_eq!(super::container(&container), Err(TooLong { at: ArgumentPlace::Args(0) }));
        assert!(super::container(&Container { args: None, ..container.clone() }).is_ok());
        let message = super::container(&Container { command: words(5), ..container }).unwrap_err().to_string();
        assert!(message.starts_with("command[4]: Too long: ") && message.contains("2097152 bytes"), "{message}");
    }

    #[test]
    fn a_path_needs_all_its_variables() {
        let env = [("A".to_owned(), "a/b".to_owned()), ("E".to_owned(), String::new())];
        assert_eq!(path("x/$(A)$(E)/$$(A)", &env, 100).as_deref(), Ok("x/a/b/$(A)"));
        assert_eq!(path("x/$(NONE)", &env, 100).unwrap_err(), "NONE");
        assert_eq!(path("x/$(A)", &env, 5).as_deref(), Ok("x/a/b"));
        assert_eq!(path("x/$(A)", &env, 4).unwrap_err(), "A");
    }

    #[test]
    fn each_string_counts_with_its_nul_and_its_pointer() {
        let with = |length: usize| {
            let env = Some(vec![variable("A", "a".repeat(100)), variable("A", "b".repeat(100))]);
            let command = Some(vec!["$(A)".to_owned()]);
            super::container(&Container { env, command, args: Some(vec!["c".repeat(length)]), ..Container::default() })
        };
        let last = MAX_ARGUMENTS - 2 * ("A=".len() + 100 + OF_EACH) - (100 + OF_EACH) - OF_EACH;
        assert!(with(last).is_ok());
        assert_eq!(with(last + 1), Err(TooLong { at: ArgumentPlace::Args(0) }));
    }

    #[test]
    fn a_text_of_nothing_but_open_references_is_read_once() {
        // If each `$(` searched the rest for its `)`, half a megabyte would be read 500,000 times.
        let open = "$(".repeat(500_000);
        assert_eq!(pieces(&open).count(), 1_000_000);
        assert_eq!(expand(&open, MAX_ARGUMENTS, |_| None), Some(open.clone()));
        let closed = format!("{open})");
        assert_eq!(expand(&closed, MAX_ARGUMENTS, |_| None), Some(closed));
    }
}
