//! Label selectors in kubectl's syntax: `app=web,tier!=cache`, `env in (test, dev)`, `env notin (prod)`, `app`, `!app`.

use crate::api::validate;

/// A list of requirements that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    wanted: LabelCondition,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum LabelCondition {
    Exists,
    Absent,
    In(Vec<String>),
    /// Also holds if the label is missing.
    NotIn(Vec<String>),
}

impl Selector {
    /// Parses a selector.
    ///
    /// # Errors
    /// The invalid part and the reason. An empty selector is an error, because it would select everything.
    pub fn parse(text: &str) -> Result<Selector, String> {
        let parts = split(text);
        if parts.iter().all(|part| part.is_empty()) {
            return Err("the selector is empty; write app=web".to_owned());
        }
        let requirement =
            |part: &&str| Requirement::parse(part).map_err(|why| format!("{part:?} in the selector {text:?}: {why}"));
        parts.iter().map(requirement).collect::<Result<_, _>>().map(Selector)
    }

    /// Reports whether all requirements hold. `label` returns the value of a label, if it exists.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|r| {
            let value = label(&r.key);
            match &r.wanted {
                LabelCondition::Exists => value.is_some(),
                LabelCondition::Absent => value.is_none(),
                LabelCondition::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
                LabelCondition::NotIn(values) => value.is_none_or(|v| values.iter().all(|w| w != v)),
            }
        })
    }
}

impl Requirement {
    fn parse(part: &str) -> Result<Requirement, String> {
        let (key, wanted) = if let Some(key) = part.strip_prefix('!') {
            (key, LabelCondition::Absent)
        } else if let Some((key, value)) = part.split_once("!=") {
            (key, LabelCondition::NotIn(vec![value.trim().to_owned()]))
        } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            (key, LabelCondition::In(vec![value.trim().to_owned()]))
        } else if let Some((rest, values)) = part.split_once('(') {
            let values = values.strip_suffix(')').ok_or("missing closing parenthesis at the end")?;
            let values = values.split(',').map(|v| v.trim().to_owned()).collect();
            match rest.trim().rsplit_once(char::is_whitespace) {
                Some((key, "in")) => (key, LabelCondition::In(values)),
                Some((key, "notin")) => (key, LabelCondition::NotIn(values)),
                _ => return Err("expected `KEY in` or `KEY notin` before the parenthesis".to_owned()),
            }
        } else {
            (part, LabelCondition::Exists)
        };
        let key = key.trim();
        if let Some(why) = validate::label(key, "").into_iter().next() {
            return Err(format!("invalid key: {why}"));
        }
        if let LabelCondition::In(values) | LabelCondition::NotIn(values) = &wanted
            && let Some(why) = values.iter().flat_map(|v| validate::label(key, v)).next()
        {
            return Err(format!("invalid value: {why}"));
        }
        Ok(Requirement { key: key.to_owned(), wanted })
    }
}

/// Splits at commas outside brackets.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut begin) = (Vec::new(), 0_u32, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(text[begin..at].trim());
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[begin..].trim());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(selector: &str) -> bool {
        let labels = [("app", "web"), ("env", "test"), ("example.com/tier", "front"), ("empty", "")];
        let selector = Selector::parse(selector).unwrap_or_else(|why| panic!("{why}"));
        selector.matches(|key| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v))
    }

    #[test]
    fn each_form_selects_as_kubectl_does() {
        for yes in [
            "app=web",
            "app==web",
            "app = web , env=test",
            "app!=db",
            "none!=db",
            "app",
            "!none",
            "env in (dev, test)",
            "env notin (prod,dev)",
            "none notin (prod)",
            "example.com/tier=front",
            "empty=",
            "env in (dev,test),app=web,!none",
        ] {
            assert!(holds(yes), "{yes}");
        }
        for no in ["app=db", "app!=web", "none", "!app", "env in (dev)", "env notin (test)", "none=", "app=web,none"] {
            assert!(!holds(no), "{no}");
        }
    }

    #[test]
    fn an_invalid_selector_is_rejected_with_the_reason() {
        for (bad, why) in [
            ("", "is empty"),
            (" , ", "is empty"),
            ("app=web,", "\"\" in the selector"),
            ("=web", "invalid key"),
            ("a b", "invalid key"),
            ("app=a b", "invalid value"),
            ("app in (a", "missing closing parenthesis"),
            ("app like (a)", "expected `KEY in`"),
            ("in (a)", "expected `KEY in`"),
        ] {
            let said = Selector::parse(bad).unwrap_err();
            assert!(said.contains(why), "{bad:?}: {said}");
        }
    }
}
