//! `wherry kubeconfig` without a subcommand: issues a client certificate and writes a kubeconfig that contains it.

use super::document::{self, KubeconfigEntries};
use super::files::Files;
use super::place::{Caller, KubeconfigTarget};
use crate::adapters::pki::{self, Authority, Issued, Role};
use crate::api::printable;
use crate::commands::output::{Failure, print_message, shown};
use crate::config::{self, Config};
use jiff::Timestamp;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

const DAY: u64 = 24 * 3600;
/// The port in a kubeconfig that is created before the port is configured. The documentation also uses this port.
const USUAL_PORT: u16 = 6443;
/// Maximum length of a context's name, in characters. kubectl has no limit.
const MAX_CONTEXT: usize = 253;

#[derive(Debug, clap::Args)]
pub(super) struct Issue {
    /// Write the kubeconfig to this file instead of stdout
    #[arg(long, value_name = "FILE", conflicts_with = "merge")]
    output: Option<PathBuf>,
    /// Merge into an existing kubeconfig [default: the first file of $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    merge: Option<Option<PathBuf>>,
    /// Make this context the current one, even if there is already a current context
    #[arg(long = "use", requires = "merge")]
    select: bool,
    /// Grant read access only
    #[arg(long)]
    view: bool,
    /// Name of the client in the list and the log [default: the calling user]
    #[arg(long = "for", value_name = "NAME")]
    client: Option<String>,
    /// Lifetime of the certificate, such as 12h, 30d or 1y; at most that of the CA
    #[arg(long, value_name = "DURATION", default_value = "1y", value_parser = lifetime)]
    expires: Duration,
    /// URL of the server [default: kubectlAddress and kubectlPort of the configuration]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// Namespace of the context
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Option<String>,
    /// Name of the context, its cluster and its user [default: wherry@NODE]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    #[command(flatten)]
    files: Files,
}

/// Parses a lifetime: a duration of Kubernetes, or a whole number of days (`d`), weeks (`w`) or years (`y`, 365 days).
fn lifetime(text: &str) -> Result<Duration, String> {
    let days = [('d', 1), ('w', 7), ('y', 365)].into_iter().find_map(|(unit, days)| {
        let number = text.strip_suffix(unit)?.parse::<u64>().ok()?;
        Some(number.saturating_mul(days).saturating_mul(DAY))
    });
    let bad = || format!("{text:?} is not a duration; write one like \"12h\", \"30d\" or \"1y\"");
    let lifetime = match days {
        Some(seconds) => Duration::from_secs(seconds),
        None => config::duration::parse(text).map_err(|_| bad())?,
    };
    (lifetime >= Duration::from_secs(1)).then_some(lifetime).ok_or_else(|| "must be at least 1s".to_owned())
}

pub(super) fn run(out: &mut dyn Write, arguments: Issue) -> Result<u8, Failure> {
    let (config, is_broken) = arguments.files.load()?;
    if is_broken {
        return Err(Failure::message("the configuration has errors (see above); correct them first"));
    }
    let caller = Caller::current();
    let name = arguments.client.unwrap_or_else(|| caller.name.clone());
    pki::check_name(&name).map_err(|e| Failure::message(format!("--for: {e}")))?;
    let context = arguments.context.unwrap_or_else(|| format!("wherry@{}", config.node_name));
    check_context(&context).map_err(|e| Failure::message(format!("--context: {e}")))?;
    let (server, tls_name) = match &arguments.server {
        Some(url) => (url.clone(), name_for(url, &config).map_err(|e| Failure::message(format!("--server: {e}")))?),
        None => (format!("https://{}", default_server(&config)), None),
    };
    arguments.namespace.as_deref().map_or(Ok(()), check_namespace)?;
    let target = match (arguments.output, arguments.merge) {
        (Some(path), _) => KubeconfigTarget::Replace(path),
        (None, Some(path)) => KubeconfigTarget::Merge(match path {
            Some(path) => path,
            None => caller.kubeconfig().map_err(Failure::message)?,
        }),
        (None, None) => KubeconfigTarget::Stdout,
    };

    let now = Timestamp::now();
    let directory = pki::directory(&config.root_dir);
    // The lock of the authority also serialises merges into the same file.
    let authority = Authority::open_or_create(&directory, &config.node_name, now).map_err(Failure::message)?;
    let existing = target.existing().map_err(Failure::message)?;
    let merged = |certificate: &str, key: &str| {
        let access = KubeconfigEntries {
            context: &context,
            server: &server,
            tls_name: tls_name.as_deref(),
            namespace: arguments.namespace.as_deref(),
            authority: authority.certificate_pem(),
            certificate,
            key,
        };
        let document = document::merge(existing.clone(), &access, arguments.select);
        document.and_then(|d| document::text(&d)).map_err(|e| Failure::message(target.named(&e)))
    };
    // Check the existing file first: if it is invalid, nothing is issued.
    merged("", "")?;
    let role = if arguments.view { Role::View } else { Role::Edit };
    let issued = authority.client(&name, role, arguments.expires, now).map_err(Failure::message)?;
    let merged = merged(&issued.certificate_pem, &issued.key_pem)?;
    match target.write(&merged, &caller).map_err(Failure::message)? {
        None => {
            out.write_all(merged.as_bytes())?;
            out.flush()?;
        }
        Some(path) => print_message(&format!("{} has the context {context}", path.display())),
    }
    drop(authority);
    report(&config, &issued, arguments.expires, now);
    Ok(0)
}

fn check_namespace(namespace: &str) -> Result<(), Failure> {
    if namespace.len() <= 63 && !namespace.contains('.') && config::is_dns_subdomain(namespace) {
        return Ok(());
    }
    Err(Failure::message(format!(
        "--namespace: \"{}\" is not a valid namespace; use lower case letters, digits and '-', at most 63 characters",
        shown(namespace)
    )))
}

/// Reports on stderr what was issued, and what is missing before it can be used.
fn report(config: &Config, issued: &Issued, lifetime: Duration, now: Timestamp) {
    let client = &issued.client;
    let mut text = format!(
        "issued a certificate for {} (role {}, serial number {}), valid until {:.0}",
        client.name,
        client.role.name(),
        client.serial,
        client.expires
    );
    if now.checked_add(lifetime).is_ok_and(|end| end.as_second() > client.expires.as_second()) {
        text.push_str(", when the CA expires");
    }
    print_message(&text);
    if config.kubectl().is_none() {
        print_message(&format!(
            "note: kubectlPort is 0, so no agent listens for kubectl; set kubectlPort (for example {USUAL_PORT}) in \
             the WherryConfiguration and reload wherry"
        ));
    }
}

fn check_context(name: &str) -> Result<(), String> {
    if name.is_empty() || name.chars().count() > MAX_CONTEXT || !name.chars().all(printable::is_plain) {
        let name = printable::line(name);
        return Err(format!("\"{name}\" is not a valid name; use 1 to {MAX_CONTEXT} printable characters"));
    }
    Ok(())
}

/// Returns the server's address: the configured one, or localhost if the server listens on all addresses.
fn default_server(config: &Config) -> SocketAddr {
    let port = if config.kubectl_port == 0 { USUAL_PORT } else { config.kubectl_port };
    let address = match config.kubectl_address {
        IpAddr::V4(a) if a.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(a) if a.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        address => address,
    };
    SocketAddr::new(address, port)
}

/// Checks the URL of a server. Returns the name that the client must expect in the server's certificate, if that is
/// not the host of the URL. The certificate contains the names of the node, but not, for example, the name of a
/// tunnel.
fn name_for(url: &str, config: &Config) -> Result<Option<String>, String> {
    let shown = printable::line(url);
    let bad = |why: &str| format!("\"{shown}\" {why}; write it like https://10.0.0.5:{USUAL_PORT}");
    if !url.chars().all(|c| c.is_ascii_graphic()) {
        return Err(bad("contains a space, or characters other than printable ASCII"));
    }
    let uri: http::Uri = url.parse().map_err(|_| bad("is not a URL"))?;
    if uri.scheme_str() != Some("https") {
        return Err(bad("does not begin with https:// (kubectl sends certificates only over TLS)"));
    }
    if uri.authority().is_some_and(|a| a.as_str().contains('@')) || uri.query().is_some() {
        return Err(bad("has more than a host and a port"));
    }
    let host = uri.host().map(|h| h.trim_start_matches('[').trim_end_matches(']').to_lowercase()).unwrap_or_default();
    if host.is_empty() {
        return Err(bad("has no host"));
    }
    let address = host.parse::<IpAddr>().ok();
    let is_known = host == "localhost"
        || host == config.node_name
        || address.is_some_and(|a| {
            a == Ipv4Addr::LOCALHOST || a == Ipv6Addr::LOCALHOST || a == config.kubectl_address && !a.is_unspecified()
        });
    Ok((!is_known).then(|| config.node_name.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifetimes_have_days_weeks_and_years_too() {
        for (text, seconds) in [
            ("30d", 30 * DAY),
            ("2w", 14 * DAY),
            ("1y", 365 * DAY),
            ("12h", 12 * 3600),
            ("1h30m", 5400),
            ("1s", 1),
            ("99999999999999999999999y", 0),
            ("18446744073709551615y", u64::MAX),
        ] {
            assert_eq!(lifetime(text).ok(), Some(Duration::from_secs(seconds)).filter(|d| !d.is_zero()), "{text}");
        }
        for text in ["", "d", "1.5d", "-1d", "0d", "0s", "500ms", "1 d", "30", "forever", "１d"] {
            assert!(lifetime(text).is_err(), "{text}");
        }
        assert!(lifetime("soon").unwrap_err().contains("\"30d\""));
    }

    #[test]
    fn the_server_is_the_configured_listener_or_this_machine() {
        let server = |address: &str, port| {
            let config = Config { kubectl_address: address.parse().unwrap(), kubectl_port: port, ..Config::default() };
            default_server(&config).to_string()
        };
        assert_eq!(server("127.0.0.1", 0), "127.0.0.1:6443");
        assert_eq!(server("0.0.0.0", 7000), "127.0.0.1:7000");
        assert_eq!(server("::", 7000), "[::1]:7000");
        assert_eq!(server("10.0.0.5", 7000), "10.0.0.5:7000");
        assert_eq!(server("fd00::5", 7000), "[fd00::5]:7000");
    }

    #[test]
    fn a_server_with_another_name_is_verified_by_the_nodes_name() {
        let address = "10.0.0.5".parse().unwrap();
        let config = Config { node_name: "boat-7".into(), kubectl_address: address, ..Config::default() };
        for url in [
            "https://10.0.0.5:6443",
            "https://localhost",
            "https://BOAT-7:1/",
            "https://127.0.0.1",
            "https://[::1]:6443",
        ] {
            assert_eq!(name_for(url, &config), Ok(None), "{url}");
        }
        for url in ["https://10.0.0.6:6443", "https://tunnel.example:6443/prefix", "https://[fd00::5]:6443"] {
            assert_eq!(name_for(url, &config), Ok(Some("boat-7".into())), "{url}");
        }
        let everywhere = Config { kubectl_address: Ipv4Addr::UNSPECIFIED.into(), ..config.clone() };
        assert_eq!(name_for("https://0.0.0.0", &everywhere), Ok(Some("boat-7".into())));
        for (url, why) in [
            ("http://10.0.0.5", "does not begin with https://"),
            ("10.0.0.5:6443", "https://"),
            ("https://", "is not a URL"),
            ("", "is not a URL"),
            ("https://a b", "contains a space, or characters other than"),
            ("https://a\n", "contains a space, or characters other than"),
            ("https://user:secret@a", "has more than a host and a port"),
            ("https://a?b", "has more than a host and a port"),
        ] {
            let error = name_for(url, &config).unwrap_err();
            assert!(error.contains(why) && error.contains("write it like https://10.0.0.5:6443"), "{url}: {error}");
        }
    }
}
