//! `wherry check`: everything wrong with the configuration and the manifests, before anything runs.
//!
//! Exit code 0: nothing is wrong; 1: something is; 2: a file cannot be read.

use crate::commands::output::{Failure, tell};
use crate::config::{self, Flags};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Says what is wrong with a file of manifests, a line each: `file:line: field: message`.
pub type CheckManifest = fn(&Path) -> Vec<String>;

/// Is it YAML at all? What the documents say is for a `CheckManifest` that knows pods.
pub fn syntax(path: &Path) -> Vec<String> {
    let name = path.display();
    match config::read_file(path).map(|text| config::yaml::read(&text)) {
        Ok(Ok(_)) => Vec::new(),
        Ok(Err(e)) => vec![format!("{name}:{}: {}", e.line, e.message)],
        Err(e) => vec![format!("{name}: cannot be read: {e}")],
    }
}

/// Checks the files given, or, without any, the configuration and the manifests that `flags` lead to.
pub fn run(
    out: &mut dyn Write,
    flags: &Flags,
    files: &[PathBuf],
    check_manifest: CheckManifest,
) -> Result<u8, Failure> {
    let mut report = Report { out, files: 0, errors: 0, unreadable: false, check_manifest };
    if files.is_empty() {
        let loaded = config::load(flags);
        report.files += loaded.files.len();
        report.problems(&loaded.problems)?;
        report.path(&loaded.config.manifests)?;
    }
    for file in files {
        report.path(file)?;
    }
    let Report { files, errors, unreadable, .. } = report;
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    tell(&format!("checked {files} file{}: {errors} error{}", plural(files), plural(errors)));
    Ok(if unreadable { 2 } else { u8::from(errors > 0) })
}

struct Report<'a> {
    out: &'a mut dyn Write,
    files: usize,
    errors: usize,
    unreadable: bool,
    check_manifest: CheckManifest,
}

impl Report<'_> {
    /// A file of configuration or of manifests, or a directory of manifests.
    fn path(&mut self, path: &Path) -> Result<(), Failure> {
        if !path.is_dir() {
            return self.file(path);
        }
        match manifest_files(path) {
            Ok(files) => files.iter().try_for_each(|file| self.file(file)),
            Err(e) => self.cannot_read(path, &e),
        }
    }

    fn file(&mut self, path: &Path) -> Result<(), Failure> {
        // A FIFO must not hold us up, whoever reads the file in the end.
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        if let Err(e) = File::options().read(true).custom_flags(flags).open(path) {
            return self.cannot_read(path, &e);
        }
        self.files += 1;
        if config::is_configuration(path) == Some(true) {
            return self.problems(&config::check_file(path));
        }
        for line in (self.check_manifest)(path) {
            self.errors += 1;
            writeln!(self.out, "{line}")?;
        }
        Ok(())
    }

    fn problems(&mut self, problems: &config::problem::Problems) -> Result<(), Failure> {
        for error in &problems.errors {
            self.errors += 1;
            writeln!(self.out, "{error}")?;
        }
        for warning in &problems.warnings {
            writeln!(self.out, "warning: {warning}")?;
        }
        Ok(())
    }

    fn cannot_read(&mut self, path: &Path, e: &std::io::Error) -> Result<(), Failure> {
        self.unreadable = true;
        self.errors += 1;
        writeln!(self.out, "{}: cannot be read: {e}", path.display())?;
        Ok(())
    }
}

/// The files of a directory that count: no dot files, no editor's leftovers, no directories.
fn manifest_files(dir: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let leftover = name.starts_with(['.', '#']) || name.ends_with(['~', '#']) || name.ends_with(".swp");
        if !leftover && !path.is_dir() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake(path: &Path) -> Vec<String> {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if text.contains("bad") { vec![format!("{}:1: spec: is bad", path.display())] } else { Vec::new() }
    }

    fn check(flags: &Flags, files: &[PathBuf]) -> (String, u8) {
        let mut out = Vec::new();
        let code = run(&mut out, flags, files, fake).unwrap();
        (String::from_utf8(out).unwrap(), code)
    }

    #[test]
    fn configuration_and_manifests_are_checked_together() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        let config = d.join("config.yaml");
        std::fs::create_dir(d.join("m")).unwrap();
        for name in ["ok.yaml", "bad.yaml", ".bad.yaml", "bad.yaml~"] {
            std::fs::write(d.join("m").join(name), name).unwrap();
        }
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        std::fs::write(&config, format!("{head}staticPodPath: {}/m\nmaxPods: 3\nnope: 1\n", d.display())).unwrap();
        let flags = Flags {
            config: Some(config.clone()),
            config_dir: Some(PathBuf::new()),
            hostname: Some("lab".into()),
            ..Flags::default()
        };
        let (text, code) = check(&flags, &[]);
        let d = d.display();
        assert_eq!(
            text,
            format!(
                "{d}/config.yaml:5: nope: unknown field\n\
                 warning: {d}/config.yaml:4: maxPods: known, but not honoured by wherry: it has no effect\n\
                 {d}/m/bad.yaml:1: spec: is bad\n"
            )
        );
        assert_eq!(code, 1);
        let (text, code) = check(&Flags::default(), &[config]);
        assert!(text.contains("nope: unknown field") && code == 1, "a file says itself what it is: {text}");
        let (text, code) = check(&Flags::default(), &[dir.path().join("m/ok.yaml")]);
        assert_eq!((text.as_str(), code), ("", 0));
        let (text, code) = check(&Flags::default(), &[dir.path().join("gone.yaml"), dir.path().join("m/bad.yaml")]);
        assert!(text.contains("gone.yaml: cannot be read: No such file") && text.contains("is bad"), "{text}");
        assert_eq!(code, 2);
    }
}
