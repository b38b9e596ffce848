//! The names of services (Y27): lines for the hosts files of pods.

use super::endpoints::EndpointState;
use super::entry::ServiceEntry;
use crate::api::names::FullName;
use crate::api::ordered::CollectOrdered;
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;
use std::rc::Rc;

/// *(ours)* The maximum size of these lines in a hosts file, in bytes. A program reads the whole file for each name.
const MAX_BYTES: usize = 64 * 1024;
const TITLE: &str = "\n# Services of this machine.\n";

/// The lines for the pods of each namespace. In its own namespace, a service has its short name too. The text of a
/// namespace is made when a pod needs it, so namespaces without pods take no memory.
#[derive(Debug, Default)]
pub struct ServiceNames {
    lines: Vec<NameLine>,
    domain: Rc<str>,
    of_namespaces: BTreeMap<Rc<str>, OnceCell<Rc<str>>>,
    /// For namespaces without services.
    of_others: OnceCell<Rc<str>>,
    /// Some names do not fit.
    pub is_cut: bool,
}

/// One address with its names, without the domain: `web-0.web` of the namespace `shop`.
#[derive(Debug)]
struct NameLine {
    namespace: Rc<str>,
    address: IpAddr,
    name: String,
}

impl ServiceNames {
    pub fn of<'a>(services: impl Iterator<Item = (&'a FullName, &'a ServiceEntry)>, domain: &str) -> ServiceNames {
        let lines: Vec<NameLine> = services.flat_map(|(name, entry)| lines(name, entry)).collect();
        let of_namespaces = lines.iter().map(|line| (line.namespace.clone(), OnceCell::new())).collect_map();
        let mut names = ServiceNames { lines, domain: domain.into(), of_namespaces, ..ServiceNames::default() };
        names.is_cut = names.longest() > MAX_BYTES;
        names
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Returns the lines for the pods of a namespace. Empty: there are none.
    pub fn lines(&self, namespace: &str) -> &Rc<str> {
        let (text, namespace) = match self.of_namespaces.get(namespace) {
            Some(text) => (text, namespace),
            None => (&self.of_others, ""),
        };
        text.get_or_init(|| self.text(namespace).into())
    }

    /// Returns the size of the longest text without a limit.
    fn longest(&self) -> usize {
        let mut short_names: BTreeMap<&str, usize> = BTreeMap::new();
        let mut size = 0;
        let mut text = String::new();
        for line in &self.lines {
            text.clear();
            line.write("", &self.domain, &mut text);
            size += text.len();
            *short_names.entry(&line.namespace).or_default() += "\t".len() + line.name.len();
        }
        match short_names.into_values().max() {
            Some(most) => TITLE.len() + size + most,
            None => 0,
        }
    }

    /// Returns the lines for a namespace, as many as fit.
    fn text(&self, namespace: &str) -> String {
        let mut text = String::new();
        // The services of the namespace come first, because only they have short names.
        let (own, others): (Vec<_>, Vec<_>) = self.lines.iter().partition(|line| *line.namespace == *namespace);
        for line in own.into_iter().chain(others) {
            let before = text.len();
            if text.is_empty() {
                text.push_str(TITLE);
            }
            line.write(namespace, &self.domain, &mut text);
            if text.len() > MAX_BYTES {
                text.truncate(before);
                break;
            }
        }
        text
    }
}

impl NameLine {
    /// Appends the line for the pods of a namespace.
    fn write(&self, for_namespace: &str, domain: &str, text: &mut String) {
        let NameLine { namespace: of, address, name } = self;
        // Writing to a String cannot fail.
        let _ = write!(text, "{address}\t{name}.{of}.svc.{domain}\t{name}.{of}.svc\t{name}.{of}");
        if **of == *for_namespace {
            let _ = write!(text, "\t{name}");
        }
        text.push('\n');
    }
}

/// Returns the lines of a service: its addresses, or those of its ready endpoints if it is headless.
fn lines(name: &FullName, entry: &ServiceEntry) -> Vec<NameLine> {
    let line = |address: IpAddr, own: String| NameLine { namespace: name.namespace.clone(), address, name: own };
    let own = || name.name.to_string();
    let mut all: Vec<NameLine> = entry.named_addresses().into_iter().map(|address| line(address, own())).collect();
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
