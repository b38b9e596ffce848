//! The names of services (Y27): lines for the hosts files of pods.

use super::endpoints::EndpointState;
use super::entry::ServiceEntry;
use crate::api::names::FullName;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::rc::Rc;

/// *(ours)* The maximum size of these lines in a hosts file, in bytes. A program reads the whole file for each name.
const MAX_BYTES: usize = 64 * 1024;
const TITLE: &str = "\n# Services of this machine.\n";

/// The lines for the pods of each namespace. In its own namespace, a service has its short name too.
#[derive(Debug, Default)]
pub struct ServiceNames {
    of_namespaces: BTreeMap<Rc<str>, Rc<str>>,
    /// For namespaces without services.
    of_others: Rc<str>,
    /// Some names did not fit.
    pub is_cut: bool,
}

/// One address with its names, without the domain: `web-0.web` of the namespace `shop`.
struct NameLine<'a> {
    namespace: &'a str,
    address: IpAddr,
    name: String,
}

impl ServiceNames {
    pub fn of<'a>(services: impl Iterator<Item = (&'a FullName, &'a ServiceEntry)>, domain: &str) -> ServiceNames {
        let lines: Vec<NameLine<'_>> = services.flat_map(|(name, entry)| lines(name, entry)).collect();
        let mut is_cut = false;
        let mut text = |namespace: &str| {
            let (text, cut) = text(&lines, namespace, domain);
            is_cut |= cut;
            Rc::<str>::from(text)
        };
        let mut of_namespaces = BTreeMap::new();
        for line in &lines {
            if !of_namespaces.contains_key(line.namespace) {
                of_namespaces.insert(Rc::from(line.namespace), text(line.namespace));
            }
        }
        let of_others = text("");
        ServiceNames { of_namespaces, of_others, is_cut }
    }

    pub fn is_empty(&self) -> bool {
        self.of_namespaces.is_empty()
    }

    /// Returns the lines for the pods of a namespace. Empty: there are none.
    pub fn lines(&self, namespace: &str) -> &Rc<str> {
        self.of_namespaces.get(namespace).unwrap_or(&self.of_others)
    }
}

/// Returns the lines of a service: its addresses, or those of its ready endpoints if it is headless.
fn lines<'a>(name: &'a FullName, entry: &ServiceEntry) -> Vec<NameLine<'a>> {
    let namespace: &str = &name.namespace;
    let line = |address: IpAddr, name: String| NameLine { namespace, address, name };
    let own = || name.name.to_string();
    let mut all: Vec<NameLine<'_>> = entry.named_addresses().into_iter().map(|address| line(address, own())).collect();
    let ready = entry.endpoints.iter().filter(|one| one.state == EndpointState::Ready);
    for endpoint in ready {
        for address in &endpoint.addresses {
            if entry.is_headless() {
                all.push(line(*address, own()));
            }
            if let Some(hostname) = &endpoint.hostname {
                all.push(line(*address, format!("{hostname}.{}", name.name)));
            }
        }
    }
    all
}

/// Returns the lines for a namespace, and whether some were left out.
fn text(lines: &[NameLine<'_>], namespace: &str, domain: &str) -> (String, bool) {
    let mut text = String::new();
    // The services of the namespace come first, because only they have short names.
    let (own, others): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.namespace == namespace);
    for NameLine { namespace: of, address, name } in own.into_iter().chain(others) {
        let before = text.len();
        if text.is_empty() {
            text.push_str(TITLE);
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "{address}\t{name}.{of}.svc.{domain}\t{name}.{of}.svc\t{name}.{of}");
        if *of == namespace {
            let _ = write!(text, "\t{name}");
        }
        text.push('\n');
        if text.len() > MAX_BYTES {
            text.truncate(before);
            return (text, true);
        }
    }
    (text, false)
}
