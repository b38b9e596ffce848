//! Checks the machine before pods are started on it. `wherry check --system` performs all checks. `wherry run`
//! performs only the cheap ones when it starts, because the agent learns the state of the runtime anyway.
//!
//! `wherry check --system` queries the runtime and logind in parallel, on an event loop of its own, for at most
//! `PATIENCE`. A service that hangs is reported as missing.

use super::jobs::{JobSpec, Jobs};
use super::{logind, seal_key, start};
use crate::adapters::bus::logind::{BusEvent, Logind, dropin};
use crate::adapters::cri::runtime_check::{RuntimeCheck, RuntimeReport};
use crate::adapters::host::checks::{self, CheckSettings, ConfiguredDirectory, Purpose, Roots, cni};
use crate::adapters::manifests;
use crate::api::cgroups::CgroupDriver;
use crate::api::facts::RuntimeFact;
use crate::api::finding::{Count, Finding, Level};
use crate::api::time::Now;
use crate::config::Config;
use crate::engine::effect::LogindCall;
use crate::engine::event::{Answer, LogindEvent};
use crate::engine::op::OpId;
use crate::event_loop::{Class, EventLoop, clock};
use crate::foreign;
use mio::Token;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Time limit for the runtime and logind together, and for a path that does not respond.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time limit for such a path when the agent starts. It is shorter, because it delays the start.
const PATIENCE_AT_START: Duration = Duration::from_secs(2);

/// The token of the runtime's connection. The bus of logind has `tokens::LOGIND`, as in the agent.
const RUNTIME: Token = Token(0);

/// Default socket paths of the runtimes' packages.
const KNOWN_SOCKETS: [&str; 4] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/cri-dockerd.sock",
];
const PROGRAMS: [(&str, &str); 2] = [("containerd", "containerd"), ("crio", "crio")];

/// Performs all checks, including the runtime and logind. Takes about `PATIENCE` at most, or a multiple of it if file
/// systems hang.
pub fn inspect(config: &Config) -> Vec<Finding> {
    let running = foreign::start({
        let config = config.clone();
        move || query(&config)
    });
    let mut found = machine(config, PATIENCE);
    if let Some(finding) = checks::inotify() {
        found.retain(|f| f.check != finding.check);
        found.push(finding);
    }
    let running_seal = foreign::start({
        let config = config.clone();
        move || seal_key::check(&config)
    });
    // The checks above report a directory that hangs, so a missing answer is ignored here.
    found.extend(running_seal.answer(PATIENCE).ok().flatten());
    // `query` has its own time limit, which it can exceed only if the sockets are on a file system that hangs.
    let answers = running.answer(PATIENCE + Duration::from_secs(1)).unwrap_or_else(|why| Answers {
        runtime: Err(why.to_string()),
        logind: needs_bus(config).then(|| Err(why.to_string())),
    });
    let running = foreign::start({
        let config = config.clone();
        move || {
            let mut found = runtime(&config, &answers.runtime);
            found.extend(bus(&config, answers.logind));
            found
        }
    });
    let path = config.runtime_socket.as_path();
    found.extend(running.answer(PATIENCE).unwrap_or_else(|why| {
        let hung =
            "the runtime's socket, its network's configuration (/etc/cni/net.d, /opt/cni/bin), PATH, logindConfDir";
        vec![Finding::error(
            "runtime",
            format!("cannot read {}, or another path of this check: {why}", path.display()),
            format!("one of these paths is on a file system that hangs; repair that file system: {hung}"),
        )]
    }));
    found
}

/// Performs the checks that need no other process. Waits at most `patience` for directories that do not respond.
fn machine(config: &Config, patience: Duration) -> Vec<Finding> {
    checks::machine(&Roots::default(), &wanted(config, patience))
}

/// Performs the same checks in the agent. It leaves out a manifest directory on a file system that may hang, such as
/// FUSE: a thread that waits for it may survive SIGKILL and keep the agent's lock. The first scan, which runs in a
/// separate process, checks such a directory.
pub(super) fn machine_at_start(config: &Config) -> Vec<Finding> {
    checks::machine(&Roots::default(), &wanted_at_start(config, manifests::may_hang))
}

fn wanted_at_start(config: &Config, may_hang: impl Fn(&Path) -> bool) -> CheckSettings {
    let mut wanted = wanted(config, PATIENCE_AT_START);
    wanted.directories.retain(|directory| directory.purpose != Purpose::Read || !may_hang(&directory.path));
    wanted
}

fn wanted(config: &Config, patience: Duration) -> CheckSettings {
    let directory =
        |check, path: &Path, field, purpose| ConfiguredDirectory { check, path: path.to_owned(), field, purpose };
    let mut directories = vec![
        directory("manifests", &config.manifests, "staticPodPath", Purpose::Read),
        directory("state", &config.root_dir, "--root-dir", Purpose::Keep),
        directory("logs", &config.pod_logs_dir, "podLogsDir", Purpose::Keep),
        directory("log-links", &config.container_logs_dir, "--container-log-dir", Purpose::Write),
    ];
    let socket = config.socket.parent().unwrap_or(Path::new("/"));
    directories.push(directory("run", socket, "--socket", Purpose::Write));
    if !config.shutdown.is_off() {
        directories.push(directory("logind-drop-in", &config.logind_conf_dir, "logindConfDir", Purpose::Write));
    }
    CheckSettings {
        cgroups: start::cgroup_names(config),
        seccomp_default: config.seccomp_default,
        pods_swap: config.limited_swap,
        directories,
        now: clock::now().wall,
        patience,
    }
}

struct Answers {
    runtime: Result<RuntimeReport, String>,
    /// How long logind waits for delay locks. None if logind is not needed.
    logind: Option<Result<Duration, String>>,
}

fn needs_bus(config: &Config) -> bool {
    !config.shutdown.is_off() || config.cgroup_driver == CgroupDriver::Systemd
}

fn query(config: &Config) -> Answers {
    let needs_bus = needs_bus(config);
    let failed = |why: String| Answers { runtime: Err(why.clone()), logind: needs_bus.then_some(Err(why)) };
    let mut event_loop = match EventLoop::new() {
        Ok(event_loop) => event_loop,
        Err(e) => return failed(e.to_string()),
    };
    let until = clock::boot() + PATIENCE;
    let mut questions = match start::transport(&config.runtime_socket, event_loop.registry(), RUNTIME) {
        Ok(transport) => RuntimeCheck::new(transport, until),
        Err(e) => return failed(e),
    };
    let silence = format!("no response for {} s", PATIENCE.as_secs());
    let mut logind = logind::bus(config);
    logind.set_enabled(needs_bus);
    let mut runtime = None;
    let mut delay = None;
    let mut ready = Vec::new();
    while runtime.is_none() || (needs_bus && delay.is_none()) {
        let now = clock::boot();
        if now >= until {
            break;
        }
        if questions.drive(now) {
            event_loop.again(RUNTIME);
        }
        runtime = runtime.or(questions.answer());
        drive_logind(&mut logind, &event_loop, &mut delay);
        if runtime.is_some() && (!needs_bus || delay.is_some()) {
            break;
        }
        let deadlines = [questions.next_deadline(), logind.next_deadline(), Some(until)];
        if let Err(e) = event_loop.turn(deadlines.into_iter().flatten().min(), &mut ready) {
            return failed(e.to_string());
        }
    }
    Answers {
        runtime: runtime.unwrap_or_else(|| Err(silence.clone())),
        logind: needs_bus.then(|| delay.unwrap_or(Err(silence))),
    }
}

fn drive_logind(logind: &mut Logind, event_loop: &EventLoop, delay: &mut Option<Result<Duration, String>>) {
    let now = clock::boot();
    let mut out = Vec::new();
    logind.drive(event_loop.registry(), now, &mut out);
    for event in out {
        match event {
            BusEvent::Logind(LogindEvent::Up) => logind.start(OpId(0), LogindCall::ReadDelay, PATIENCE, now),
            BusEvent::Logind(LogindEvent::Down { why }) => {
                delay.get_or_insert(Err(why));
            }
            BusEvent::Done { result, .. } => {
                delay.get_or_insert(match result {
                    Ok(Answer::Delay(delay)) => Ok(delay),
                    Ok(other) => Err(format!("unexpected response from logind: {other:?}")),
                    Err(e) => Err(e.to_string()),
                });
            }
            BusEvent::Logind(_) | BusEvent::Locked { .. } | BusEvent::Listed { .. } => {}
        }
    }
}

fn runtime(config: &Config, report: &Result<RuntimeReport, String>) -> Vec<Finding> {
    match report {
        Err(why) => vec![no_runtime(config, why)],
        Ok(report) => {
            let mut found = of_fact(config, &report.fact);
            found.extend(driver(config, report));
            found.extend(network(report));
            found
        }
    }
}

/// Returns findings about the conditions that the runtime reports.
fn of_fact(config: &Config, fact: &RuntimeFact) -> Vec<Finding> {
    let RuntimeFact { name, version, runtime_not_ready, network_not_ready, features: _ } = fact;
    let at = format!("{name} {version} at {}", config.runtime_socket.display());
    let runtime = match runtime_not_ready {
        None => Finding::ok("runtime", format!("{at} is ready")),
        Some(why) => Finding::error("runtime", format!("{at}: {why}"), format!("see journalctl -u {name}")),
    };
    let network = match network_not_ready {
        None => Finding::ok("network", "the runtime reports it as ready"),
        Some(why) => Finding::error(
            "network",
            format!("{why}: all pods except those with hostNetwork wait for it"),
            "put a network configuration into /etc/cni/net.d, or into the runtime's conf_dir",
        ),
    };
    vec![runtime, network]
}

fn no_runtime(config: &Config, why: &str) -> Finding {
    let socket = &config.runtime_socket;
    let shown = socket.display();
    // The transport's errors begin with the path too.
    let why = why.strip_prefix(&format!("{shown}: ")).unwrap_or(why);
    let error = |message: String, remedy: String| Finding::error("runtime", message, remedy);
    if why.contains("no CRI v1") {
        let remedy = "remove \"cri\" from disabled_plugins in /etc/containerd/config.toml and restart containerd";
        return error(format!("{shown}: {why}"), remedy.to_owned());
    }
    if why.contains("ermission denied") {
        return error(
            format!("{shown}: {why}"),
            "run wherry as root, or as a user with access to that socket".to_owned(),
        );
    }
    if socket.exists() {
        let remedy =
            "check the runtime (systemctl status containerd) and restart it if it hangs; containers keep running";
        return error(format!("{shown}: {why}"), remedy.to_owned());
    }
    let other = KNOWN_SOCKETS.into_iter().find(|s| Path::new(s) != socket && Path::new(s).exists());
    if let Some(other) = other {
        let remedy = format!("set containerRuntimeEndpoint: unix://{other} in the configuration");
        return error(format!("there is no socket {shown}, but {other} exists"), remedy);
    }
    match PROGRAMS.into_iter().find(|(program, _)| in_path(program)) {
        Some((program, unit)) => error(
            format!("there is no socket {shown}: {program} is installed but not running"),
            format!("systemctl enable --now {unit}"),
        ),
        None => error(
            format!("there is no socket {shown}, and neither containerd nor crio is installed"),
            "install one of them (Debian: apt install containerd)".to_owned(),
        ),
    }
}

fn in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/usr/local/bin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).any(|directory| directory.join(program).is_file())
}

/// Compares the cgroup drivers. With different drivers, Wherry and the runtime place pods and their limits in
/// different cgroups.
fn driver(config: &Config, report: &RuntimeReport) -> Option<Finding> {
    let ours = config.cgroup_driver.name();
    let check = "cgroup-driver";
    Some(match (report.driver.map(CgroupDriver::name), report.driver_counts) {
        (None, _) => {
            let unknown = format!("{ours}; the runtime does not report its driver, which must be the same");
            Finding::ok(check, unknown)
        }
        (Some(theirs), _) if theirs == ours => Finding::ok(check, format!("{ours}, the same as the runtime")),
        (Some(theirs), true) => Finding::warning(
            check,
            format!("the runtime uses {theirs}, which overrides cgroupDriver: {ours}"),
            format!("set cgroupDriver: {theirs} in the configuration, to match the runtime"),
        ),
        (Some(theirs), false) => Finding::error(
            check,
            format!("the runtime uses {theirs}, and cgroupDriver is {ours}: pods fail, or escape their limits"),
            format!(
                "set cgroupDriver: {theirs} in the configuration (containerd's setting is SystemdCgroup, \
                 CRI-O's is cgroup_manager)"
            ),
        ),
    })
}

fn network(report: &RuntimeReport) -> Option<Finding> {
    match &report.network {
        Some(network) => Some(cni::inspect(&network.configurations, &network.programs)),
        // A runtime that reports no network problem needs no check of the directories.
        None if report.fact.network_not_ready.is_none() => None,
        None => Some(cni::inspect(Path::new(cni::CONFIGURATIONS), &cni::PROGRAMS.map(PathBuf::from))),
    }
}

fn bus(config: &Config, answers: Option<Result<Duration, String>>) -> Vec<Finding> {
    let wanted = config.shutdown.sum();
    match answers {
        None => {
            vec![Finding::ok("logind", "not needed: without shutdownGracePeriod, a shutdown does not wait for pods")]
        }
        Some(Err(why)) if config.cgroup_driver == CgroupDriver::Systemd => vec![Finding::error(
            "logind",
            format!("{why}: with cgroupDriver: systemd, pods cannot get their cgroups"),
            "install and start dbus (systemctl enable --now dbus), or set cgroupDriver: cgroupfs here and in the \
             runtime",
        )],
        Some(Err(why)) => vec![Finding::warning(
            "logind",
            format!("{why}: a shutdown does not wait for pods"),
            "install and start dbus and systemd-logind; without systemd, remove shutdownGracePeriod",
        )],
        Some(Ok(_)) if config.shutdown.is_off() => vec![Finding::ok("logind", "logind responds on the system bus")],
        Some(Ok(delay)) => vec![inhibit_delay(delay, wanted, config.logind_conf_dir.join(dropin::NAME).as_path())],
    }
}

/// Compares logind's delay with the configured one (S2).
fn inhibit_delay(delay: Duration, wanted: Duration, ours: &Path) -> Finding {
    let (has, wants) = (delay.as_secs(), wanted.as_secs());
    if delay >= wanted {
        return Finding::ok("logind", format!("logind waits {has} s for pods at a shutdown, {wants} s are configured"));
    }
    let drop_in = ours.display();
    if ours.exists() {
        return Finding::warning(
            "logind",
            format!("logind waits {has} s for pods at a shutdown, {wants} s are configured, although {drop_in} exists"),
            "run systemctl kill -s HUP systemd-logind; if the delay stays, a later drop-in also sets \
             InhibitDelayMaxSec",
        );
    }
    Finding::ok(
        "logind",
        format!(
            "logind waits {has} s for pods at a shutdown; Wherry sets the configured {wants} s at its start ({drop_in})"
        ),
    )
}

/// Logs the findings at the start: each warning and error, and a summary.
pub(super) fn log_findings(findings: &[Finding]) {
    findings.iter().for_each(line);
    log::info!(
        "preflight: {}; run wherry check --system to see all findings, including the runtime and logind",
        Count::of(findings)
    );
}

pub(super) fn line(finding: &Finding) {
    let Finding { check, level, message, remedy } = finding;
    let remedy = remedy.as_ref().map(|r| format!(" remedy={r:?}")).unwrap_or_default();
    match level {
        Level::Ok => log::debug!("preflight={check} level=ok message={message:?}"),
        Level::Warning => log::warn!("preflight={check} level=warning message={message:?}{remedy}"),
        Level::Error => log::error!("preflight={check} level=error message={message:?}{remedy}"),
    }
}

/// Logs the findings about a runtime that responds. For `Err`, searches for the reason why it does not respond.
pub(super) fn check_runtime(answers: Result<&RuntimeFact, &str>, config: &Config, jobs: &mut Jobs, now: Now) {
    let why = match answers {
        Ok(fact) => return of_fact(config, fact).iter().for_each(line),
        Err(why) => why.to_owned(),
    };
    let config = config.clone();
    // The job searches paths that Wherry does not own: other sockets, and PATH.
    let spec = JobSpec::new(Class::Paths, "search for a container runtime", now.boot + PATIENCE);
    jobs.run(
        spec,
        move || no_runtime(&config, &why),
        |agent, finding, now| match finding {
            Ok(finding) => line(&finding),
            Err(e) => drop(agent.reporting.standing.job_failed(&e, now.boot)),
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::shutdown::Groups;

    fn report(driver: Option<CgroupDriver>, driver_counts: bool) -> RuntimeReport {
        RuntimeReport { driver, driver_counts, ..RuntimeReport::default() }
    }

    #[test]
    fn a_cgroup_driver_mismatch_is_a_warning_or_an_error_by_its_effect() {
        let config = Config { cgroup_driver: CgroupDriver::Cgroupfs, ..Config::default() };
        let level = |d, counts| driver(&config, &report(d, counts)).unwrap().level;
        assert_eq!(level(None, false), Level::Ok);
        assert_eq!(level(Some(CgroupDriver::Cgroupfs), false), Level::Ok);
        assert_eq!(level(Some(CgroupDriver::Systemd), true), Level::Warning);
        assert_eq!(level(Some(CgroupDriver::Systemd), false), Level::Error);
    }

    #[test]
    fn a_missing_runtime_is_reported_with_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config { runtime_socket: dir.path().join("sock"), ..Config::default() };
        let gone = no_runtime(&config, "connect: No such file");
        assert!(gone.level == Level::Error && gone.message.contains(dir.path().to_str().unwrap()), "{gone:?}");
        std::fs::write(&config.runtime_socket, "").unwrap();
        let hangs = no_runtime(&config, "no response for 5 s");
        assert!(hangs.message.ends_with("sock: no response for 5 s") && hangs.remedy.unwrap().contains("restart it"));
        let refused = no_runtime(&config, "connect: Permission denied (os error 13)");
        assert!(refused.remedy.unwrap().contains("as root"));
        let old = no_runtime(&config, "it responds, but has no CRI v1 service: x");
        assert!(old.remedy.unwrap().contains("disabled_plugins"));
    }

    #[test]
    fn a_start_does_not_touch_a_manifest_directory_that_may_hang() {
        let config = Config::default();
        let checks = |wanted: CheckSettings| wanted.directories.iter().map(|d| d.check).collect::<Vec<_>>();
        let mut all = checks(wanted_at_start(&config, |_| false));
        assert_eq!(all, checks(wanted(&config, PATIENCE)));
        assert!(all.contains(&"manifests"));
        all.retain(|check| *check != "manifests");
        assert_eq!(checks(wanted_at_start(&config, |_| true)), all);
    }

    #[test]
    fn conditions_are_taken_in_the_runtimes_words() {
        let fact = RuntimeFact {
            name: "containerd".into(),
            version: "1.7".into(),
            runtime_not_ready: None,
            network_not_ready: Some("NetworkReady=false reason:R message:cni".into()),
            ..RuntimeFact::default()
        };
        let found = of_fact(&Config::default(), &fact);
        assert_eq!(found.iter().map(|f| f.level).collect::<Vec<_>>(), [Level::Ok, Level::Error]);
        assert!(found[1].message.starts_with("NetworkReady=false reason:R"), "{found:?}");
    }

    #[test]
    fn s2_a_delay_that_is_too_short_is_fine_until_our_drop_in_should_have_raised_it() {
        let s = Duration::from_secs;
        let dir = tempfile::tempdir().unwrap();
        let ours = dir.path().join(dropin::NAME);
        assert_eq!(inhibit_delay(s(30), s(30), &ours).level, Level::Ok);
        let before = inhibit_delay(s(5), s(30), &ours);
        assert!(before.level == Level::Ok && before.message.contains("at its start"), "{before:?}");
        std::fs::write(&ours, "").unwrap();
        assert_eq!(inhibit_delay(s(5), s(30), &ours).level, Level::Warning);
        let on = Config { shutdown: Groups::from_total(s(30), s(10)), ..Config::default() };
        assert_eq!(bus(&on, Some(Err("x".into())))[0].level, Level::Warning);
        let systemd = Config { cgroup_driver: CgroupDriver::Systemd, ..Config::default() };
        assert_eq!(bus(&systemd, Some(Err("x".into())))[0].level, Level::Error);
        assert_eq!(bus(&systemd, Some(Ok(s(5))))[0].level, Level::Ok);
        assert_eq!(bus(&Config::default(), None)[0].level, Level::Ok);
    }
}
