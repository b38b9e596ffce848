//! `$(VAR)` in env values, commands and arguments, as the kubelet expands it.
//!
//! `$(NAME)` becomes the variable's value if it is known and stays as it is if not; `$$` is a plain `$`, so that
//! `$$(NAME)` comes out as `$(NAME)`. An env value sees only the variables before it; command and args see all.

use k8s_openapi::api::core::v1::Container;

/// Expands `input`; `lookup` gives a variable's value.
pub fn expand<'v>(input: &str, lookup: impl Fn(&str) -> Option<&'v str>) -> String {
    let mut out = String::with_capacity(input.len());
    let mut rest = input;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        rest = if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            tail
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            tail
        } else {
            out.push('$');
            after
        };
    }
    out.push_str(rest);
    out
}

/// The environment of a container: each name once (the last one wins), in the order of the spec.
pub fn environment(container: &Container) -> Vec<(String, String)> {
    let mut env: Vec<(String, String)> = Vec::new();
    for variable in container.env.iter().flatten() {
        let value = expand(variable.value.as_deref().unwrap_or(""), |name| find(&env, name));
        match env.iter_mut().find(|(name, _)| *name == variable.name) {
            Some((_, old)) => *old = value,
            None => env.push((variable.name.clone(), value)),
        }
    }
    env
}

/// Each of a command's or args' words expanded with a container's whole environment.
pub fn words(words: Option<&Vec<String>>, env: &[(String, String)]) -> Vec<String> {
    words.into_iter().flatten().map(|word| expand(word, |name| find(env, name))).collect()
}

fn find<'e>(env: &'e [(String, String)], name: &str) -> Option<&'e str> {
    env.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::EnvVar;

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
            assert_eq!(expand(input, lookup), expected, "{input}");
        }
    }

    #[test]
    fn a_variable_sees_those_before_it_and_a_command_sees_all() {
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
        let env = environment(&container);
        let seen: Vec<(&str, &str)> = env.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(
            seen,
            [("A", "again-alpha"), ("B", "b-alpha-$(A)-$(UNDEF)-$(LATE)"), ("EMPTY", ""), ("LATE", "late")]
        );
        assert_eq!(words(container.args.as_ref(), &env), ["b-alpha-$(A)-$(UNDEF)-$(LATE)", "xlatey", "$(UNDEF)"]);
    }
}
