//! The record of the addresses and node ports of services.

use super::allocation::Allocation;
use crate::api::names::FullName;
use crate::api::ordered::CollectOrdered;
use crate::engine::record_error::{self, RecordError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub const KIND: &str = "services";
/// The key of the only record.
pub const KEY: &str = "services/addresses";
const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
struct StoredService {
    namespace: String,
    name: String,
    #[serde(flatten)]
    allocation: Allocation,
}

/// Returns the text of the record.
pub fn write(all: &BTreeMap<FullName, Allocation>) -> String {
    let stored = |(name, allocation): (&FullName, &Allocation)| StoredService {
        namespace: name.namespace.to_string(),
        name: name.name.to_string(),
        allocation: allocation.clone(),
    };
    let services: Vec<StoredService> = all.iter().map(stored).collect();
    json!({ "version": VERSION, "services": services }).to_string()
}

/// Parses the record.
///
/// # Errors
/// The text is not JSON, a field is missing or invalid, or the version is not supported.
pub fn read(text: &str) -> Result<BTreeMap<FullName, Allocation>, RecordError> {
    let mut all = record_error::parse(text, VERSION)?;
    let services = all.get_mut("services").map(Value::take).ok_or(RecordError::Missing("services"))?;
    let services: Vec<StoredService> =
        serde_json::from_value(services).map_err(|e| RecordError::Invalid { field: "services", why: e.to_string() })?;
    Ok(services.into_iter().map(|one| (FullName::new(&one.namespace, &one.name), one.allocation)).collect_map())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::service_table::Protocol;
    use crate::engine::services::allocation::NodePort;

    #[test]
    fn the_record_is_read_back() {
        let allocation = Allocation {
            addresses: ["10.96.1.2", "fd00::2"].map(|text| text.parse().expect("an address")).into(),
            node_ports: vec![NodePort { protocol: Protocol::Udp, port: 53, node_port: 30053 }],
        };
        let all = BTreeMap::from([
            (FullName::new("shop", "dns"), allocation),
            (FullName::new("default", "headless"), Allocation::default()),
        ]);
        assert_eq!(read(&write(&all)), Ok(all));
    }

    #[test]
    fn an_unusable_record_says_why() {
        for (text, part) in [
            ("{", "EOF"),
            (r#"{"version":2}"#, "version 2"),
            (r#"{"version":1}"#, "services"),
            (r#"{"version":1,"services":[{"namespace":"a","name":"b","addresses":["x"]}]}"#, "address"),
        ] {
            let why = read(text).expect_err(text).to_string();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
