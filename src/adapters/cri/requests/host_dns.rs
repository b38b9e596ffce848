//! The settings of the host's resolver.

use crate::api::ordered::CollectOrdered;
use std::collections::BTreeMap;

/// A parsed resolv.conf.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostDns {
    pub servers: Vec<String>,
    pub searches: Vec<String>,
    pub options: Vec<String>,
}

impl HostDns {
    /// Parses a resolv.conf: every `nameserver`, the last `search`, all `options`. Unknown lines and comments are
    /// skipped, as resolvers do.
    pub fn parse(text: &str) -> HostDns {
        let mut dns = HostDns::default();
        for line in text.lines() {
            let line = line.trim();
            if line.starts_with(['#', ';']) {
                continue;
            }
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => dns.servers.extend(words.next().map(str::to_owned)),
                Some("search") => {
                    dns.searches =
                        words.map(|w| if w == "." { w } else { w.strip_suffix('.').unwrap_or(w) }.to_owned()).collect();
                }
                Some("options") => set_options(&mut dns.options, words.map(str::to_owned)),
                _ => {}
            }
        }
        dns
    }

    /// Returns the settings for an empty `resolvConf`: the host's settings are not used, and queries fail.
    pub fn none() -> HostDns {
        HostDns { servers: vec!["127.0.0.1".into()], searches: vec![".".into()], options: Vec::new() }
    }
}

/// Adds each `name` or `name:value`, and replaces an option with the same name.
pub(super) fn set_options(options: &mut Vec<String>, more: impl Iterator<Item = String>) {
    let name = |option: &str| option.split(':').next().unwrap_or_default().to_owned();
    let mut places: BTreeMap<String, usize> = options.iter().enumerate().map(|(i, o)| (name(o), i)).collect_map();
    for option in more {
        match places.get(&name(&option)) {
            Some(place) => options[*place] = option,
            None => {
                places.insert(name(&option), options.len());
                options.push(option);
            }
        }
    }
}
