//! A system bus with a real systemd-logind for one test (`tests/lab/logind.sh`), and functions to control both.
//!
//! systemd itself is a stub. It starts no unit, but records each StartUnit call and its time: logind sends the call
//! when all delay locks are released or InhibitDelayMaxSec is over. The stub answers logind's queries and implements
//! KillUnit.

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

/// Timeout of a D-Bus call.
const CALL: Duration = Duration::from_secs(120);

static COUNT: AtomicU32 = AtomicU32::new(0);

pub struct Node {
    /// The directory that contains all files of the node.
    pub dir: PathBuf,
    bus: Option<Child>,
    logind: Option<Child>,
    systemd: Systemd,
}

/// An entry of ListInhibitors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inhibitor {
    pub what: String,
    pub who: String,
    pub why: String,
    pub mode: String,
    pub uid: u32,
    pub pid: u32,
}

/// A StartUnit call from logind.
#[derive(Clone, Debug)]
pub struct Started {
    pub unit: String,
    pub at: Instant,
}

impl Node {
    /// Starts the bus, the systemd stub and logind, and waits until all of them respond. `name` identifies the node
    /// in logs.
    pub fn start(name: &str) -> Node {
        let mut node = Node::without_logind(name);
        node.start_logind();
        node
    }

    /// Starts only the bus and the systemd stub.
    pub fn without_logind(name: &str) -> Node {
        let mut node = Node::without_bus(name);
        node.start_bus();
        node
    }

    /// Creates the directory. The systemd stub connects as soon as a bus is started.
    pub fn without_bus(name: &str) -> Node {
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let dir = Runtime::shared().dir.join("nodes").join(format!("{name}-{number}"));
        fs::create_dir_all(dir.join("logind.conf.d")).expect("directories");
        let systemd = Systemd::start(&format!("unix:path={}", dir.join("bus").display()));
        Node { dir, bus: None, logind: None, systemd }
    }

    /// Returns the value of DBUS_SYSTEM_BUS_ADDRESS.
    pub fn address(&self) -> String {
        format!("unix:path={}", self.dir.join("bus").display())
    }

    /// Returns the directory from which this logind reads its drop-ins.
    pub fn conf_dir(&self) -> PathBuf {
        self.dir.join("logind.conf.d")
    }

    /// Prepares an agent of this node on the shared runtime, without starting it. The bus address and `logindConfDir`
    /// are set; the test sets the rest of the configuration (`shutdownGracePeriod`, ...).
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

    /// Returns the slices that exist in the systemd stub, with the last value of each numeric property.
    pub fn slices(&self) -> BTreeMap<String, BTreeMap<String, u64>> {
        self.systemd.state().slices.clone()
    }

    // ---- processes

    pub fn start_bus(&mut self) {
        assert!(self.bus.is_none(), "the bus runs");
        self.bus = Some(self.spawn("bus"));
        wait("the bus answers", || self.connect().ok());
        wait("the systemd stub is on the bus", || self.owner(SYSTEMD));
    }

    /// Kills the bus with SIGKILL. logind exits when it loses the bus.
    pub fn kill_bus(&mut self) {
        end(&mut self.bus);
    }

    /// Sends SIGSTOP to the bus.
    pub fn pause_bus(&self) {
        signal(self.bus.as_ref().expect("the bus runs"), Signal::STOP);
    }

    /// Sends SIGCONT to the bus.
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

    /// Kills logind with SIGKILL.
    pub fn kill_logind(&mut self) {
        self.systemd.state().logind = None;
        end(&mut self.logind);
    }

    /// Sends SIGHUP to logind, so that it reads its configuration again.
    pub fn reload_logind(&self) {
        signal(self.logind.as_ref().expect("logind runs"), Signal::HUP);
    }

    /// Kills logind with SIGKILL and starts it again. The new process restores the locks.
    pub fn restart_logind(&mut self) {
        self.kill_logind();
        self.start_logind();
    }

    /// Removes the locks from disk, so that the next logind does not restore them. logind must not be running.
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

    // ---- queries to logind

    pub fn inhibitors(&self) -> Vec<Inhibitor> {
        type Line = (String, String, String, String, u32, u32);
        let reply = self.call(&manager("ListInhibitors"));
        let lines: Vec<Line> = reply.read1().expect("ListInhibitors");
        let inhibitor = |(what, who, why, mode, uid, pid)| Inhibitor { what, who, why, mode, uid, pid };
        lines.into_iter().map(inhibitor).collect()
    }

    /// Returns the number of locks that Wherry holds. One is expected.
    pub fn locks(&self) -> usize {
        let ours = |i: &Inhibitor| i.who == "wherry" && i.what == "shutdown" && i.mode == "delay";
        self.inhibitors().iter().filter(|i| ours(i)).count()
    }

    /// Returns the value of InhibitDelayMaxSec that logind uses.
    pub fn delay(&self) -> Duration {
        let value: Variant<u64> = self.call(&property("InhibitDelayMaxUSec")).read1().expect("a number");
        Duration::from_micros(value.0)
    }

    /// Returns the property PreparingForShutdown.
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

    /// Schedules a shutdown. `kind` is `poweroff`, `reboot`, ...
    pub fn schedule_shutdown(&self, kind: &str, after: Duration) {
        let at = SystemTime::now() + after;
        let at = at.duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_micros() as u64;
        self.call(&manager("ScheduleShutdown").append2(kind, at));
    }

    /// Cancels the scheduled shutdown. Returns true if there was one.
    pub fn cancel_scheduled_shutdown(&self) -> bool {
        self.call(&manager("CancelScheduledShutdown")).read1().expect("a bool")
    }

    /// Takes a delay lock in the name of `who`. The lock is held until the descriptor is dropped.
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

    // ---- the systemd stub

    pub fn started(&self) -> Vec<Started> {
        self.systemd.state().started.clone()
    }

    /// Waits until logind starts a unit, which means that it no longer waits for locks.
    pub fn wait_started(&self, unit: &str) -> Started {
        wait(&format!("logind starts {unit}"), || self.started().into_iter().find(|s| s.unit == unit))
    }

    /// Returns the number of times that logind was sent this signal through KillUnit.
    pub fn signals(&self, number: i32) -> usize {
        self.systemd.state().signals.iter().filter(|s| **s == number).count()
    }

    /// Sets the duration of the jobs of started units. When the job ends and the machine still runs, logind reports
    /// the end of the shutdown. None (the initial state): the job never ends.
    pub fn jobs_last(&self, how_long: Option<Duration>) {
        self.systemd.state().job = how_long.map_or(Job::Lasts, Job::Ends);
    }

    /// Makes systemd refuse to start units: logind cancels a shutdown as soon as the locks are released.
    pub fn refuse_jobs(&self) {
        self.systemd.state().job = Job::Refused;
    }

    // ---- the bus

    /// Connects to the bus and registers the connection.
    pub fn connect(&self) -> Result<Channel, dbus::Error> {
        // libdbus would block on a stopped bus.
        let mut channel = Channel::open_private(&self.address())?;
        channel.register()?;
        Ok(channel)
    }

    pub fn owner(&self, name: &str) -> Option<String> {
        let message = to(BUS, "/org/freedesktop/DBus", BUS, "GetNameOwner").append1(name);
        self.try_call(&message).ok()?.read1().ok()
    }

    /// Returns the unique names on the bus.
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

/// Polls until `look` returns a value. Panics on timeout.
pub fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let patience = patience(240);
    let end = Instant::now() + patience;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "timed out after {patience:?}: {what}");
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

/// Receives the PrepareForShutdown signals of logind.
pub struct Listener {
    channel: Channel,
}

impl Listener {
    /// Waits for the next PrepareForShutdown. Returns its argument and the time of arrival.
    pub fn next(&self) -> (bool, Instant) {
        wait("PrepareForShutdown", || self.poll(Duration::from_millis(10)))
    }

    /// Like `next`, but returns None if no signal arrives within `patience`.
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

// ---- the implementation of the systemd stub

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
    /// The numeric properties of each slice, by unit name.
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
                // `serve` returns when the connection to the bus is lost.
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
        // The bus is already stopped, so the thread ends soon.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Properties of a unit.
type ClientAnswer = Vec<(String, Variant<Box<dyn RefArg>>)>;

/// Returns the numeric properties.
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
            // logind reads a property of the unit before it starts the unit.
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
                    message.error(&"org.freedesktop.systemd1.UnitExists".into(), c"already exists")
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
