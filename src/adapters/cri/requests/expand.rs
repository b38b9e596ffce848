//! `$(NAME)` in environment values, commands and arguments.

use std::collections::BTreeMap;

/// Replaces `$(NAME)` by its value. A name that `values` does not have stays as it is written, and so does a lone
/// `$`; `$$` is one `$`, so `$$(NAME)` comes out as `$(NAME)`.
pub fn expand(text: &str, values: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let name = after.strip_prefix('(').and_then(|a| a.find(')').map(|end| &a[..end]));
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some(name) = name {
            match values.get(name) {
                Some(value) => out.push_str(value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = &after[name.len() + 2..];
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_expand_as_a_kubelet_expands_them() {
        let v: BTreeMap<_, _> = [("A".to_owned(), "alpha".to_owned())].into();
        for (text, want) in [
            ("b-$(A)-$$(A)-$(UNDEF)", "b-alpha-$(A)-$(UNDEF)"),
            ("$(A)$(A)", "alphaalpha"),
            ("$", "$"),
            ("$(A", "$(A"),
            ("$A $$ $$$(A) é$(A)", "$A $ $alpha éalpha"),
            ("$()", "$()"),
        ] {
            assert_eq!(expand(text, &v), want, "{text}");
        }
    }
}
