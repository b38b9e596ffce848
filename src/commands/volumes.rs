//! `wherry volumes`: shows the directories of claims, their users and their size on disk, and removes those that are
//! kept without a claim.

use crate::adapters::host::disk_use;
use crate::api::control::{VolumeView, Volumes};
use crate::api::resources::MEMORY;
use crate::commands::client;
use crate::commands::describe::Format;
use crate::commands::output::{Failure, document, print_message, shown};
use crate::commands::screen::Screen;
use crate::commands::status::amount_of;
use crate::commands::table::Table;
use crate::foreign;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long all directories are measured. A directory can contain millions of files, and a file system can hang.
const PATIENCE: Duration = Duration::from_secs(20);

/// Prints the directories. `format` is None for a table.
pub fn run(out: &mut dyn Write, socket: &Path, format: Option<Format>) -> Result<u8, Failure> {
    let value = client::get_json(socket, "/volumes")?;
    let mut answer: Volumes =
        serde_json::from_value(value).map_err(|e| Failure::message(format!("/volumes: invalid response: {e}")))?;
    measure(&mut answer.volumes);
    match format {
        Some(format) => document(out, &json!(answer), format == Format::Yaml)?,
        None => show(out, &answer.volumes, Screen::stdout())?,
    }
    out.flush()?;
    Ok(0)
}

/// Adds the sizes. A directory that cannot be measured in time has none.
fn measure(volumes: &mut [VolumeView]) {
    let end = Instant::now() + PATIENCE;
    for volume in volumes {
        let path = PathBuf::from(&volume.directory);
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        let measured = foreign::within(left, move || disk_use::tree(&path));
        volume.used_bytes = measured.ok().and_then(Result::ok).map(|used| used.bytes);
    }
}

fn show(out: &mut dyn Write, volumes: &[VolumeView], screen: Screen) -> Result<(), Failure> {
    if volumes.is_empty() {
        print_message("no claim has a directory");
        return Ok(());
    }
    let rows: Vec<[String; 7]> = volumes.iter().map(row).collect();
    let rows: Vec<&[String]> = rows.iter().map(<[String; 7]>::as_slice).collect();
    let header = ["CLAIM", "STATUS", "CLASS", "POLICY", "USED", "USED BY", "DIRECTORY"];
    Table::new(&header).on(screen, &["CLAIM", "USED BY"], |_, _| None).print(out, true, &rows)?;
    Ok(())
}

fn row(volume: &VolumeView) -> [String; 7] {
    let VolumeView { namespace, claim, status, storage_class, reclaim_policy, directory, pods, used_bytes, .. } =
        volume;
    [
        format!("{namespace}/{claim}"),
        status.clone(),
        storage_class.clone(),
        reclaim_policy.clone(),
        used_bytes.map_or_else(|| "-".to_owned(), |bytes| amount_of(MEMORY, bytes)),
        if pods.is_empty() { "-".to_owned() } else { pods.join(",") },
        directory.clone(),
    ]
}

/// Removes the directories of these claims (`namespace/name`), which are gone. Returns 0, or 1 if one stays.
pub fn remove(out: &mut dyn Write, socket: &Path, claims: &[String]) -> Result<u8, Failure> {
    let mut code = 0;
    for claim in claims {
        let (namespace, name) = claim.split_once('/').unwrap_or(("default", claim));
        let is_plain =
            |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
        if !is_plain(namespace) || !is_plain(name) {
            return Err(Failure::Message(format!("{claim}: expected the NAMESPACE/NAME of a claim"), 2));
        }
        match client::post_plain(socket, &format!("/volumes/remove?namespace={namespace}&name={name}"))? {
            (200, _) => writeln!(out, "the directory of {namespace}/{name} is being removed")?,
            (404, words) if words.trim_end() == "not found" => return Err(Failure::message(client::UNSUPPORTED)),
            (405, _) => return Err(Failure::message(client::UNSUPPORTED)),
            (_, words) => {
                print_message(&shown(words.trim_end()));
                code = 1;
            }
        }
    }
    out.flush()?;
    Ok(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_users_sizes_and_what_stays() {
        let of = |claim: &str, status: &str, pods: &[&str], used_bytes| VolumeView {
            namespace: "default".into(),
            claim: claim.into(),
            status: status.into(),
            storage_class: "local".into(),
            reclaim_policy: "Retain".into(),
            directory: format!("/claims/default/{claim}"),
            pods: pods.iter().map(|pod| (*pod).to_owned()).collect(),
            requested: "1Gi".into(),
            used_bytes,
        };
        let all = [of("data", "Bound", &["default/a", "default/b"], Some(3 << 20)), of("old", "Released", &[], None)];
        let mut out = Vec::new();
        show(&mut out, &all, Screen::default()).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["CLAIM", "STATUS", "CLASS", "POLICY", "USED", "USED", "BY", "DIRECTORY"]);
        let first = ["default/data", "Bound", "local", "Retain", "3Mi", "default/a,default/b", "/claims/default/data"];
        assert_eq!(lines[1], first);
        assert_eq!(lines[2], ["default/old", "Released", "local", "Retain", "-", "-", "/claims/default/old"]);
    }
}
