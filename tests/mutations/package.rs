//! Builds the copy of the engine with all mutations: a package below the target directory that contains only the crates
//! used by `api` and `engine`, in the versions of our Cargo.lock, and the simulation as its test.

use crate::list::{Mutation, apply};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The directories of `src/` that the simulation needs.
const ROOMS: [&str; 3] = ["api", "engine", "kubectl_api"];

/// The sections of our Cargo.toml that give the copy the same build settings.
const PROFILES: [&str; 2] = ["profile.dev", "profile.dev.package"];

const MUTATION_RS: &str = "\
//! Which mutation is in force.

use std::sync::LazyLock;

static NUMBER: LazyLock<usize> =
    LazyLock::new(|| std::env::var(\"WHERRY_MUTATION\").ok().and_then(|v| v.parse().ok()).unwrap_or(0));

pub fn is(number: usize) -> bool {
    *NUMBER == number
}
";

/// Writes and builds the package. Returns the path of the simulation.
///
/// # Errors
/// If a mutation does not match the sources, or the package cannot be written or built.
pub fn build(project: &Path, mutations: &[Mutation]) -> Result<PathBuf, String> {
    let exe = std::env::current_exe().map_err(|e| format!("find myself: {e}"))?;
    // The path of this program is target/debug/deps/mutations-...
    let target = exe.ancestors().nth(3).ok_or("this program is not in a target directory")?;
    let package = target.join("mutations");
    let mut sources = Vec::new();
    for room in ROOMS {
        list_sources(&project.join("src").join(room), &mut sources)?;
    }
    let mut crates = BTreeSet::new();
    let mut files = BTreeSet::new();
    for path in &sources {
        let name = path.strip_prefix(project.join("src")).map_err(|e| e.to_string())?;
        let text = fs::read_to_string(path).map_err(|e| format!("read {}: {e}", path.display()))?;
        let here = |m: &Mutation| Path::new(&m.file) == name;
        let numbered = mutations.iter().enumerate().map(|(i, m)| (i + 1, m));
        let of_file: Vec<(usize, &Mutation)> = numbered.filter(|(_, m)| here(m)).collect();
        write(&package.join("src").join(name), &apply(&text, &of_file)?)?;
        crates.extend(words(&text).map(str::to_string));
        files.insert(name.to_path_buf());
    }
    if let Some(m) = mutations.iter().find(|m| !files.contains(Path::new(&m.file))) {
        return Err(format!("{}: there is no src/{} in {ROOMS:?}", m.name, m.file));
    }
    remove_others(&package.join("src"), &package.join("src"), &files)?;
    let rooms = ROOMS.map(|room| format!("pub mod {room};\n")).concat();
    write(&package.join("src/lib.rs"), &format!("#![allow(warnings)]\n{rooms}pub mod mutation;\n"))?;
    write(&package.join("src/mutation.rs"), MUTATION_RS)?;
    write(&package.join("Cargo.toml"), &manifest(project, &crates)?)?;
    // cargo removes unused crates from the copy; the versions stay.
    let lock = fs::read_to_string(project.join("Cargo.lock")).map_err(|e| format!("read Cargo.lock: {e}"))?;
    write(&package.join("Cargo.lock"), &lock)?;
    compile(&package, target)
}

/// The manifest of one crate for `api` and `engine`, with the dependencies that the sources use, in the versions of our workspace.
fn manifest(project: &Path, crates: &BTreeSet<String>) -> Result<String, String> {
    let ours = fs::read_to_string(project.join("Cargo.toml")).map_err(|e| format!("read Cargo.toml: {e}"))?;
    let section = |name: &str| {
        let after = ours.split_once(&format!("[{name}]\n")).map(|(_, rest)| rest)?;
        Some(after.split("\n[").next().unwrap_or_default())
    };
    let of = |name: &str| section(name).ok_or(format!("Cargo.toml has no [{name}]"));
    let used = of("workspace.dependencies")?.lines().filter(|l| crates.contains(&key(l).replace('-', "_")));
    let used = used.collect::<Vec<_>>().join("\n");
    let mut text = format!(
        "[package]\nname = \"wherry-engine\"\n{}\nautotests = false\n\n[dependencies]\n{used}\n\n[[test]]\n\
         name = \"simulation\"\npath = {:?}\n\n[workspace]\n",
        of("workspace.package")?.trim(),
        project.join("tests/simulation/main.rs"),
    );
    for profile in PROFILES {
        text.push_str(&format!("\n[{profile}]\n{}\n", of(profile)?.trim()));
    }
    Ok(text)
}

fn key(line: &str) -> &str {
    line.split('=').next().unwrap_or_default().trim()
}

/// The names before `::` in a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split("::").map(|part| part.rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next().unwrap_or_default())
}

fn compile(package: &Path, target: &Path) -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--offline", "--no-run", "--test", "simulation", "--message-format", "json"]);
    // (Dependencies that are already built in the same form are reused.)
    command.arg("--manifest-path").arg(package.join("Cargo.toml")).arg("--target-dir").arg(target);
    let output = command.stderr(Stdio::inherit()).output().map_err(|e| format!("run cargo: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    let mut program = None;
    for message in messages {
        if message["reason"] == "compiler-message" && message["message"]["level"] == "error" {
            eprintln!("{}", message["message"]["rendered"].as_str().unwrap_or_default());
        }
        if message["target"]["name"] == "simulation"
            && let Some(path) = message["executable"].as_str()
        {
            program = Some(PathBuf::from(path));
        }
    }
    match program {
        Some(program) if output.status.success() => Ok(program),
        _ => Err(format!("the mutated package {} could not be built", package.display())),
    }
}

fn list_sources(dir: &Path, out: &mut Vec<PathBuf>) -> Result<(), String> {
    for entry in fs::read_dir(dir).map_err(|e| format!("list {}: {e}", dir.display()))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.is_dir() {
            list_sources(&path, out)?;
        } else if path.extension().is_some_and(|e| e == "rs" || e == "txt") {
            // (Texts are included by sources.)
            out.push(path);
        }
    }
    Ok(())
}

/// Writes only if the content differs, because cargo compares the modification times.
fn write(path: &Path, text: &str) -> Result<(), String> {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return Ok(());
    }
    let fail = |e: std::io::Error| format!("write {}: {e}", path.display());
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(fail)?;
    fs::write(path, text).map_err(fail)
}

/// Removes the sources of an earlier run that no longer exist.
fn remove_others(root: &Path, dir: &Path, files: &BTreeSet<PathBuf>) -> Result<(), String> {
    let mut there = Vec::new();
    list_sources(dir, &mut there)?;
    for path in there {
        let name = path.strip_prefix(root).map_err(|e| e.to_string())?;
        if !files.contains(name) && name.components().count() > 1 {
            fs::remove_file(&path).map_err(|e| format!("remove {}: {e}", path.display()))?;
        }
    }
    Ok(())
}
