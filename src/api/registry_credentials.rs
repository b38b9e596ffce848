//! Credentials for image registries: reads docker's configuration files and finds the entries that match an image.
//!
//! The rules are those of a kubelet's keyring (`pkg/credentialprovider/keyring.go`): a key is a host or a host with a
//! path; each part of the host may be a pattern; all entries that match are tried, the most specific one first.
//!
//! No error contains a value, and no debug output shows a credential: `Debug` prints only counts.

use crate::api::k8s::ByteString;
use serde_json::{Map, Value};
use std::fmt;

/// The maximum size of a configuration in bytes, as for a Secret.
pub const MAX_BYTES: usize = 1 << 20;
/// The host under which docker stores the credentials of Docker Hub.
const DOCKER_HUB: &str = "index.docker.io";

/// What a registry accepts as proof of identity. Empty fields are not set.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credential {
    pub username: String,
    pub password: String,
    /// A refresh token, which the runtime exchanges for a registry token.
    pub identity_token: String,
    pub registry_token: String,
}

impl Credential {
    fn is_empty(&self) -> bool {
        *self == Credential::default()
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

/// Credentials by host and path, the most specific first.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Keyring {
    /// The entries in descending order of their keys, so that a path comes before its parent.
    entries: Vec<(String, Vec<Credential>)>,
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keyring({} entries)", self.entries.len())
    }
}

impl Keyring {
    /// Reads `config.json`, the format of `kubernetes.io/dockerconfigjson`: the entries are in `auths`. Other fields
    /// have no effect; in particular, no helper program of docker is called.
    ///
    /// # Errors
    /// The text is not JSON, or an entry has the wrong form.
    pub fn from_docker_config(text: &[u8]) -> Result<Keyring, String> {
        match object(text)?.remove("auths") {
            None | Some(Value::Null) => Ok(Keyring::default()),
            Some(Value::Object(auths)) => Keyring::from_auths(auths, "auths"),
            Some(_) => Err("auths: must be an object".to_owned()),
        }
    }

    /// Reads `.dockercfg`, the format of `kubernetes.io/dockercfg`: the text is the object of the entries.
    ///
    /// # Errors
    /// The text is not JSON, or an entry has the wrong form.
    pub fn from_dockercfg(text: &[u8]) -> Result<Keyring, String> {
        Keyring::from_auths(object(text)?, "")
    }

    /// Builds a keyring from the entries. `at` is the name of the object in errors.
    pub(crate) fn from_auths(auths: Map<String, Value>, at: &str) -> Result<Keyring, String> {
        let mut keyring = Keyring::default();
        for (location, entry) in &auths {
            let credential = credential(entry).map_err(|why| format!("{at}[{location}]{why}"))?;
            // With a credential store, docker writes empty entries, which a runtime would refuse. So they are
            // skipped.
            if !credential.is_empty() {
                keyring.add(key_of(location), credential);
            }
        }
        Ok(keyring)
    }

    fn add(&mut self, key: String, credential: Credential) {
        match self.entries.binary_search_by(|(k, _)| key.cmp(k)) {
            Ok(i) => self.entries[i].1.push(credential),
            Err(i) => self.entries.insert(i, (key, vec![credential])),
        }
    }

    /// Adds all entries of another keyring.
    pub fn merge(&mut self, other: Keyring) {
        for (key, credentials) in other.entries {
            credentials.into_iter().for_each(|credential| self.add(key.clone(), credential));
        }
    }

    /// Returns the credentials that match the repository of an image (`docker.io/library/busybox`), in the order in
    /// which they are tried.
    pub fn lookup(&self, repository: &str) -> Vec<&Credential> {
        let found = self.entries.iter().filter(|(key, _)| matches(key, repository));
        let found: Vec<&Credential> = found.flat_map(|(_, credentials)| credentials).collect();
        if !found.is_empty() || !is_docker_hub(repository) {
            return found;
        }
        self.entries.iter().filter(|(key, _)| key == DOCKER_HUB).flat_map(|(_, credentials)| credentials).collect()
    }
}

/// Returns the credentials of several keyrings that match the repository, without duplicates.
pub fn candidates<'k>(keyrings: impl IntoIterator<Item = &'k Keyring>, repository: &str) -> Vec<Credential> {
    let mut all: Vec<Credential> = Vec::new();
    for credential in keyrings.into_iter().flat_map(|keyring| keyring.lookup(repository)) {
        if !all.contains(credential) {
            all.push(credential.clone());
        }
    }
    all
}

/// Parses the text as a JSON object. For a syntax error, only the position is reported.
pub(crate) fn object(text: &[u8]) -> Result<Map<String, Value>, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("larger than {MAX_BYTES} bytes"));
    }
    match serde_json::from_slice(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("must be a JSON object".to_owned()),
        Err(e) => Err(format!("not valid JSON (line {}, column {})", e.line(), e.column())),
    }
}

/// Reads an entry. The error text follows the name of the entry, so it begins with the field (`.auth: ...`).
fn credential(entry: &Value) -> Result<Credential, String> {
    let Value::Object(entry) = entry else { return Err(": must be an object".to_owned()) };
    let text = |name: &str| match entry.get(name) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!(".{name}: must be a string")),
    };
    let mut found = Credential {
        username: text("username")?,
        password: text("password")?,
        identity_token: text("identitytoken")?,
        registry_token: text("registrytoken")?,
    };
    let auth = text("auth")?;
    if !auth.is_empty() {
        let decoded = base64(&auth).ok_or(".auth: must be the base64 form of user:password")?;
        let (username, password) = decoded.split_once(':').ok_or(".auth: must be the base64 form of user:password")?;
        found.username = username.to_owned();
        found.password = password.to_owned();
    }
    Ok(found)
}

/// Decodes base64 with or without padding, as a kubelet does.
pub(crate) fn base64(text: &str) -> Option<String> {
    let mut text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    while !text.len().is_multiple_of(4) {
        text.push('=');
    }
    let bytes: ByteString = serde_json::from_value(Value::String(text)).ok()?;
    String::from_utf8(bytes.0).ok()
}

/// Returns the key of an entry: host and path, without the scheme and without the version of docker's API.
fn key_of(location: &str) -> String {
    let rest = location.strip_prefix("https://").or_else(|| location.strip_prefix("http://")).unwrap_or(location);
    let (host, path) = split(rest);
    let path = match path.strip_prefix("/v1/").or_else(|| path.strip_prefix("/v2/")) {
        Some(_) => &path[3..],
        None => path,
    };
    if path == "/" { host.to_owned() } else { format!("{host}{path}") }
}

/// Splits a location into the host (with its port) and the path (empty, or starting with a slash).
fn split(location: &str) -> (&str, &str) {
    let location = location.split(['?', '#']).next().unwrap_or(location);
    location.find('/').map_or((location, ""), |slash| location.split_at(slash))
}

fn is_docker_hub(repository: &str) -> bool {
    match repository.split_once('/') {
        None => !repository.is_empty(),
        Some((first, _)) => {
            matches!(first, "docker.io" | "index.docker.io") || !first.is_empty() && !first.contains(['.', ':'])
        }
    }
}

/// Reports whether the pattern (`*.example.com:5000/team`) matches a repository: the same port, the same number of
/// parts in the host, each part matching its pattern, and the path as a prefix.
pub fn matches(pattern: &str, repository: &str) -> bool {
    let ((pattern, prefix), (host, path)) = (split(pattern), split(repository));
    let ((pattern, pattern_port), (host, port)) = (port_of(pattern), port_of(host));
    let (patterns, parts): (Vec<&str>, Vec<&str>) = (pattern.split('.').collect(), host.split('.').collect());
    pattern_port == port
        && patterns.len() == parts.len()
        && path.starts_with(prefix)
        && patterns.iter().zip(parts).all(|(pattern, part)| is_match(pattern, part))
}

fn port_of(host: &str) -> (&str, Option<&str>) {
    match host.rsplit_once(':') {
        // An IPv6 address contains colons.
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (host, None),
    }
}

/// Matches a part of a host: `*`, `[a-z]`, `[^a-z]` and `\` as in Go's `path/filepath` (`?` begins the query of a URL).
/// An invalid pattern matches nothing.
fn is_match(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // Where to continue after a mismatch: the pattern after the last `*`, and the end of the text that this `*`
    // matches.
    let (mut p, mut t, mut star) = (0, 0, None);
    while p < pattern.len() || t < text.len() {
        if pattern.get(p) == Some(&'*') {
            star = Some((p + 1, t));
            p += 1;
            continue;
        }
        if let Some(next) = text.get(t).and_then(|c| one(&pattern, p, *c)) {
            (p, t) = (next, t + 1);
            continue;
        }
        match star {
            Some((after, taken)) if taken < text.len() => {
                star = Some((after, taken + 1));
                (p, t) = (after, taken + 1);
            }
            _ => return false,
        }
    }
    true
}

/// Matches one character against the pattern at `p`. Returns the position of the rest of the pattern.
fn one(pattern: &[char], p: usize, c: char) -> Option<usize> {
    match pattern.get(p)? {
        '\\' => (*pattern.get(p + 1)? == c).then_some(p + 2),
        '[' => {
            let negated = pattern.get(p + 1) == Some(&'^');
            let mut at = p + 1 + usize::from(negated);
            let mut found = false;
            let first = at;
            loop {
                if *pattern.get(at)? == ']' && at > first {
                    return (found != negated).then_some(at + 1);
                }
                let low = literal(pattern, &mut at)?;
                let high = if pattern.get(at) == Some(&'-') {
                    at += 1;
                    literal(pattern, &mut at)?
                } else {
                    low
                };
                found |= (low..=high).contains(&c);
            }
        }
        literal => (*literal == c).then_some(p + 1),
    }
}

fn literal(pattern: &[char], at: &mut usize) -> Option<char> {
    if pattern.get(*at) == Some(&'\\') {
        *at += 1;
    }
    let c = *pattern.get(*at)?;
    *at += 1;
    Some(c)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn keyring(auths: Value) -> Keyring {
        Keyring::from_docker_config(json!({"auths": auths}).to_string().as_bytes()).unwrap()
    }

    fn users(keyring: &Keyring, repository: &str) -> Vec<String> {
        keyring.lookup(repository).into_iter().map(|c| c.username.clone()).collect()
    }

    fn user(name: &str) -> Value {
        json!({"username": name, "password": "p"})
    }

    #[test]
    fn a_pattern_matches_host_port_and_path() {
        for (pattern, repository, expected) in [
            ("example.com", "example.com/team/app", true),
            ("example.com", "example.com", true),
            ("example.com", "example.org/app", false),
            ("example.com", "sub.example.com/app", false),
            ("*.example.com", "sub.example.com/app", true),
            ("*.example.com", "a.b.example.com/app", false),
            ("*.example.com", "example.com/app", false),
            ("*.*.example.com", "a.b.example.com/app", true),
            ("prefix.*.com", "prefix.example.com/app", true),
            ("*-good.example.com", "very-good.example.com/app", true),
            ("*-good.example.com", "bad.example.com/app", false),
            ("*[a-c].io", "xb.io/app", true),
            ("*[a-c].io", "xd.io/app", false),
            ("r[a-f]g.example.com", "reg.example.com/app", true),
            ("r[^a-f]g.example.com", "reg.example.com/app", false),
            ("*a*b.io", "xxaxxb.io/app", true),
            ("example.com:5000", "example.com:5000/app", true),
            ("example.com:5000", "example.com/app", false),
            ("example.com", "example.com:5000/app", false),
            ("*.example.com:*", "a.example.com:80/app", false),
            ("example.com/team", "example.com/team/app", true),
            ("example.com/team", "example.com/other/app", false),
            ("*.example.com/team", "a.example.com/team/app", true),
            ("example.com/*", "example.com/team", false),
            ("[", "[/app", false),
            ("127.0.0.1:5000", "127.0.0.1:5000/app", true),
            ("[fd00::1]:5000", "[fd00::1]:5000/app", false),
        ] {
            assert_eq!(matches(pattern, repository), expected, "{pattern} {repository}");
        }
    }

    #[test]
    fn all_matching_entries_are_used_the_longest_path_first() {
        let keyring = keyring(json!({
            "example.com": user("host"),
            "https://example.com/team/v2": user("deep"),
            "example.com/team": user("team"),
            "http://example.com/v1/": user("old"),
            "*.com": user("any"),
        }));
        assert_eq!(users(&keyring, "example.com/team/v2/app"), ["deep", "team", "host", "old", "any"]);
        assert_eq!(
            users(&keyring, "example.com/teams/app"),
            ["team", "host", "old", "any"],
            "a prefix, as in a kubelet"
        );
        assert_eq!(users(&keyring, "other.com/app"), ["any"]);
        assert!(users(&keyring, "example.org/app").is_empty());
    }

    #[test]
    fn docker_hub_has_several_names() {
        let hub = keyring(json!({"https://index.docker.io/v1/": user("hub")}));
        for name in ["docker.io/library/busybox", "index.docker.io/library/busybox", "library/busybox", "busybox"] {
            assert_eq!(users(&hub, name), ["hub"], "{name}");
        }
        assert!(users(&hub, "quay.io/busybox").is_empty() && users(&hub, "localhost:5000/busybox").is_empty());
        let both = keyring(json!({"https://index.docker.io/v1/": user("hub"), "docker.io": user("named")}));
        assert_eq!(users(&both, "docker.io/library/busybox"), ["named"]);
    }

    #[test]
    fn an_entry_has_a_user_in_either_form_or_a_token() {
        let one = |entry: Value| keyring(json!({"r.io": entry})).lookup("r.io/a").first().map(|c| (*c).clone());
        let expected = Credential { username: "me".into(), password: "a:b".into(), ..Credential::default() };
        assert_eq!(one(json!({"auth": "bWU6YTpi"})), Some(expected.clone()));
        assert_eq!(one(json!({"auth": "bWU6YTpi\n", "username": "other", "email": "x"})), Some(expected));
        // Without padding: "u:pw".
        assert_eq!(one(json!({"auth": "dTpwdw"})).map(|c| c.password), Some("pw".into()));
        assert_eq!(one(json!({"identitytoken": "t"})).map(|c| c.identity_token), Some("t".into()));
        assert_eq!(one(json!({"registrytoken": "t"})).map(|c| c.registry_token), Some("t".into()));
        assert_eq!(one(json!({})), None);
    }

    #[test]
    fn an_error_names_the_entry_and_shows_no_value() {
        for (text, expected) in [
            (
                r#"{"auths": {"r.io": {"auth": "hunter2!"}}}"#,
                "auths[r.io].auth: must be the base64 form of user:password",
            ),
            (
                r#"{"auths": {"r.io": {"auth": "aHVudGVyMg=="}}}"#,
                "auths[r.io].auth: must be the base64 form of user:password",
            ),
            (r#"{"auths": {"r.io": {"password": 7}}}"#, "auths[r.io].password: must be a string"),
            (r#"{"auths": {"r.io": "hunter2"}}"#, "auths[r.io]: must be an object"),
            (r#"{"auths": "hunter2"}"#, "auths: must be an object"),
            (r#""hunter2""#, "must be a JSON object"),
            ("{hunter2", "not valid JSON (line 1, column 2)"),
        ] {
            assert_eq!(Keyring::from_docker_config(text.as_bytes()).unwrap_err(), expected);
        }
        assert_eq!(Keyring::from_dockercfg(b"{\"r.io\": 1}").unwrap_err(), "[r.io]: must be an object");
        assert_eq!(Keyring::from_docker_config(b"{}"), Ok(Keyring::default()));
    }

    #[test]
    fn candidates_contain_each_credential_once_in_the_order_of_the_keyrings() {
        let (one, two) =
            (keyring(json!({"r.io": user("a")})), keyring(json!({"r.io": user("b"), "r.io/x": user("a")})));
        let found: Vec<String> = candidates([&one, &two], "r.io/x").into_iter().map(|c| c.username).collect();
        assert_eq!(found, ["a", "b"]);
    }

    #[test]
    fn debug_output_shows_no_credential() {
        let keyring = keyring(json!({"r.io": {"username": "me", "password": "hunter2"}}));
        let text = format!("{keyring:?} {:?}", keyring.lookup("r.io/a"));
        assert_eq!(text, "Keyring(1 entries) [Credential]");
    }
}
