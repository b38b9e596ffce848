//! The grammars of names, labels and addresses, with the Kubernetes error messages.

/// The maximum length of a DNS label and of a label value.
pub(super) const LABEL: usize = 63;
/// The maximum length of a DNS name.
pub(super) const SUBDOMAIN: usize = 253;

const LABEL_FORM: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
                          must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used \
                          for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035_FORM: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with \
                               an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or \
                               'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_FORM: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
                              or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex \
                              used for validation is \
                              '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const NAME_FORM: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                         alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                         validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_FORM: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
                          '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  \
                          or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

/// The violations of one grammar; empty if the text is valid.
pub(super) type Complaints = Vec<String>;

fn too_long(text: &str, most: usize) -> Option<String> {
    (text.len() > most).then(|| format!("must be no more than {most} characters"))
}

fn is_label(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with('-')
        && !text.ends_with('-')
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn is_name(text: &str) -> bool {
    let alnum = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    alnum(text.bytes().next())
        && alnum(text.bytes().next_back())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// Checks the name of a container or a namespace, or a host name.
pub(super) fn dns_label(text: &str) -> Complaints {
    let form = (!is_label(text)).then(|| LABEL_FORM.to_owned());
    too_long(text, LABEL).into_iter().chain(form).collect()
}

/// Checks the name of a Service. It becomes part of the names of environment variables, which have to begin with a
/// letter.
pub(super) fn dns_1035_label(text: &str) -> Complaints {
    let fine = is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase());
    let form = (!fine).then(|| LABEL_1035_FORM.to_owned());
    too_long(text, LABEL).into_iter().chain(form).collect()
}

/// Checks the name of a pod, or a search domain.
pub(super) fn dns_subdomain(text: &str) -> Complaints {
    let form = (!text.split('.').all(is_label)).then(|| SUBDOMAIN_FORM.to_owned());
    too_long(text, SUBDOMAIN).into_iter().chain(form).collect()
}

/// Checks the name of a role or of a binding, which can be any part of a path.
pub(super) fn path_segment(text: &str) -> Complaints {
    let reserved = matches!(text, "." | "..").then(|| format!("may not be '{text}'"));
    let inside =
        ["/", "%"].into_iter().filter(|part| text.contains(part)).map(|part| format!("may not contain '{part}'"));
    reserved.into_iter().chain(inside).collect()
}

/// Checks the key of a label or an annotation, or the name of a resource: `[prefix/]name`.
pub(super) fn qualified_name(text: &str) -> Complaints {
    let mut complaints = Vec::new();
    let mut parts = text.split('/');
    let name = match (parts.next(), parts.next(), parts.next()) {
        (Some(name), None, _) => name,
        (Some(prefix), Some(name), None) => {
            if prefix.is_empty() {
                complaints.push("prefix part must be non-empty".to_owned());
            } else {
                complaints.extend(dns_subdomain(prefix).into_iter().map(|c| format!("prefix part {c}")));
            }
            name
        }
        _ => {
            return vec![format!(
                "a qualified name {NAME_FORM} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        complaints.push("name part must be non-empty".to_owned());
    } else if let Some(long) = too_long(name, LABEL) {
        complaints.push(format!("name part {long}"));
    }
    if !is_name(name) {
        complaints.push(format!("name part {NAME_FORM}"));
    }
    complaints
}

pub(super) fn label_value(text: &str) -> Complaints {
    let form = (!text.is_empty() && !is_name(text)).then(|| VALUE_FORM.to_owned());
    too_long(text, LABEL).into_iter().chain(form).collect()
}

/// Checks a key of a ConfigMap or a Secret. A key can become the name of a file.
pub(super) fn config_key(text: &str) -> Complaints {
    let mut complaints = Vec::new();
    if text.len() > SUBDOMAIN {
        complaints.push(format!("must be no more than {SUBDOMAIN} characters"));
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.')) {
        complaints.push("a valid config key must consist of alphanumeric characters, '-', '_' or '.'".to_owned());
    }
    match text {
        "." => complaints.push("must not be '.'".to_owned()),
        _ if text.starts_with("..") => complaints.push("must not start with '..'".to_owned()),
        _ => {}
    }
    complaints
}

/// Checks the name of an environment variable. Any printable ASCII character except `=` is allowed, as in Kubernetes
/// 1.32 and later.
pub(super) fn env_name(text: &str) -> Complaints {
    let fine = !text.is_empty() && text.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=');
    let form = "a valid environment variable name must consist only of printable ASCII characters other than '='";
    if fine { Vec::new() } else { vec![form.to_owned()] }
}

/// Checks the name of a port, which has the form of an IANA service name.
pub(super) fn port_name(text: &str) -> Complaints {
    let mut complaints: Complaints = too_long(text, 15).into_iter().collect();
    let mut add = |wrong: bool, what: &str| {
        if wrong {
            complaints.push(what.to_owned());
        }
    };
    add(
        !text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
        "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
    );
    add(!text.bytes().any(|b| b.is_ascii_lowercase()), "must contain at least one letter (a-z)");
    add(text.contains("--"), "must not contain consecutive hyphens");
    add(text.starts_with('-') || text.ends_with('-'), "must not begin or end with a hyphen");
    complaints
}

/// Checks a UID. It is part of paths and cgroup names, so only letters, digits and dashes are allowed.
pub(super) fn uid(text: &str) -> Complaints {
    let fine = text.len() <= LABEL
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    let form = "must consist of at most 63 letters, digits and '-', and begin with a letter or a digit";
    if fine { Vec::new() } else { vec![form.to_owned()] }
}

pub(super) fn ip(text: &str) -> Complaints {
    if text.parse::<std::net::IpAddr>().is_ok() {
        Vec::new()
    } else {
        vec!["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)".to_owned()]
    }
}

/// Checks the name of a sysctl: lower-case letters, digits, `-` and `_`, in parts separated by dots or slashes.
pub(super) fn sysctl_name(text: &str) -> Complaints {
    let alnum = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let part = |p: &str| {
        alnum(p.bytes().next())
            && alnum(p.bytes().next_back())
            && p.bytes().all(|b| alnum(Some(b)) || b == b'-' || b == b'_')
    };
    let fine = text.len() <= SUBDOMAIN && text.split(['.', '/']).all(part);
    let form = "must have at most 253 characters and match regex \
                ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    if fine { Vec::new() } else { vec![form.to_owned()] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(grammar: fn(&str) -> Complaints, good: &[&str], bad: &[&str]) {
        for text in good {
            assert!(grammar(text).is_empty(), "{text:?}: {:?}", grammar(text));
        }
        for text in bad {
            assert!(!grammar(text).is_empty(), "{text:?}");
        }
    }

    #[test]
    fn names_follow_their_grammars() {
        let (l63, l64, s253, s254) = ("a".repeat(63), "a".repeat(64), "a".repeat(253), "a".repeat(254));
        check(dns_label, &["a", "1", "my-name", "a--b", &l63], &["", "A", "a.b", "-a", "a-", "a_b", "é", "a\n", &l64]);
        check(dns_1035_label, &["a", "a1", "my-name", &l63], &["", "1a", "A", "a.b", "-a", "a-", &l64]);
        check(dns_subdomain, &["a.b", "1.2.3", &s253], &["", ".", "a..b", "a.", "A.b", "a_b", "../x", &s254]);
        check(
            qualified_name,
            &["a", "A_b.c-1", "example.com/x", "kubernetes.io/config.hash"],
            &["", "/", "a/", "/a", "a/b/c", "-a", "a b", "Ex.com/a", &l64],
        );
        check(label_value, &["", "a", "A.b_c-1", &l63], &["-", "a ", "a/b", &l64]);
        check(env_name, &["A", "a.b", "A-B", "1", " x"], &["", "A=B", "é", "A\n"]);
        check(port_name, &["http", "a1", "1a", "a-b"], &["", "80", "HTTP", "a--b", "-a", "a-", "abcdefghijklmnop"]);
        check(uid, &["a1", "0123-abc", "D"], &["", "..", "a/b", "-", "a.b", &l64]);
        check(ip, &["10.0.0.1", "::1"], &["", "10.0.0", "10.0.0.1/8", "::g", " 10.0.0.1"]);
        check(sysctl_name, &["net.ipv4.tcp_syncookies", "kernel/shm_rmid_forced", "a"], &["", ".", "a..b", "A", "a-"]);
    }
}
