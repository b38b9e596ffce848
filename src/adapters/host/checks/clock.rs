//! Checks whether the clock is plausible and synchronised. The kernel reports its synchronisation only through
//! adjtimex(2); the files of the time services are sufficient here.

use super::roots::Roots;
use crate::api::finding::Finding;
use crate::api::time::Wall;

/// 2024-01-01T00:00:00Z in nanoseconds. An earlier time must be wrong, because it is before the first version of this
/// program.
const OLDEST: i64 = 1_704_067_200 * 1_000_000_000;

/// systemd-timesyncd creates its file at the first synchronisation. The other services have a PID file while they run.
const SYNCHRONISED: &str = "systemd/timesync/synchronized";
const AT_WORK: [(&str, &str); 4] =
    [("chronyd", "chrony/chronyd.pid"), ("chronyd", "chronyd.pid"), ("ntpd", "ntpd.pid"), ("openntpd", "openntpd.pid")];

/// The clock of such a machine begins at the last time that a service has saved.
const NO_REAL_TIME_CLOCK: &str = " (there is no real-time clock: after a boot, the time is in the past until it is \
                                  synchronised)";

pub(super) fn inspect(roots: &Roots, now: Wall) -> Finding {
    let time = jiff::Timestamp::from_second(now.0.div_euclid(1_000_000_000)).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let at_boot = if has_real_time_clock(roots) { "" } else { NO_REAL_TIME_CLOCK };
    if now.0 < OLDEST {
        return Finding::error(
            "clock",
            format!("the time is {time}{at_boot}: TLS connections to registries fail, and times in logs are wrong"),
            "set the clock (date, hwclock) and synchronise it (systemd-timesyncd, chrony)",
        );
    }
    if roots.run.join(SYNCHRONISED).exists() {
        return Finding::ok("clock", format!("{time}, synchronised by systemd-timesyncd{at_boot}"));
    }
    if let Some((name, _)) = AT_WORK.into_iter().find(|(_, file)| roots.run.join(file).exists()) {
        return Finding::ok("clock", format!("{time}, {name} is running{at_boot}"));
    }
    Finding::warning(
        "clock",
        format!("{time}, not known to be synchronised{at_boot}"),
        "run systemd-timesyncd (timedatectl set-ntp true), chrony or ntpd",
    )
}

/// Reports whether the machine has a clock that goes on without power.
fn has_real_time_clock(roots: &Roots) -> bool {
    std::fs::read_dir(roots.sys.join("class/rtc")).is_ok_and(|mut clocks| clocks.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::super::roots::fake;
    use super::*;
    use crate::api::finding::Level;
    use std::fs;

    #[test]
    fn a_clock_in_1970_is_an_error_and_an_unsynchronized_clock_is_a_warning() {
        let (_dir, roots) = fake(&[("sys/class/rtc/rtc0/name", "rtc_cmos 00:00\n"), ("run/empty", "")]);
        let now = Wall(OLDEST + 5_000_000_000);
        let old = inspect(&roots, Wall(86_400_000_000_000));
        assert!(old.level == Level::Error && old.message.contains("1970-01-02T00:00:00Z"), "{old:?}");
        let alone = inspect(&roots, now);
        assert!(alone.level == Level::Warning && alone.message.starts_with("2024-01-01T00:00:05Z,"), "{alone:?}");
        fs::write(roots.run.join("ntpd.pid"), "7").unwrap();
        assert_eq!(inspect(&roots, now), Finding::ok("clock", "2024-01-01T00:00:05Z, ntpd is running"));
        fs::create_dir_all(roots.run.join("systemd/timesync")).unwrap();
        fs::write(roots.run.join(SYNCHRONISED), "").unwrap();
        assert!(inspect(&roots, now).message.ends_with("by systemd-timesyncd"));
    }

    #[test]
    fn a_missing_real_time_clock_is_told() {
        let (_dir, roots) = fake(&[("run/ntpd.pid", "7")]);
        let now = Wall(OLDEST + 5_000_000_000);
        let synchronised = inspect(&roots, now);
        assert_eq!(synchronised.level, Level::Ok);
        assert!(synchronised.message.contains("ntpd is running (there is no real-time clock"), "{synchronised:?}");
        // The directory exists without a clock if the kernel has the subsystem.
        fs::create_dir_all(roots.sys.join("class/rtc")).unwrap();
        assert!(inspect(&roots, now).message.contains("no real-time clock"));
        assert!(inspect(&roots, Wall(0)).message.contains("(there is no real-time clock"));
    }
}
