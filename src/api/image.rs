//! Image names: the reference grammar of the distribution project, and the default tag.
//!
//! An invalid name is not an error of the manifest. As in a kubelet, the pod exists and its container waits with
//! InvalidImageName. Therefore the name is checked when the image is needed, and by `wherry check`.

/// The maximum length of a repository name (domain and path).
const LONGEST_NAME: usize = 255;

/// Returns the image name for a request to the runtime: unchanged if it has a tag or a digest, otherwise the full
/// name with `:latest` (`busybox` becomes `docker.io/library/busybox:latest`).
///
/// # Errors
/// The kubelet's message for the reason InvalidImageName.
pub fn normalize(name: &str) -> Result<String, String> {
    match Reference::parse(name) {
        Ok(reference) if reference.tagged || reference.digested => Ok(name.to_owned()),
        Ok(reference) => Ok(format!("{}/{}:latest", reference.domain, reference.path)),
        Err(why) => {
            Err(format!("Failed to apply default image tag {name:?}: couldn't parse image name {name:?}: {why}"))
        }
    }
}

/// Checks the form of an image name.
///
/// # Errors
/// The reason why the name is invalid.
pub fn check(name: &str) -> Result<(), String> {
    Reference::parse(name).map(drop)
}

/// Returns the repository of an image with its domain, without tag and digest: `docker.io/library/busybox`. None if
/// the name is invalid.
pub fn repository(name: &str) -> Option<String> {
    Reference::parse(name).ok().map(|reference| format!("{}/{}", reference.domain, reference.path))
}

/// Returns the name with its domain and path, as a runtime lists it: `busybox:1` becomes
/// `docker.io/library/busybox:1`. The tag is dropped if there is also a digest. None if the name is invalid.
pub fn full_name(name: &str) -> Option<String> {
    let reference = Reference::parse(name).ok()?;
    let (domain, path) = (&reference.domain, &reference.path);
    if let Some((_, digest)) = name.split_once('@') {
        return Some(format!("{domain}/{path}@{digest}"));
    }
    let tag = tag_of(name).0.unwrap_or("latest");
    Some(format!("{domain}/{path}:{tag}"))
}

/// Returns the tag of a name, and whether the name has a digest. The tag is None if absent, or if the name is
/// invalid.
pub(crate) fn tag_of(name: &str) -> (Option<&str>, bool) {
    let (name, digest) = match name.split_once('@') {
        Some((name, _)) => (name, true),
        None => (name, false),
    };
    let last = name.rsplit('/').next().unwrap_or(name);
    (last.split_once(':').map(|(_, tag)| tag), digest)
}

struct Reference {
    domain: String,
    path: String,
    tagged: bool,
    digested: bool,
}

impl Reference {
    fn parse(name: &str) -> Result<Reference, String> {
        const FORMAT: &str = "invalid reference format";
        if name.len() == 64 && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
            return Err(format!("invalid repository name ({name}), cannot specify 64-byte hexadecimal strings"));
        }
        let (domain, remainder) = split_domain(name);
        let remote = remainder.split(':').next().unwrap_or("");
        if remote.to_lowercase() != remote {
            return Err(format!("{FORMAT}: repository name ({remote}) must be lowercase"));
        }
        let (rest, digest) = match remainder.split_once('@') {
            Some((rest, digest)) => (rest, Some(digest)),
            None => (remainder.as_str(), None),
        };
        let (path, tag) = match rest.split_once(':') {
            Some((path, tag)) => (path, Some(tag)),
            None => (rest, None),
        };
        if !is_domain(&domain) || !path.split('/').all(is_path_component) || !tag.is_none_or(is_tag) {
            return Err(FORMAT.to_owned());
        }
        if let Some(digest) = digest {
            check_digest(digest).map_err(|why| why.unwrap_or(FORMAT).to_owned())?;
        }
        if domain.len() + 1 + path.len() > LONGEST_NAME {
            return Err(format!("repository name must not be more than {LONGEST_NAME} characters"));
        }
        Ok(Reference { path: path.to_owned(), tagged: tag.is_some(), digested: digest.is_some(), domain })
    }
}

/// Splits off the domain. The first part is a domain if it has a dot, a port or an upper-case letter, or is
/// `localhost`. Otherwise the image is on Docker Hub.
fn split_domain(name: &str) -> (String, String) {
    let (domain, remainder) = match name.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" || first.to_lowercase() != first => {
            (if first == "index.docker.io" { "docker.io" } else { first }, rest)
        }
        _ => ("docker.io", name),
    };
    let library = domain == "docker.io" && !remainder.contains('/');
    (domain.to_owned(), format!("{}{remainder}", if library { "library/" } else { "" }))
}

fn is_domain(domain: &str) -> bool {
    if let Some(v6) = domain.strip_prefix('[') {
        let Some((address, port)) = v6.split_once(']') else { return false };
        let fine = !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
        return fine && (port.is_empty() || port.strip_prefix(':').is_some_and(is_number));
    }
    let (host, port) = match domain.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (domain, None),
    };
    host.split('.').all(is_domain_component) && port.is_none_or(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

fn is_domain_component(part: &str) -> bool {
    !part.is_empty()
        && !part.starts_with('-')
        && !part.ends_with('-')
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Reports whether the part consists of lower-case letters and digits, separated by `.`, `_`, `__` or any number of
/// `-`.
fn is_path_component(part: &str) -> bool {
    let alnum = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = part.as_bytes();
    if !bytes.first().is_some_and(|&b| alnum(b)) || !bytes.last().is_some_and(|&b| alnum(b)) {
        return false;
    }
    bytes
        .split(|&b| alnum(b))
        .all(|between| matches!(between, b"" | b"." | b"_" | b"__") || between.iter().all(|&b| b == b'-'))
}

fn is_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    tag.len() <= 128 && tag.bytes().next().is_some_and(word) && tag.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

/// Checks a digest. `Err(None)` is a syntax error. `Err(Some(..))` means that the form is valid, but the content is
/// not.
fn check_digest(digest: &str) -> Result<(), Option<&'static str>> {
    let (algorithm, hex) = digest.split_once(':').ok_or(None)?;
    let part = |p: &str| {
        p.bytes().next().is_some_and(|b| b.is_ascii_alphabetic()) && p.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    if !algorithm.split(['-', '_', '+', '.']).all(part) || hex.len() < 32 || !hex.bytes().all(|b| b.is_ascii_hexdigit())
    {
        return Err(None);
    }
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Err(Some("unsupported digest algorithm")),
    };
    if hex.len() != length {
        return Err(Some("invalid checksum digest length"));
    }
    if hex.bytes().any(|b| b.is_ascii_uppercase()) {
        return Err(Some("invalid checksum digest format"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_name_without_a_tag_gets_the_default_one_in_full() {
        for (name, full) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("grafana/loki", "docker.io/grafana/loki:latest"),
            ("localhost/web", "localhost/web:latest"),
            ("registry.example.com:5000/a/b-c/d__e.f", "registry.example.com:5000/a/b-c/d__e.f:latest"),
            ("index.docker.io/busybox", "docker.io/library/busybox:latest"),
            ("[fd00::1]:5000/web", "[fd00::1]:5000/web:latest"),
        ] {
            assert_eq!(normalize(name).unwrap(), full);
        }
    }

    #[test]
    fn a_repository_has_a_domain_and_neither_tag_nor_digest() {
        assert_eq!(repository("busybox:1.35").as_deref(), Some("docker.io/library/busybox"));
        assert_eq!(repository(&format!("r.io:5000/a/b:1@{DIGEST}")).as_deref(), Some("r.io:5000/a/b"));
        assert_eq!(repository("UPPER"), None);
    }

    #[test]
    fn a_name_with_a_tag_or_digest_stays_as_written() {
        let digested = format!("web@{DIGEST}");
        let both = format!("localhost:5000/web:1@{DIGEST}");
        for name in ["busybox:1.35", "localhost/busybox:1.35", "a.b/c:Tag_1.x-y", &digested, &both] {
            assert_eq!(normalize(name).unwrap(), name);
        }
    }

    #[test]
    fn wrong_names_get_the_kubelets_message() {
        assert_eq!(
            normalize("localhost/UPPER").unwrap_err(),
            "Failed to apply default image tag \"localhost/UPPER\": couldn't parse image name \"localhost/UPPER\": \
             invalid reference format: repository name (UPPER) must be lowercase"
        );
        let bad_digest = format!("web@{}", &DIGEST[..60]);
        let long = format!("a.b/{}", "x".repeat(256));
        let hex = "a".repeat(64);
        for (name, why) in [
            ("", "invalid reference format"),
            ("a b", "invalid reference format"),
            ("web:", "invalid reference format"),
            (":tag", "invalid reference format"),
            ("web:-x", "invalid reference format"),
            ("a//b", "invalid reference format"),
            ("/web", "invalid reference format"),
            ("a..b", "invalid reference format"),
            ("a___b", "invalid reference format"),
            ("-a", "invalid reference format"),
            ("a.b-/c", "invalid reference format"),
            ("a.b:x/c", "invalid reference format"),
            ("web@sha256:1234", "invalid reference format"),
            ("web@md9:e3b0c44298fc1c149afbf4c8996fb92427ae41e4", "unsupported digest algorithm"),
            (&bad_digest, "invalid checksum digest length"),
            (&long, "repository name must not be more than 255 characters"),
            (&hex, "cannot specify 64-byte hexadecimal strings"),
        ] {
            let error = normalize(name).unwrap_err();
            assert!(error.ends_with(why), "{name}: {error}");
        }
    }

    #[test]
    fn a_full_name_is_that_of_the_runtimes_list() {
        for (name, full) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("app/web:1", "docker.io/app/web:1"),
            ("localhost:5000/web:1", "localhost:5000/web:1"),
        ] {
            assert_eq!(full_name(name).as_deref(), Some(full));
        }
        let digest = format!("sha256:{}", "0".repeat(64));
        let full = full_name(&format!("web:1@{digest}"));
        assert_eq!(full, Some(format!("docker.io/library/web@{digest}")));
        assert_eq!(full_name("UPPER:1"), None);
    }

    #[test]
    fn a_tag_is_distinguished_from_ports_and_digests() {
        assert_eq!(tag_of("localhost:5000/web"), (None, false));
        assert_eq!(tag_of("localhost:5000/web:1"), (Some("1"), false));
        assert_eq!(tag_of("web:latest@sha256:00"), (Some("latest"), true));
    }
}
