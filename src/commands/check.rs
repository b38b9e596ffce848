//! `wherry check`: reports all errors of the configuration and the manifests before anything runs.
//!
//! Exit code 0: no errors; 1: at least one error; 2: a file cannot be read.

use crate::adapters::host::time_zone;
use crate::adapters::{manifests, records};
use crate::agent;
use crate::api::claim::{self, Claim};
use crate::api::data_object::{DataKind, DataObject, DataObjects};
use crate::api::document::context::NetworkPolicies;
use crate::api::document::{self, Checked, Object};
use crate::api::network_object::{self, NetworkObject};
use crate::api::plain_object::{self, PlainObject};
use crate::api::pod::Pod;
use crate::api::priority::{Classes, PriorityClass};
use crate::api::problem::Problem;
use crate::api::runtime_class::{RuntimeClass, RuntimeClasses};
use crate::api::source::Source;
use crate::api::storage_class::{self, StorageClass};
use crate::api::workload::{self, Workload, cron_job};
use crate::commands::output::{Failure, print_message, shown};
use crate::config::{self, Config, Flags};
use crate::engine::desired;
use crate::engine::desired::source::OPEN_SECRET;
use crate::foreign::{self, Links, NoAnswer, Refused};
use rustix::fs::FileType;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// A path that does not respond within this time is considered to be on a file system that hangs.
const PATIENCE: Duration = Duration::from_secs(5);
/// Names of standard input, which is read even if it is not a regular file.
const STDIN: [&str; 2] = ["-", "/dev/stdin"];
/// Maximum size of a manifest or a configuration, in bytes.
const MAX_BYTES: u64 = document::MAX_BYTES as u64;

/// The content of a path.
enum PathContent {
    Directory(Result<Vec<PathBuf>, String>),
    File(Result<(Vec<u8>, bool), Refused>),
}

/// Checks the given files or, without any, the configuration and the manifests selected by `flags`.
pub fn run(out: &mut dyn Write, flags: &Flags, files: &[PathBuf]) -> Result<u8, Failure> {
    let hangs = |why: NoAnswer| Failure::Message(format!("failed to read the configuration: {why}"), 2);
    let loaded = foreign::within(PATIENCE, {
        let flags = flags.clone();
        move || config::load(&flags)
    })
    .map_err(hangs)?;
    let node = loaded.config.node_name.clone();
    let mut report = Report {
        out,
        node,
        refuse_open_secrets: loaded.config.manifest_rules.refuse_open_secrets,
        network_policies: loaded.config.manifest_rules.network_policies,
        storage_classes: loaded.config.storage_classes(),
        files: 0,
        errors: 0,
        unreadable: false,
        pods: Vec::new(),
        classes: Vec::new(),
        runtime_classes: Vec::new(),
        data: Vec::new(),
        workloads: Vec::new(),
        claims: Vec::new(),
        network: Vec::new(),
        plain: Vec::new(),
    };
    if files.is_empty() {
        report.files += loaded.files.len();
        report.problems(&loaded.problems)?;
        if loaded.is_ok() {
            // Only the machine's own configuration can be compared with its capacity.
            report.node(loaded.config.clone())?;
            report.state(&loaded.config.root_dir)?;
        }
        report.path(&loaded.config.manifests)?;
    }
    for file in files {
        report.path(file)?;
    }
    if !files.is_empty() {
        report.collect_classes_of(&loaded.config.manifests);
    }
    report.together()?;
    let Report { out, files, errors, unreadable, .. } = report;
    // The summary comes last, even if stdout and stderr are the same.
    out.flush()?;
    let plural = |n: usize| if n == 1 { "" } else { "s" };
    print_message(&format!("checked {files} file{}: {errors} error{}", plural(files), plural(errors)));
    Ok(if unreadable { 2 } else { u8::from(errors > 0) })
}

fn open(path: &Path) -> PathContent {
    if path.is_dir() { PathContent::Directory(manifests::files_in(path)) } else { PathContent::File(read(path)) }
}

/// Returns the text of a file, and whether every user of the machine can read it.
fn read(path: &Path) -> Result<(Vec<u8>, bool), Refused> {
    if STDIN.iter().any(|name| path == Path::new(name)) {
        return Ok((foreign::read_up_to(std::io::stdin().lock(), MAX_BYTES)?, false));
    }
    Ok((foreign::read(path, Links::Follow, MAX_BYTES)?, manifests::is_open(path)))
}

struct Report<'a> {
    out: &'a mut dyn Write,
    /// The node's name. A pod that names another node is an error.
    node: String,
    refuse_open_secrets: bool,
    network_policies: NetworkPolicies,
    /// The storage classes of the configuration.
    storage_classes: Vec<StorageClass>,
    files: usize,
    errors: usize,
    unreadable: bool,
    /// All valid pods so far, for finding conflicts (D4) and missing classes (A5).
    pods: Vec<Pod>,
    classes: Vec<PriorityClass>,
    runtime_classes: Vec<RuntimeClass>,
    data: Vec<Rc<DataObject>>,
    workloads: Vec<Workload>,
    claims: Vec<Rc<Claim>>,
    network: Vec<Rc<NetworkObject>>,
    plain: Vec<Rc<PlainObject>>,
}

impl Report<'_> {
    /// Checks a file of configuration or manifests, or a directory of manifests.
    fn path(&mut self, path: &Path) -> Result<(), Failure> {
        let seen = if STDIN.iter().any(|name| path == Path::new(name)) {
            // No time limit: the input may come from a terminal.
            Ok(open(path))
        } else {
            let path = path.to_owned();
            foreign::within(PATIENCE, move || open(&path))
        };
        match seen {
            Ok(PathContent::Directory(Ok(files))) => files.iter().try_for_each(|file| self.file(file)),
            Ok(PathContent::Directory(Err(why))) => self.cannot_read(path, &why),
            Ok(PathContent::File(read)) => self.text(path, read),
            Err(why) => self.cannot_read(path, &why.to_string()),
        }
    }

    /// Checks a file of a directory.
    fn file(&mut self, path: &Path) -> Result<(), Failure> {
        let of_thread = path.to_owned();
        match foreign::within(PATIENCE, move || read(&of_thread)) {
            Ok(read) => self.text(path, read),
            Err(why) => self.cannot_read(path, &why.to_string()),
        }
    }

    fn text(&mut self, path: &Path, read: Result<(Vec<u8>, bool), Refused>) -> Result<(), Failure> {
        let (text, open) = match read {
            Ok(read) => read,
            Err(Refused::Failed(e)) => return self.cannot_read(path, &format!("cannot be read: {e}")),
            Err(refused) => {
                self.files += 1;
                let remedy = match refused {
                    Refused::Kind(FileType::Directory) => "manifests in sub-directories are not read",
                    Refused::Kind(_) => "give a regular file, or - for standard input",
                    _ => "split it",
                };
                let problem = Problem::of_file(&path.to_string_lossy(), format!("{refused}; {remedy}"));
                return self.errors_of(vec![problem]);
            }
        };
        self.files += 1;
        if config::is_configuration(&text) {
            return self.problems(&config::check_text(path, &text));
        }
        let Checked { objects, problems, warnings } = self.check_text(&path.to_string_lossy(), &text);
        let is_secret = |object: &Object| matches!(object, Object::Data(data) if data.key.kind == DataKind::Secret);
        if open && objects.iter().any(is_secret) {
            let problem = Problem::of_file(&path.to_string_lossy(), OPEN_SECRET);
            match self.refuse_open_secrets {
                true => self.errors_of(vec![problem])?,
                false => writeln!(self.out, "warning: {}", shown(&problem.to_string()))?,
            }
        }
        for warning in &warnings {
            writeln!(self.out, "warning: {}", shown(&warning.to_string()))?;
        }
        for object in objects {
            match object {
                Object::Pod(pod) => self.pods.push(*pod),
                Object::PriorityClass(class) => self.classes.push(class),
                Object::RuntimeClass(class) => self.runtime_classes.push(class),
                Object::Data(object) => self.data.push(Rc::new(object)),
                Object::Workload(workload) => self.workloads.push(workload),
                Object::Claim(claim) => self.claims.push(Rc::new(*claim)),
                Object::Network(object) => self.network.push(Rc::new(*object)),
                Object::Plain(object) => self.plain.push(Rc::new(*object)),
            }
        }
        self.errors_of(problems)
    }

    fn check_text(&self, path: &str, text: &[u8]) -> Checked {
        manifests::check_text(path, text, &self.node, self.network_policies)
    }

    /// Checks that the reservations of the configuration fit into the machine's capacity.
    fn node(&mut self, config: Config) -> Result<(), Failure> {
        let root = config.root_dir.clone();
        match foreign::within(PATIENCE, move || agent::node_facts(&config).err().unwrap_or_default()) {
            Ok(errors) => self.problems(&config::problem::Problems { errors, warnings: Vec::new() }),
            Err(why) => self.cannot_read(&root, &why.to_string()),
        }
    }

    /// Checks that this version of Wherry can use the files of the root directory, for the packages: a downgrade that
    /// cannot work then leaves the newer agent running.
    fn state(&mut self, root: &Path) -> Result<(), Failure> {
        let of_thread = root.to_owned();
        match foreign::within(PATIENCE, move || records::format::check(&of_thread)) {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(why)) => {
                self.errors += 1;
                writeln!(self.out, "{}", shown(&why))?;
                Ok(())
            }
            Err(why) => self.cannot_read(root, &why.to_string()),
        }
    }

    /// Loads the classes that the node's manifests define, because pods in the given files may refer to them.
    fn collect_classes_of(&mut self, directory: &Path) {
        let of_thread = directory.to_owned();
        let texts = foreign::within(PATIENCE, move || {
            let files = manifests::files_in(&of_thread).unwrap_or_default();
            files.iter().filter_map(|file| read(file).ok()).map(|(text, _)| text).collect::<Vec<_>>()
        });
        // Unreadable files are skipped.
        for text in texts.unwrap_or_default() {
            let objects = self.check_text("", &text).objects;
            for object in objects {
                match object {
                    Object::PriorityClass(class) if !self.classes.iter().any(|c| c.name == class.name) => {
                        self.classes.push(PriorityClass { global_default: false, ..class });
                    }
                    Object::RuntimeClass(class) if !self.runtime_classes.iter().any(|c| c.name == class.name) => {
                        self.runtime_classes.push(class);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Reports errors that involve several documents.
    fn together(&mut self) -> Result<(), Failure> {
        let (classes, mut problems) = Classes::collect(&self.classes);
        problems.extend(document::collisions(self.pods.iter()));
        problems.extend(DataObjects::collect(self.data.iter().cloned()).1);
        problems.extend(workload::duplicates(&self.workloads));
        problems.extend(claim::duplicates(&self.claims));
        problems.extend(network_object::duplicates(&self.network));
        problems.extend(plain_object::duplicates(&self.plain));
        let (runtime_classes, more) = RuntimeClasses::collect(self.runtime_classes.iter().cloned());
        problems.extend(more);
        problems
            .extend(self.pods.iter().filter_map(|pod| desired::classes::give(pod, &classes, &runtime_classes).err()));
        let in_template =
            |workload: &Workload| desired::classes::missing_in_template(workload, &classes, &runtime_classes);
        problems.extend(self.workloads.iter().filter_map(in_template));
        self.errors_of(problems)?;
        self.classes_of_claims()?;
        self.time_zones()
    }

    /// Warns of the time zones of CronJobs that this machine does not have.
    /// Warns of claims whose storage class the configuration does not have.
    fn classes_of_claims(&mut self) -> Result<(), Failure> {
        for claim in &self.claims {
            let class = claim.spec().storage_class_name.as_deref();
            if storage_class::find(&self.storage_classes, class).is_some() {
                continue;
            }
            let (Source { path, document }, field) = (claim.source.clone(), Some("spec.storageClassName".to_owned()));
            let message = storage_class::unknown(&self.storage_classes, class.unwrap_or_default());
            let warning = Problem { path, document, line: None, field, message };
            writeln!(self.out, "warning: {}", shown(&warning.to_string()))?;
        }
        Ok(())
    }

    fn time_zones(&mut self) -> Result<(), Failure> {
        for workload in &self.workloads {
            let Workload::CronJob(of) = workload else { continue };
            let Some(zone) = of.time_zone().filter(|zone| !cron_job::is_utc(zone)).map(str::to_owned) else { continue };
            let message = match foreign::within(PATIENCE, move || time_zone::read(Some(&zone))) {
                Ok(Ok(Some(_))) => continue,
                Ok(Ok(None)) => cron_job::UNKNOWN_ZONE.to_owned(),
                Ok(Err(why)) => why,
                Err(why) => why.to_string(),
            };
            let (Source { path, document }, field) = (of.head.source.clone(), Some("spec.timeZone".to_owned()));
            let warning = Problem { path, document, line: None, field, message };
            writeln!(self.out, "warning: {}", shown(&warning.to_string()))?;
        }
        Ok(())
    }

    fn errors_of(&mut self, problems: Vec<Problem>) -> Result<(), Failure> {
        for problem in problems {
            self.errors += 1;
            writeln!(self.out, "{}", shown(&problem.to_string()))?;
        }
        Ok(())
    }

    fn problems(&mut self, problems: &config::problem::Problems) -> Result<(), Failure> {
        for error in &problems.errors {
            self.errors += 1;
            writeln!(self.out, "{}", shown(&error.to_string()))?;
        }
        for warning in &problems.warnings {
            writeln!(self.out, "warning: {}", shown(&warning.to_string()))?;
        }
        Ok(())
    }

    fn cannot_read(&mut self, path: &Path, why: &str) -> Result<(), Failure> {
        self.unreadable = true;
        self.errors += 1;
        writeln!(self.out, "{}", shown(&format!("{}: {why}", path.display())))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::document::context::Context;
    use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};

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
    fn the_template_of_a_deployment_is_checked_like_a_pod() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("web.yaml");
        let text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n\
                    \x20 selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n\
                    \x20   spec:\n      priorityClassName: gold\n\
                    \x20     containers: [{name: main, image: 'a b', resources: {limits: {memory: 100m}}}]\n---\n";
        std::fs::write(&file, format!("{text}{text}")).unwrap();
        let (out, code) = check(&Flags::default(), &[file]);
        assert_eq!(code, 1, "{out}");
        for part in [
            ":10: spec.template.spec.containers[0].image: Invalid value: ",
            "warning: ",
            "spec.template.spec.containers[0].resources.limits[memory]",
            "spec.template.spec.priorityClassName: no PriorityClass with name gold was found",
            "document 2: metadata.name: Duplicate value: \"default/web\": the Deployment in ",
        ] {
            assert!(out.contains(part), "{part}: {out}");
        }
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
        std::fs::write(&config, format!("{head}staticPodPath: {}/m\nstaticPodURL: x\nnope: 1\n", d.display())).unwrap();
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
                 warning: {d}/config.yaml:4: staticPodURL: known, but not honoured by wherry: it has no effect\n\
                 {d}/m/bad.yaml:8: spec.containers[0].imagee: unknown field; did you mean image?\n\
                 {d}/m/bad.yaml:7: spec.containers[0].image: Required value\n\
                 {d}/m/second.yaml: metadata.name: Duplicate value: \"default/web\": also used by {d}/m/ok.yaml \
                 (document 1); only one of the two pods runs\n"
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

    #[test]
    fn an_invalid_image_name_is_an_error_although_the_agent_accepts_the_pod() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pod.yaml");
        std::fs::write(&path, pod("web", "image").replace("busybox", "r.io/Shop:7")).unwrap();
        let (text, code) = check(&Flags::default(), std::slice::from_ref(&path));
        let why = "invalid reference format: repository name (Shop) must be lowercase; the container would wait with \
                   InvalidImageName";
        let expected =
            format!("{}:8: spec.containers[0].image: Invalid value: \"r.io/Shop:7\": {why}\n", path.display());
        assert_eq!((text, code), (expected, 1));
        let (objects, problems) = document::read_objects(&std::fs::read(&path).unwrap(), "", Context::new("node", ""));
        assert_eq!((objects.len(), problems.len()), (1, 0));
    }

    #[test]
    fn an_amount_in_parts_of_a_byte_is_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pod.yaml");
        let resources = "    resources: {limits: {cpu: 500m, memory: 512m}, requests: {ephemeral-storage: 0.5Gi}}\n";
        std::fs::write(&path, pod("web", "image") + resources).unwrap();
        let (text, code) = check(&Flags::default(), std::slice::from_ref(&path));
        let why = "\"512m\" is not a whole number of bytes: m means thousandths; write 512Mi or 512M";
        let place = format!("{}:9: spec.containers[0].resources.limits[memory]", path.display());
        assert_eq!((text, code), (format!("warning: {place}: {why}\n"), 0));
    }

    #[test]
    fn options_for_windows_are_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pod.yaml");
        std::fs::write(&path, pod("web", "image") + "    securityContext: {windowsOptions: {}}\n").unwrap();
        let (text, code) = check(&Flags::default(), std::slice::from_ref(&path));
        let place = format!("{}:9: spec.containers[0].securityContext.windowsOptions", path.display());
        assert_eq!((text, code), (format!("warning: {place}: has no effect on Linux; remove it\n"), 0));
    }

    #[test]
    fn a_fifo_is_an_error_and_its_writer_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("pod.yaml");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let writer = std::thread::spawn({
            let fifo = fifo.clone();
            move || std::fs::write(fifo, "kept")
        });
        // The writer waits in open(2) for a reader.
        std::thread::sleep(Duration::from_millis(200));
        let flags = Flags { config_dir: Some(PathBuf::new()), hostname: Some("lab".into()), ..Flags::default() };
        let empty = tempfile::tempdir().unwrap();
        let no_manifests = Flags { manifests: Some(empty.path().to_owned()), ..flags.clone() };
        let as_configuration = Flags { config: Some(fifo.clone()), ..no_manifests };
        let in_directory = Flags { manifests: Some(dir.path().to_owned()), ..flags.clone() };
        let said =
            format!("{}: a FIFO, not a regular file; give a regular file, or - for standard input\n", fifo.display());
        assert_eq!(check(&flags, std::slice::from_ref(&fifo)), (said.clone(), 1));
        assert_eq!(check(&in_directory, &[]), (said, 1));
        let (text, code) = check(&as_configuration, &[]);
        assert!(text.contains("pod.yaml: cannot be read: it is not a regular file, but a FIFO"), "{text}");
        assert_eq!(code, 1);
        let (text, code) = check(&flags, &["/dev/zero".into()]);
        assert!(text.starts_with("/dev/zero: a device, not a regular file; ") && code == 1, "{text}");
        let reader = rustix::fs::open(&fifo, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).unwrap();
        writer.join().unwrap().expect("nobody else has read from the FIFO");
        assert_eq!(foreign::read_up_to(std::fs::File::from(reader), 10).unwrap(), b"kept");
    }

    #[test]
    fn a5_classes_are_looked_up_in_the_checked_files_and_on_the_node() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        std::fs::create_dir(d.join("m")).unwrap();
        let class = |name: &str| {
            let kind = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\n";
            format!("{kind}metadata: {{name: {name}}}\nvalue: 5\n")
        };
        let pod_of =
            |class: &str| pod("web", "image").replace("spec:", &format!("spec:\n  priorityClassName: {class}"));
        std::fs::write(d.join("m/gold.yaml"), class("gold")).unwrap();
        std::fs::write(d.join("m/web.yaml"), pod_of("gold")).unwrap();
        std::fs::write(d.join("new.yaml"), pod_of("silver")).unwrap();
        let flags = Flags {
            config_dir: Some(d.join("none")),
            manifests: Some(d.join("m")),
            hostname: Some("lab".into()),
            ..Flags::default()
        };
        std::fs::create_dir(d.join("none")).unwrap();
        let (text, code) = check(&flags, &[d.join("m/web.yaml")]);
        assert_eq!((text.as_str(), code), ("", 0));
        let (text, code) = check(&flags, &[d.join("new.yaml")]);
        let found = format!(
            "{}: spec.priorityClassName: no PriorityClass with name silver was found; add a manifest of kind \
             PriorityClass \
             with this name\n",
            d.join("new.yaml").display()
        );
        assert_eq!((text, code), (found, 1));
        std::fs::write(d.join("silver.yaml"), class("silver") + "---\n" + &class("silver")).unwrap();
        let (text, code) = check(&flags, &[d.join("new.yaml"), d.join("silver.yaml")]);
        assert!(text.contains("silver.yaml: document 2: metadata.name: Duplicate value: \"silver\": "), "{text}");
        assert_eq!((text.lines().count(), code), (1, 1));
    }

    #[test]
    fn a2_more_reserved_than_this_machine_has_is_an_error_of_its_configuration() {
        let dir = tempfile::tempdir().unwrap();
        let d = dir.path();
        std::fs::create_dir(d.join("m")).unwrap();
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        let text = format!("{head}staticPodPath: {}/m\nsystemReserved:\n  memory: 1Ei\n", d.display());
        std::fs::write(d.join("config.yaml"), text).unwrap();
        let flags = Flags {
            config: Some(d.join("config.yaml")),
            config_dir: Some(PathBuf::new()),
            hostname: Some("lab".into()),
            ..Flags::default()
        };
        let (text, code) = check(&flags, &[]);
        let begins = format!(
            "{}/config.yaml:4: systemReserved: resource \"memory\" has a reservation of 1152921504711704576 bytes \
             (systemReserved 1152921504606846976 bytes, evictionHard 104857600 bytes) but capacity of ",
            d.display()
        );
        assert!(text.starts_with(&begins), "{text}");
        assert_eq!((text.lines().count(), code), (1, 1));
        // A configuration given as a file may be for another machine, so its reservations are not compared.
        assert_eq!(check(&flags, &[d.join("config.yaml")]), (String::new(), 0));
    }
}
