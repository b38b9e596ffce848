//! `wherry check`: everything wrong with the configuration and the manifests, before anything runs.
//!
//! Exit code 0: nothing is wrong; 1: something is; 2: a file cannot be read.

use crate::adapters::manifests;
use crate::api::document;
use crate::api::pod::Pod;
use crate::commands::output::{Failure, tell};
use crate::config::{self, Flags};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Checks the files given, or, without any, the configuration and the manifests that `flags` lead to.
pub fn run(out: &mut dyn Write, flags: &Flags, files: &[PathBuf]) -> Result<u8, Failure> {
    let loaded = config::load(flags);
    let node = loaded.config.node_name.clone();
    let unsafe_sysctls = loaded.config.allowed_unsafe_sysctls.clone();
    let mut report = Report { out, node, unsafe_sysctls, files: 0, errors: 0, unreadable: false, pods: Vec::new() };
    if files.is_empty() {
        report.files += loaded.files.len();
        report.problems(&loaded.problems)?;
        report.path(&loaded.config.manifests)?;
    }
    for file in files {
        report.path(file)?;
    }
    report.collisions()?;
    let Report { out, files, errors, unreadable, .. } = report;
    // The summary comes last, also where both go to one place.
    out.flush()?;
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    tell(&format!("checked {files} file{}: {errors} error{}", plural(files), plural(errors)));
    Ok(if unreadable { 2 } else { u8::from(errors > 0) })
}

struct Report<'a> {
    out: &'a mut dyn Write,
    /// The node's name: a pod that names another one is wrong here.
    node: String,
    unsafe_sysctls: Vec<String>,
    files: usize,
    errors: usize,
    unreadable: bool,
    /// All good pods so far, to see which of them collide (D4).
    pods: Vec<Pod>,
}

impl Report<'_> {
    /// A file of configuration or of manifests, or a directory of manifests.
    fn path(&mut self, path: &Path) -> Result<(), Failure> {
        if !path.is_dir() {
            return self.file(path);
        }
        match manifests::files_in(path) {
            Ok(files) => files.iter().try_for_each(|file| self.file(file)),
            Err(why) => self.cannot_read(path, &why),
        }
    }

    fn file(&mut self, path: &Path) -> Result<(), Failure> {
        // A FIFO must not hold us up, whoever reads the file in the end.
        let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
        if let Err(e) = File::options().read(true).custom_flags(flags).open(path) {
            return self.cannot_read(path, &format!("cannot be read: {e}"));
        }
        self.files += 1;
        if config::is_configuration(path) == Some(true) {
            return self.problems(&config::check_file(path));
        }
        match manifests::check_file(path, &self.node, &self.unsafe_sysctls) {
            Ok(pods) => self.pods.extend(pods),
            Err(problems) => {
                for problem in problems {
                    self.errors += 1;
                    writeln!(self.out, "{problem}")?;
                }
            }
        }
        Ok(())
    }

    /// Pods of different files that cannot both run; those of one file were told with it.
    fn collisions(&mut self) -> Result<(), Failure> {
        for problem in document::collisions(self.pods.iter()) {
            self.errors += 1;
            writeln!(self.out, "{problem}")?;
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

    fn cannot_read(&mut self, path: &Path, why: &str) -> Result<(), Failure> {
        self.unreadable = true;
        self.errors += 1;
        writeln!(self.out, "{}: {why}", path.display())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, image: &str) -> String {
        let head = format!("apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  containers:\n");
        format!("{head}  - name: main\n    {image}: busybox\n")
    }

    fn check(flags: &Flags, files: &[PathBuf]) -> (String, u8) {
        let mut out = Vec::new();
        let code = run(&mut out, flags, files).unwrap();
        (String::from_utf8(out).unwrap(), code)
    }

    #[test]
    fn configuration_and_manifests_are_checked_together() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        let config = d.join("config.yaml");
        std::fs::create_dir(d.join("m")).unwrap();
        for (file, text) in [
            ("ok.yaml", pod("web", "image")),
            ("bad.yaml", pod("bad", "imagee")),
            (".bad.yaml", pod("bad", "imagee")),
            ("bad.yaml~", pod("bad", "imagee")),
            ("second.yaml", pod("web", "image")),
        ] {
            std::fs::write(d.join("m").join(file), text).unwrap();
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
                 {d}/m/bad.yaml:8: spec.containers[0].imagee: unknown field; did you mean image?\n\
                 {d}/m/bad.yaml:7: spec.containers[0].image: Required value\n\
                 {d}/m/second.yaml: metadata.name: Duplicate value: \"default/web\": {d}/m/ok.yaml (document 1) has \
                 it too, and only one of them runs\n"
            )
        );
        assert_eq!(code, 1);
        let (text, code) = check(&Flags::default(), &[config]);
        assert!(text.contains("nope: unknown field") && code == 1, "a file says itself what it is: {text}");
        let (text, code) = check(&Flags::default(), &[dir.path().join("m/ok.yaml")]);
        assert_eq!((text.as_str(), code), ("", 0));
        let (text, code) = check(&Flags::default(), &[dir.path().join("gone.yaml"), dir.path().join("m/bad.yaml")]);
        assert!(text.contains("gone.yaml: cannot be read: No such file") && text.contains("unknown field"), "{text}");
        assert_eq!(code, 2);
    }
}
