//! Builds the messages for the bus and logind, and parses replies and signals. Sends nothing.

use super::super::reply::{BUS, BUS_PATH, Made, SYSTEMD, SYSTEMD_MANAGER, SYSTEMD_PATH, fine, only, to_bus};
use crate::engine::effect::LogindCall;
use crate::engine::event::{Answer, LogindEvent};
use crate::engine::op::OpError;
use dbus::Message;
use dbus::arg::Variant;
use dbus::strings::BusName;
use std::os::fd::OwnedFd;
use std::time::Duration;

pub(super) const LOGIND: &str = "org.freedesktop.login1";
const LOGIND_PATH: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";
/// The interface of signals that libdbus generates locally about a connection.
const LOCAL: &str = "org.freedesktop.DBus.Local";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// The `who` of Wherry's inhibitor lock.
pub const WHO: &str = "wherry";
const WHAT: &str = "shutdown";
const WHY: &str = "pods are stopped in order";
const MODE: &str = "delay";

/// systemd's value for an infinite time in microseconds.
const INFINITY: u64 = u64::MAX;

/// Subscribes to changes in who owns logind's bus name.
pub(super) fn match_owner() -> Made {
    let rule = format!(
        "type='signal',sender='{BUS}',path='{BUS_PATH}',interface='{BUS}',member='NameOwnerChanged',arg0='{LOGIND}'"
    );
    Ok(to_bus("AddMatch")?.append1(rule))
}

pub(super) fn get_owner() -> Made {
    Ok(to_bus("GetNameOwner")?.append1(LOGIND))
}

/// Asks the bus to start logind.
pub(super) fn start_logind() -> Made {
    Ok(to_bus("StartServiceByName")?.append2(LOGIND, 0u32))
}

/// Builds the message of a call. `logind` is the unique name of the current logind, so that no other process can
/// answer.
pub(super) fn request(call: &LogindCall, logind: &str) -> Made {
    let manager = |interface: &'static str, member: &'static str| {
        let destination = BusName::new(logind)?;
        Message::new_method_call(destination, LOGIND_PATH, interface, member)
    };
    let property = |name: &'static str| Ok(manager(PROPERTIES, "Get")?.append2(MANAGER, name));
    match call {
        LogindCall::ReadDelay => property("InhibitDelayMaxUSec"),
        LogindCall::ReadPreparing => property("PreparingForShutdown"),
        LogindCall::Reload => {
            let message = Message::new_method_call(SYSTEMD, SYSTEMD_PATH, SYSTEMD_MANAGER, "KillUnit")?;
            Ok(message.append3("systemd-logind.service", "all", SIGHUP))
        }
        LogindCall::Inhibit => {
            let mut message = manager(MANAGER, "Inhibit")?;
            message.append_all((WHAT, WHO, WHY, MODE));
            Ok(message)
        }
        LogindCall::Subscribe => {
            let rule = format!(
                "type='signal',sender='{LOGIND}',path='{LOGIND_PATH}',interface='{MANAGER}',member='PrepareForShutdown'"
            );
            Ok(to_bus("AddMatch")?.append1(rule))
        }
        LogindCall::ListInhibitors => manager(MANAGER, "ListInhibitors"),
        LogindCall::WriteDropIn { .. } | LogindCall::LowerDropIn { .. } => {
            Err("a drop-in is written to disk, not sent over the bus".to_owned())
        }
    }
}

const SIGHUP: i32 = 1;

/// A parsed answer. `Takers` contains the pids of the processes that took a lock like ours.
// Only one value exists at a time, and it is moved once.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(super) enum Answered {
    Plain(Answer),
    Lock(OwnedFd),
    Takers(Vec<u32>),
}

/// Parses the answer to a call. `uid` is the effective uid of this process.
pub(super) fn answer(call: &LogindCall, reply: &Message, uid: u32) -> Result<Answered, OpError> {
    fine(reply)?;
    let wrong = |why: String| OpError::Unknown(format!("invalid response to {call:?}: {why}"));
    let plain = match call {
        LogindCall::ReadDelay => Answer::Delay(delay(only::<Variant<u64>>(reply).map_err(wrong)?.0)),
        LogindCall::ReadPreparing => Answer::Preparing(only::<Variant<bool>>(reply).map_err(wrong)?.0),
        LogindCall::Inhibit => return only(reply).map(Answered::Lock).map_err(wrong),
        LogindCall::ListInhibitors => {
            let list: Vec<Inhibitor> = only(reply).map_err(wrong)?;
            return Ok(Answered::Takers(list.iter().filter(|i| is_like_ours(i, uid)).map(|i| i.5).collect()));
        }
        LogindCall::Reload | LogindCall::Subscribe => Answer::Ok,
        LogindCall::WriteDropIn { .. } | LogindCall::LowerDropIn { .. } => Answer::Ok,
    };
    Ok(Answered::Plain(plain))
}

/// An entry of ListInhibitors: what, who, why, mode, uid, pid.
type Inhibitor = (String, String, String, String, u32, u32);

/// Reports whether a Wherry with the same uid took the lock. The pid identifies the process (`Lock::is_among`).
fn is_like_ours((what, who, _, mode, uid, _): &Inhibitor, our_uid: u32) -> bool {
    what.split(':').any(|w| w == WHAT) && who == WHO && mode == MODE && *uid == our_uid
}

fn delay(microseconds: u64) -> Duration {
    if microseconds == INFINITY { Duration::MAX } else { Duration::from_micros(microseconds) }
}

/// A parsed signal.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BusSignal {
    /// The new unique name of logind; None if logind left the bus.
    Owner(Option<String>),
    Event(LogindEvent),
    /// An irrelevant signal.
    Other,
    /// A forged, malformed or unexpected signal. Contains a description for the log, which is the same for all signals
    /// of this kind.
    Strange(&'static str),
}

/// Parses a signal. `logind` is logind's unique name: a PrepareForShutdown from any other sender is rejected.
pub(super) fn signal(message: &Message, logind: Option<&str>) -> BusSignal {
    let (sender, interface, member) = (message.sender(), message.interface(), message.member());
    let (interface, member) = (interface.as_deref().unwrap_or(""), member.as_deref().unwrap_or(""));
    let sender = sender.as_deref().unwrap_or("");
    match (interface, member) {
        (LOCAL, _) | (BUS, "NameAcquired" | "NameLost") => BusSignal::Other,
        (BUS, "NameOwnerChanged") if sender == BUS => match message.read3::<&str, &str, &str>() {
            Ok((LOGIND, _, "")) => BusSignal::Owner(None),
            Ok((LOGIND, _, new)) => BusSignal::Owner(Some(new.to_owned())),
            Ok(_) => BusSignal::Other,
            Err(_) => BusSignal::Strange("NameOwnerChanged with a wrong signature"),
        },
        (_, "PrepareForShutdown") => {
            if logind.is_none_or(|logind| logind != sender) {
                return BusSignal::Strange("PrepareForShutdown not sent by logind");
            }
            if interface != MANAGER || message.path().as_deref() != Some(LOGIND_PATH) {
                return BusSignal::Strange("PrepareForShutdown of the wrong interface or object");
            }
            match only::<bool>(message) {
                Ok(begins) => BusSignal::Event(LogindEvent::Preparing(begins)),
                Err(_) => BusSignal::Strange("PrepareForShutdown with a wrong signature"),
            }
        }
        _ => BusSignal::Strange("unexpected signal"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::reply::hello;
    use super::*;
    use crate::engine::op::Code;

    const US: u32 = 0;

    fn reply() -> Message {
        let mut call = hello().unwrap();
        call.set_serial(7);
        call.method_return()
    }

    fn read(call: &LogindCall, reply: &Message) -> Result<Answer, OpError> {
        match answer(call, reply, US)? {
            Answered::Plain(answer) => Ok(answer),
            Answered::Lock(_) | Answered::Takers(_) => panic!("a lock, or a list"),
        }
    }

    fn failed(name: &str, text: &str) -> OpError {
        let mut call = hello().unwrap();
        call.set_serial(7);
        let text = std::ffi::CString::new(text).unwrap();
        read(&LogindCall::Inhibit, &call.error(&name.into(), &text)).unwrap_err()
    }

    #[test]
    fn s2_the_delay_is_microseconds_and_may_be_infinite() {
        let delay = |us: u64| read(&LogindCall::ReadDelay, &reply().append1(Variant(us)));
        assert_eq!(delay(5_000_000), Ok(Answer::Delay(Duration::from_secs(5))));
        assert_eq!(delay(0), Ok(Answer::Delay(Duration::ZERO)));
        assert_eq!(delay(u64::MAX), Ok(Answer::Delay(Duration::MAX)));
        for wrong in
            [reply(), reply().append1(5u64), reply().append1(Variant("5")), reply().append2(Variant(5u64), 1u8)]
        {
            let error = read(&LogindCall::ReadDelay, &wrong).unwrap_err();
            assert!(matches!(&error, OpError::Unknown(m) if m.contains("invalid response")), "{error:?}");
        }
    }

    #[test]
    fn s7_a_lock_is_recognized_by_what_who_mode_and_uid() {
        let lock = |what: &str, who: &str, mode: &str, uid: u32| {
            (what.to_owned(), who.to_owned(), "x".to_owned(), mode.to_owned(), uid, 99u32)
        };
        let found = |list: Vec<Inhibitor>| match answer(&LogindCall::ListInhibitors, &reply().append1(list), US) {
            Ok(Answered::Takers(pids)) => pids,
            other => panic!("{other:?}"),
        };
        let others = vec![
            lock("sleep", "wherry", "delay", US),
            lock("shutdown", "kubelet", "delay", US),
            lock("shutdown", "wherry", "block", US),
            lock("shutdown", "wherry", "delay", 1000),
            lock("noshutdown", "wherry", "delay", US),
        ];
        assert_eq!(found(vec![]), [0; 0]);
        assert_eq!(found(others.clone()), [0; 0]);
        let ours = [others, vec![lock("sleep:shutdown", "wherry", "delay", US)]].concat();
        assert_eq!(found(ours), [99]);
    }

    #[test]
    fn an_error_has_its_name_and_text_and_the_kind_that_is_decided_on() {
        let answered = |code, message: &str| OpError::Answered { code, message: message.to_owned() };
        assert_eq!(
            failed("org.freedesktop.login1.OperationInProgress", "already running"),
            answered(Code::FailedPrecondition, "already running (org.freedesktop.login1.OperationInProgress)"),
        );
        assert_eq!(
            failed("org.freedesktop.DBus.Error.AccessDenied", "no"),
            answered(Code::Other(7), "no (org.freedesktop.DBus.Error.AccessDenied)"),
        );
        assert_eq!(failed("com.example.Odd", ""), answered(Code::Other(2), "com.example.Odd"));
        assert!(matches!(failed("org.freedesktop.DBus.Error.NoReply", "gone"), OpError::Unknown(_)));
        assert!(failed("org.freedesktop.DBus.Error.ServiceUnknown", "gone").is_not_found());
    }

    fn prepare(sender: &str) -> Message {
        let mut message = Message::new_signal(LOGIND_PATH, MANAGER, "PrepareForShutdown").unwrap();
        message.set_sender(Some(sender.to_owned().into()));
        message
    }

    #[test]
    fn s4_only_a_signal_from_logind_announces_a_shutdown() {
        let told = |message: &Message| signal(message, Some(":1.5"));
        assert_eq!(told(&prepare(":1.5").append1(true)), BusSignal::Event(LogindEvent::Preparing(true)));
        assert_eq!(told(&prepare(":1.5").append1(false)), BusSignal::Event(LogindEvent::Preparing(false)));
        let strange = |signal| assert!(matches!(signal, BusSignal::Strange(_)), "{signal:?}");
        for other in [prepare(":1.6").append1(true), prepare(LOGIND).append1(true)] {
            strange(told(&other));
        }
        strange(signal(&prepare(":1.5").append1(true), None));
        for wrong in [prepare(":1.5"), prepare(":1.5").append1(1u32), prepare(":1.5").append2(true, true)] {
            strange(told(&wrong));
        }
        for (path, interface) in [("/", MANAGER), (LOGIND_PATH, "org.freedesktop.login1.User")] {
            let mut message = Message::new_signal(path, interface, "PrepareForShutdown").unwrap().append1(true);
            message.set_sender(Some(":1.5".into()));
            strange(told(&message));
        }
        let mut sleep = Message::new_signal(LOGIND_PATH, MANAGER, "PrepareForSleep").unwrap().append1(true);
        sleep.set_sender(Some(":1.5".into()));
        strange(told(&sleep));
    }

    #[test]
    fn s7_only_a_signal_from_the_bus_reports_a_new_owner_of_loginds_name() {
        let changed = |sender: &str, name: &str, new: &str| {
            let mut message =
                Message::new_signal(BUS_PATH, BUS, "NameOwnerChanged").unwrap().append3(name, ":1.4", new);
            message.set_sender(Some(sender.to_owned().into()));
            signal(&message, Some(":1.4"))
        };
        assert_eq!(changed(BUS, LOGIND, ""), BusSignal::Owner(None));
        assert_eq!(changed(BUS, LOGIND, ":1.9"), BusSignal::Owner(Some(":1.9".into())));
        assert_eq!(changed(BUS, "org.example", ":1.9"), BusSignal::Other);
        assert!(matches!(changed(":1.9", LOGIND, ":1.9"), BusSignal::Strange(_)));
    }

    #[test]
    fn every_call_of_the_bus_can_be_made() {
        for call in [
            LogindCall::ReadDelay,
            LogindCall::Reload,
            LogindCall::Inhibit,
            LogindCall::Subscribe,
            LogindCall::ReadPreparing,
            LogindCall::ListInhibitors,
        ] {
            assert!(request(&call, ":1.5").is_ok(), "{call:?}");
        }
        assert!(request(&LogindCall::ReadDelay, "not a name").is_err());
        assert!(request(&LogindCall::WriteDropIn { delay: Duration::ZERO }, ":1.5").is_err());
    }
}
