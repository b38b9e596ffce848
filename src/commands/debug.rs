//! `wherry debug dump` prints the complete state of the running agent as JSON, for debugging. `wherry debug fds`
//! lists its descriptors, for reading a trace of its system calls.

use crate::commands::client;
use crate::commands::output::{Failure, document};
use crate::commands::table::Table;
use serde::Deserialize;
use std::io::Write;
use std::path::Path;

pub fn dump(out: &mut dyn Write, socket: &Path) -> Result<u8, Failure> {
    let value = client::get_json(socket, "/debug/dump")?;
    document(out, &value, false)?;
    Ok(0)
}

#[derive(Deserialize)]
struct DescriptorList {
    descriptors: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Descriptor {
    descriptor: i32,
    kind: String,
    watches: String,
    events: Option<u64>,
}

pub fn fds(out: &mut dyn Write, socket: &Path, json: bool) -> Result<u8, Failure> {
    client::print(out, socket, "/debug/fds", json, |out, list: &DescriptorList| {
        let rows: Vec<[String; 4]> = list.descriptors.iter().map(row).collect();
        let rows: Vec<&[String]> = rows.iter().map(<[String; 4]>::as_slice).collect();
        Table::new(&["FD", "KIND", "EVENTS", "WATCHES"]).print(out, true, &rows)
    })
}

fn row(one: &Descriptor) -> [String; 4] {
    let events = one.events.map_or_else(|| "-".to_owned(), |n| n.to_string());
    [one.descriptor.to_string(), one.kind.clone(), events, one.watches.clone()]
}
