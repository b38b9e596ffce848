//! A node's system bus with the real systemd-logind on it, of a test's own (`tests/lab/logind.sh`), and what one may do to them.
//!
//! systemd itself is a stub here: it starts no unit but remembers which was asked for and when (that is logind's word that the
//! delay locks are gone, or out of time), answers logind's questions, and sends signals to logind as KillUnit says.

use super::agent::{Agent, patience};
use super::lab::{Runtime, script};
use dbus::Message;
use dbus::arg::{OwnedFd, RefArg, Variant};
use dbus::channel::{Channel, Sender};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

pub const LOGIND: &str = "org.freedesktop.login1";
pub const LOGIND_PATH: &str = "/org/freedesktop/login1";
pub const MANAGER: &str = "org.freedesktop.login1.Manager";
const SYSTEMD: &str = "org.freedesktop.systemd1";
const SYSTEMD_PATH: &str = "/org/freedesktop/systemd1";
const SYSTEMD_MANAGER: &str = "org.freedesktop.systemd1.Manager";
const BUS: &str = "org.freedesktop.DBus";

/// For one answer.
const CALL: Duration = Duration::from_secs(120);

static COUNT: AtomicU32 = AtomicU32::new(0);

pub struct Node {
    /// Everything of it is below.
    pub dir: PathBuf,
    bus: Option<Child>,
    logind: Option<Child>,
    systemd: Systemd,
}

/// One line of logind's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inhibitor {
    pub what: String,
    pub who: String,
    pub why: String,
    pub mode: String,
    pub uid: u32,
    pub pid: u32,
}

/// A unit that logind had systemd start.
#[derive(Clone, Debug)]
pub struct Started {
    pub unit: String,
    pub at: Instant,
}

impl Node {
    /// Bus, systemd's stub and logind, all answering. `name` is for people.
    pub fn start(name: &str) -> Node {
        let mut node = Node::without_logind(name);
        node.start_logind();
        node
    }

    /// The same without logind.
    pub fn without_logind(name: &str) -> Node {
        let mut node = Node::without_bus(name);
        node.start_bus();
        node
    }

    /// Only the directory.
    pub fn without_bus(name: &str) -> Node {
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let dir = Runtime::shared().dir.join("nodes").join(format!("{name}-{number}"));
        fs::create_dir_all(dir.join("logind.conf.d")).expect("directories");
        let systemd = Systemd::start(&format!("unix:path={}", dir.join("bus").display()));
        Node { dir, bus: None, logind: None, systemd }
    }

    /// DBUS_SYSTEM_BUS_ADDRESS.
    pub fn address(&self) -> String {
        format!("unix:path={}", self.dir.join("bus").display())
    }

    /// Where this logind reads its drop-ins.
    pub fn conf_dir(&self) -> PathBuf {
        self.dir.join("logind.conf.d")
    }

    /// An agent of this node on the shared runtime, not running yet: its bus and logind's directory are set. What else it is
    /// configured with (`shutdownGracePeriod`, ...) is the test's.
    pub fn agent(&self, name: &str) -> Agent {
        self.agent_on(name, &Runtime::shared())
    }

    pub fn agent_on(&self, name: &str, runtime: &Runtime) -> Agent {
        let mut agent = Agent::prepare(name, runtime);
        agent.set("DBUS_SYSTEM_BUS_ADDRESS", &self.address());
        let text = format!(
            "apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nlogindConfDir: {}\n",
            self.conf_dir().display()
        );
        fs::write(agent.dir.join("config.d/logind.yaml"), text).expect("logind.yaml");
        agent
    }

    /// The slices that systemd was asked for, with the numbers that they were last told.
    pub fn slices(&self) -> BTreeMap<String, BTreeMap<String, u64>> {
        self.systemd.state().slices.clone()
    }

    // ---- processes

    pub fn start_bus(&mut self) {
        assert!(self.bus.is_none(), "the bus runs");
        self.bus = Some(self.spawn("bus"));
        wait("the bus answers", || self.connect().ok());
        wait("systemd's stub is on it", || self.owner(SYSTEMD));
    }

    /// kill -9. logind does not live without it, as everywhere.
    pub fn kill_bus(&mut self) {
        end(&mut self.bus);
    }

    /// SIGSTOP.
    pub fn pause_bus(&self) {
        signal(self.bus.as_ref().expect("the bus runs"), Signal::STOP);
    }

    /// SIGCONT.
    pub fn resume_bus(&self) {
        signal(self.bus.as_ref().expect("the bus runs"), Signal::CONT);
    }

    pub fn start_logind(&mut self) {
        assert!(self.logind.is_none(), "logind runs");
        let child = self.spawn("logind");
        self.systemd.state().logind = Some(child.id());
        self.logind = Some(child);
        wait("logind answers", || self.try_call(&property("InhibitDelayMaxUSec")).ok());
    }

    /// kill -9.
    pub fn kill_logind(&mut self) {
        self.systemd.state().logind = None;
        end(&mut self.logind);
    }

    /// SIGHUP, as of somebody who has changed its files.
    pub fn reload_logind(&self) {
        signal(self.logind.as_ref().expect("logind runs"), Signal::HUP);
    }

    /// kill -9, and another one, which finds the locks of the first.
    pub fn restart_logind(&mut self) {
        self.kill_logind();
        self.start_logind();
    }

    /// For a logind that does not run: the next one knows no locks.
    pub fn forget_locks(&self) {
        assert!(self.logind.is_none(), "logind runs");
        fs::remove_dir_all(self.dir.join("run/systemd/inhibit")).expect("its locks");
    }

    fn spawn(&self, what: &str) -> Child {
        let path = self.dir.join(format!("{what}.log"));
        let log = fs::OpenOptions::new().create(true).append(true).open(path).expect("log");
        let mut command = Command::new(script("logind.sh"));
        command.arg(what).arg(&self.dir).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("log")).stderr(log);
        command.spawn().expect("logind.sh")
    }

    // ---- what one asks logind

    pub fn inhibitors(&self) -> Vec<Inhibitor> {
        type Line = (String, String, String, String, u32, u32);
        let reply = self.call(&manager("ListInhibitors"));
        let lines: Vec<Line> = reply.read1().expect("ListInhibitors");
        let inhibitor = |(what, who, why, mode, uid, pid)| Inhibitor { what, who, why, mode, uid, pid };
        lines.into_iter().map(inhibitor).collect()
    }

    /// The locks of wherry, of which there should be one.
    pub fn locks(&self) -> usize {
        let ours = |i: &Inhibitor| i.who == "wherry" && i.what == "shutdown" && i.mode == "delay";
        self.inhibitors().iter().filter(|i| ours(i)).count()
    }

    /// InhibitDelayMaxSec, as logind has it.
    pub fn delay(&self) -> Duration {
        let value: Variant<u64> = self.call(&property("InhibitDelayMaxUSec")).read1().expect("a number");
        Duration::from_micros(value.0)
    }

    /// PreparingForShutdown.
    pub fn preparing(&self) -> bool {
        let value: Variant<bool> = self.call(&property("PreparingForShutdown")).read1().expect("a bool");
        value.0
    }

    pub fn power_off(&self) {
        self.call(&manager("PowerOff").append1(false));
    }

    pub fn reboot(&self) {
        self.call(&manager("Reboot").append1(false));
    }

    /// `kind`: poweroff, reboot, ...
    pub fn schedule_shutdown(&self, kind: &str, after: Duration) {
        let at = SystemTime::now() + after;
        let at = at.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_micros() as u64;
        self.call(&manager("ScheduleShutdown").append2(kind, at));
    }

    /// True if there was one.
    pub fn cancel_scheduled_shutdown(&self) -> bool {
        self.call(&manager("CancelScheduledShutdown")).read1().expect("a bool")
    }

    /// A lock of somebody else's, until it is dropped.
    pub fn inhibit(&self, who: &str) -> OwnedFd {
        let mut message = manager("Inhibit");
        message.append_all(("shutdown", who, "a test", "delay"));
        self.call(&message).read1().expect("a descriptor")
    }

    pub fn listen(&self) -> Listener {
        let channel = self.connect().expect("the bus");
        let rule = format!("type='signal',interface='{MANAGER}',member='PrepareForShutdown'");
        let message = to(BUS, "/org/freedesktop/DBus", BUS, "AddMatch").append1(rule);
        channel.send_with_reply_and_block(message, CALL).expect("AddMatch");
        Listener { channel }
    }

    // ---- what systemd was asked for, and does

    pub fn started(&self) -> Vec<Started> {
        self.systemd.state().started.clone()
    }

    /// Waits until logind has systemd start a unit: it does not wait for locks any more.
    pub fn wait_started(&self, unit: &str) -> Started {
        wait(&format!("logind starts {unit}"), || self.started().into_iter().find(|s| s.unit == unit))
    }

    /// How often systemd sent this signal to logind.
    pub fn signals(&self, number: i32) -> usize {
        self.systemd.state().signals.iter().filter(|s| **s == number).count()
    }

    /// From now on: after so long the unit's job is done, and the machine still there; logind says then that the shutdown is
    /// over. None, as at the start: the machine goes on shutting down.
    pub fn jobs_last(&self, how_long: Option<Duration>) {
        self.systemd.state().job = how_long.map_or(Job::Lasts, Job::Ends);
    }

    /// From now on systemd refuses to start units: a shutdown ends as cancelled as soon as the locks are gone.
    pub fn refuse_jobs(&self) {
        self.systemd.state().job = Job::Refused;
    }

    // ---- the bus

    /// A greeted connection.
    pub fn connect(&self) -> Result<Channel, dbus::Error> {
        // (libdbus would wait for a bus that is stopped.)
        let mut channel = Channel::open_private(&self.address())?;
        channel.register()?;
        Ok(channel)
    }

    pub fn owner(&self, name: &str) -> Option<String> {
        let message = to(BUS, "/org/freedesktop/DBus", BUS, "GetNameOwner").append1(name);
        self.try_call(&message).ok()?.read1().ok()
    }

    /// The unique names on the bus.
    pub fn connections(&self) -> Vec<String> {
        let reply = self.call(&to(BUS, "/org/freedesktop/DBus", BUS, "ListNames"));
        let names: Vec<String> = reply.read1().expect("names");
        names.into_iter().filter(|n| n.starts_with(':')).collect()
    }

    fn try_call(&self, message: &Message) -> Result<Message, dbus::Error> {
        let message = message.duplicate().expect("memory");
        self.connect()?.send_with_reply_and_block(message, CALL)
    }

    fn call(&self, message: &Message) -> Message {
        self.try_call(message).unwrap_or_else(|e| panic!("{message:?}: {e}"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        end(&mut self.logind);
        end(&mut self.bus);
        if std::thread::panicking() {
            for log in ["bus.log", "logind.log"] {
                let text = fs::read_to_string(self.dir.join(log)).unwrap_or_default();
                eprintln!("--- {}\n{text}", self.dir.join(log).display());
            }
        }
    }
}

/// Looks until there is something.
pub fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let patience = patience(240);
    let end = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited {patience:?} in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn end(child: &mut Option<Child>) {
    if let Some(mut child) = child.take() {
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("kill");
}

pub fn to(destination: &str, path: &str, interface: &str, member: &str) -> Message {
    Message::new_method_call(destination, path, interface, member).expect("a message")
}

fn manager(member: &str) -> Message {
    to(LOGIND, LOGIND_PATH, MANAGER, member)
}

fn property(name: &str) -> Message {
    to(LOGIND, LOGIND_PATH, "org.freedesktop.DBus.Properties", "Get").append2(MANAGER, name)
}

/// What logind tells everybody.
pub struct Listener {
    channel: Channel,
}

impl Listener {
    /// The next PrepareForShutdown, and when it came.
    pub fn next(&self) -> (bool, Instant) {
        wait("PrepareForShutdown", || self.poll(Duration::from_millis(10)))
    }

    /// None if there is none for so long.
    pub fn poll(&self, patience: Duration) -> Option<(bool, Instant)> {
        let end = Instant::now() + patience;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let message = self.channel.blocking_pop_message(left).expect("the bus")?;
            if message.member().as_deref() == Some("PrepareForShutdown") {
                return Some((message.read1().expect("a bool"), Instant::now()));
            }
        }
    }
}

// ---- the stub of systemd

#[derive(Clone, Copy)]
enum Job {
    Lasts,
    Ends(Duration),
    Refused,
}

struct State {
    logind: Option<u32>,
    started: Vec<Started>,
    signals: Vec<i32>,
    job: Job,
    /// Slices, by what they were last told.
    slices: BTreeMap<String, BTreeMap<String, u64>>,
    over: bool,
}

struct Systemd {
    state: Arc<Mutex<State>>,
    thread: Option<JoinHandle<()>>,
}

impl Systemd {
    fn start(address: &str) -> Systemd {
        let state = State {
            logind: None,
            started: Vec::new(),
            signals: Vec::new(),
            job: Job::Lasts,
            slices: BTreeMap::new(),
            over: false,
        };
        let state = Arc::new(Mutex::new(state));
        let (theirs, address) = (state.clone(), address.to_owned());
        let thread = std::thread::spawn(move || {
            while !theirs.lock().expect("no panic").over {
                // Until the bus goes; then for the next one.
                let _ = serve(&theirs, &address);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Systemd { state, thread: Some(thread) }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no panic")
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        if let Ok(mut state) = self.state.lock() {
            state.over = true;
        }
        // The bus is gone by now, so it waits for nothing.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Properties of a unit.
type ClientAnswer = Vec<(String, Variant<Box<dyn RefArg>>)>;

/// Those that are numbers.
fn numbers(told: &ClientAnswer) -> BTreeMap<String, u64> {
    told.iter().filter_map(|(name, value)| Some((name.clone(), value.0.as_u64()?))).collect()
}

fn serve(state: &Mutex<State>, address: &str) -> Result<(), dbus::Error> {
    let mut channel = Channel::open_private(address)?;
    channel.register()?;
    let name = to(BUS, "/org/freedesktop/DBus", BUS, "RequestName").append2(SYSTEMD, 0u32);
    channel.send_with_reply_and_block(name, CALL)?;
    let mut ending: Vec<(Instant, u32, String)> = Vec::new();
    let mut jobs = 0;
    loop {
        if state.lock().expect("no panic").over {
            return Ok(());
        }
        let now = Instant::now();
        for (_, job, unit) in ending.extract_if(.., |(at, ..)| *at <= now) {
            let signal = Message::new_signal(SYSTEMD_PATH, SYSTEMD_MANAGER, "JobRemoved").expect("a message");
            let mut signal = signal.append3(job, job_path(job), unit);
            signal.append_all(("done",));
            let _ = channel.send(signal);
        }
        let Some(message) = channel.blocking_pop_message(Duration::from_millis(10))? else { continue };
        let member = message.member().map(|m| m.to_string()).unwrap_or_default();
        let reply = match member.as_str() {
            "Subscribe" => message.method_return(),
            // Of a unit that logind is about to start.
            "Get" => message.method_return().append1(Variant("loaded")),
            "StartUnit" => {
                let unit: String = message.read1().unwrap_or_default();
                let mut state = state.lock().expect("no panic");
                state.started.push(Started { unit: unit.clone(), at: now });
                match state.job {
                    Job::Refused => {
                        message.error(&"org.freedesktop.systemd1.TransactionIsDestructive".into(), c"refused")
                    }
                    job => {
                        jobs += 1;
                        if let Job::Ends(after) = job {
                            ending.push((now + after, jobs, unit));
                        }
                        message.method_return().append1(job_path(jobs))
                    }
                }
            }
            "StartTransientUnit" => {
                let (unit, _, told): (String, String, ClientAnswer) = message.read3().unwrap_or_default();
                let mut state = state.lock().expect("no panic");
                if state.slices.contains_key(&unit) {
                    message.error(&"org.freedesktop.systemd1.UnitExists".into(), c"it is there")
                } else {
                    state.slices.insert(unit.clone(), numbers(&told));
                    jobs += 1;
                    ending.push((now, jobs, unit));
                    message.method_return().append1(job_path(jobs))
                }
            }
            "SetUnitProperties" => {
                let (unit, _, told): (String, bool, ClientAnswer) = message.read3().unwrap_or_default();
                state.lock().expect("no panic").slices.insert(unit, numbers(&told));
                message.method_return()
            }
            "StopUnit" => {
                let unit: String = message.read1().unwrap_or_default();
                if state.lock().expect("no panic").slices.remove(&unit).is_none() {
                    message.error(&"org.freedesktop.systemd1.NoSuchUnit".into(), c"not loaded")
                } else {
                    jobs += 1;
                    ending.push((now, jobs, unit));
                    message.method_return().append1(job_path(jobs))
                }
            }
            "KillUnit" => {
                let (_, _, number): (String, String, i32) = message.read3().unwrap_or_default();
                let mut state = state.lock().expect("no panic");
                state.signals.push(number);
                let pid = state.logind.and_then(|p| Pid::from_raw(p as i32));
                match (pid, number) {
                    (Some(pid), 1) => {
                        let _ = kill_process(pid, Signal::HUP);
                        message.method_return()
                    }
                    _ => message.error(&"org.freedesktop.systemd1.NoSuchUnit".into(), c"no such unit"),
                }
            }
            _ => match dbus::channel::default_reply(&message) {
                Some(reply) => reply,
                None => continue,
            },
        };
        let _ = Sender::send(&channel, reply);
    }
}

fn job_path(job: u32) -> dbus::Path<'static> {
    format!("{SYSTEMD_PATH}/job/{job}").into()
}
