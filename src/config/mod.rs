//! The configuration. It consists of the kubelet's `KubeletConfiguration` in a file and drop-ins, a second document
//! of Wherry's own for settings that a KubeletConfiguration lacks, and command line flags, which override both.
//! `credential_providers` reads one more file.
//!
//! Documents are applied in order, field by field. A later file overrides only the fields that it sets; a list is
//! replaced as a whole. All files are read to the end, so that every error is reported at once, with file and line.
//! The settings of a cluster (`cluster`) come first, so that they apply only where no other file sets the field.
//! `table` reads a document according to a table of fields; `kubelet` and `wherry` contain the two tables. `assemble`
//! combines all documents and the `flags` into one configuration (`settings`). `effective` shows the result.

mod assemble;
pub mod cluster;
mod credential_providers;
mod effective;
mod eviction;
mod field_value;
mod files;
mod flags;
pub mod kubelet;
mod names;
mod node_server;
pub mod node_size;
pub mod problem;
pub mod registration;
mod services;
mod settings;
pub mod shutdown;
mod storage;
pub mod table;
pub mod wherry;
pub mod yaml;

pub use crate::api::cgroups::CgroupDriver;
pub use crate::api::duration;
pub use assemble::check_text;
pub use files::read_file;
pub use flags::{DEFAULT_DIR, DEFAULT_FILE, DEFAULT_SOCKET, Flags};
pub(crate) use names::{check_socket, is_dns_subdomain};
pub use node_server::{CertificateSource, NodeServer};
pub use settings::Config;

use assemble::{assemble, host_name};
use problem::{Place, Problems};
use std::path::PathBuf;

/// A configuration and its problems. The configuration must not be used if there is an error.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    pub problems: Problems,
    /// The files that were read, in order.
    pub files: Vec<PathBuf>,
}

impl Loaded {
    pub fn is_ok(&self) -> bool {
        self.problems.errors.is_empty()
    }
}

/// Reads all files that `flags` and the defaults name.
pub fn load(flags: &Flags) -> Loaded {
    let mut problems = Problems::default();
    let mut texts = files::read_all(flags, &mut problems);
    cluster::add_defaults(&mut texts, flags, &mut problems);
    let (mut config, places) = assemble(&texts, flags, &host_name(), &mut problems);
    let place = |field: &str| places.get(field).cloned().unwrap_or_else(Place::flag);
    credential_providers::read(&mut config, place, &mut problems);
    Loaded { config, problems, files: texts.into_iter().map(|t| t.path).collect() }
}

/// Reports whether the text is a configuration and not a manifest. Returns false if it is not valid YAML.
pub fn is_configuration(text: &[u8]) -> bool {
    let Some(documents) = std::str::from_utf8(text).ok().and_then(|text| yaml::read(text).ok()) else { return false };
    documents.iter().any(|document| {
        let kind = document.value.get("kind").and_then(|n| n.value.text());
        kind == Some(kubelet::KIND) || kind == Some(wherry::KIND)
    })
}

#[cfg(test)]
mod tests;
