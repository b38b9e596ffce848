//! Checks the CNI configuration as the runtime reads it: the first file of a directory, and the plugins that it names.

use crate::api::finding::Finding;
use crate::api::ordered::OrderSlice;
use crate::foreign::{self, Links};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The default directories, for a runtime that reports none. Distributions install the plugins in different
/// directories.
pub const CONFIGURATIONS: &str = "/etc/cni/net.d";
pub const PROGRAMS: [&str; 4] = ["/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni", "/usr/local/libexec/cni"];
/// The maximum size of a configuration file in bytes.
const MAX_SIZE: u64 = 1 << 20;
/// The runtime uses this plugin for every pod, regardless of the configuration.
const LOOPBACK: &str = "loopback";

/// Checks the configuration. Call this on a helper thread, because the paths may be on a file system that hangs.
pub fn inspect(directory: &Path, programs: &[PathBuf]) -> Finding {
    let shown = directory.display();
    let names = match names(directory) {
        Ok(names) => names,
        Err(e) => {
            let message = format!("{shown}: {e}: pods get no network (those with hostNetwork need none)");
            return Finding::error("cni", message, format!("create {shown} and put a network configuration there"));
        }
    };
    let Some(first) = names.first() else {
        let message = format!("no configuration in {shown}: pods get no network (those with hostNetwork need none)");
        return Finding::error("cni", message, format!("create one, for example {shown}/10-bridge.conflist"));
    };
    let path = directory.join(first);
    let (network, plugins) = match read(&path) {
        Ok(read) => read,
        Err(e) => return Finding::error("cni", format!("{}: {e}", path.display()), "correct or remove this file"),
    };
    let is_there = |name: &&String| !programs.iter().any(|d| d.join(name).exists());
    let missing: Vec<&String> = plugins.iter().filter(is_there).collect();
    if !missing.is_empty() {
        let missing: Vec<&str> = missing.into_iter().map(String::as_str).collect();
        let places: Vec<String> = programs.iter().map(|p| p.display().to_string()).collect();
        let message = format!("{}: no plugin {} in {}", path.display(), missing.join(", "), places.join(", "));
        let remedy = "install the CNI plugins (Debian: containernetworking-plugins), or set the runtime's bin_dir";
        return Finding::error("cni", message, remedy);
    }
    Finding::ok("cni", format!("network {network} of {} ({})", path.display(), plugins.join(" ")))
}

/// Returns the names of the files that a runtime reads, in the order in which it reads them.
fn names(directory: &Path) -> std::io::Result<Vec<String>> {
    let entries = std::fs::read_dir(directory)?;
    let mut names: Vec<String> = entries.flatten().filter_map(|e| e.file_name().into_string().ok()).collect();
    names.retain(|n| [".conflist", ".conf", ".json"].iter().any(|end| n.ends_with(end)));
    names.order();
    Ok(names)
}

/// Returns the name of the network, and the plugins that it needs.
fn read(path: &Path) -> Result<(String, Vec<String>), String> {
    let text = foreign::read(path, Links::Follow, MAX_SIZE).map_err(|e| e.to_string())?;
    let value: Value = serde_json::from_slice(&text).map_err(|e| format!("invalid JSON: {e}"))?;
    let alone = [value.clone()];
    let plugins = value["plugins"].as_array().map_or(&alone[..], Vec::as_slice);
    let mut programs = Vec::new();
    for plugin in plugins {
        let kind = plugin["type"].as_str().ok_or("a plugin without a type")?;
        programs.push(kind.to_owned());
        programs.extend(plugin["ipam"]["type"].as_str().map(str::to_owned));
    }
    if programs.is_empty() {
        return Err("it contains no plugins".to_owned());
    }
    programs.push(LOOPBACK.to_owned());
    let mut seen = std::collections::BTreeSet::new();
    programs.retain(|p| seen.insert(p.clone()));
    Ok((value["name"].as_str().unwrap_or("without a name").to_owned(), programs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::finding::Level;
    use std::fs;

    const BRIDGE: &str =
        r#"{"name": "pods", "plugins": [{"type": "bridge", "ipam": {"type": "host-local"}}, {"type": "portmap"}]}"#;

    #[test]
    fn the_first_configuration_is_used_and_its_plugins_must_exist() {
        let dir = tempfile::tempdir().unwrap();
        let (conf, bin) = (dir.path().join("net.d"), dir.path().join("bin"));
        let found = || inspect(&conf, &[dir.path().join("other"), bin.clone()]);
        let failed = |part: &str| {
            let finding = found();
            assert!(finding.level == Level::Error && finding.message.contains(part), "{part}: {finding:?}");
            assert!(finding.remedy.is_some());
        };
        failed("No such file");
        fs::create_dir(&conf).unwrap();
        fs::create_dir(&bin).unwrap();
        fs::write(conf.join("README"), "").unwrap();
        failed("no configuration in");
        fs::write(conf.join("20-later.conf"), r#"{"name": "later", "type": "ptp"}"#).unwrap();
        failed("no plugin ptp, loopback in");
        fs::write(conf.join("10-pods.conflist"), BRIDGE).unwrap();
        failed("10-pods.conflist: no plugin bridge, host-local, portmap, loopback in");
        for program in ["bridge", "host-local", "portmap", "loopback"] {
            fs::write(bin.join(program), "").unwrap();
        }
        let finding = found();
        assert_eq!(finding.level, Level::Ok);
        assert!(
            finding.message.starts_with("network pods of ")
                && finding.message.ends_with("(bridge host-local portmap loopback)")
        );
        fs::write(conf.join("05-broken.conf"), "{").unwrap();
        failed("05-broken.conf: invalid JSON");
        fs::write(conf.join("05-broken.conf"), r#"{"plugins": []}"#).unwrap();
        failed("it contains no plugins");
    }
}
