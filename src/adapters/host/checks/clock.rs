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

pub(super) fn inspect(roots: &Roots, now: Wall) -> Finding {
    let time = jiff::Timestamp::from_second(now.0.div_euclid(1_000_000_000)).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    if now.0 < OLDEST {
        return Finding::error(
            "clock",
            format!("the time is {time}: TLS connections to registries fail, and times in logs are wrong"),
            "set the clock (date, hwclock) and synchronise it (systemd-timesyncd, chrony)",
        );
    }
    if roots.run.join(SYNCHRONISED).exists() {
        return Finding::ok("clock", format!("{time}, synchronised by systemd-timesyncd"));
    }
    if let Some((name, _)) = AT_WORK.into_iter().find(|(_, file)| roots.run.join(file).exists()) {
        return Finding::ok("clock", format!("{time}, {name} is running"));
    }
    Finding::warning(
        "clock",
        format!("{time}, not known to be synchronised"),
        "run systemd-timesyncd (timedatectl set-ntp true), chrony or ntpd",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::finding::Level;
    use std::fs;

    #[test]
    fn a_clock_in_1970_is_an_error_and_an_unsynchronized_clock_is_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots { run: dir.path().to_owned(), ..Roots::default() };
        let now = Wall(OLDEST + 5_000_000_000);
        let old = inspect(&roots, Wall(86_400_000_000_000));
        assert!(old.level == Level::Error && old.message.contains("1970-01-02T00:00:00Z"), "{old:?}");
        let alone = inspect(&roots, now);
        assert!(alone.level == Level::Warning && alone.message.starts_with("2024-01-01T00:00:05Z,"), "{alone:?}");
        fs::write(dir.path().join("ntpd.pid"), "7").unwrap();
        assert_eq!(inspect(&roots, now), Finding::ok("clock", "2024-01-01T00:00:05Z, ntpd is running"));
        fs::create_dir_all(dir.path().join("systemd/timesync")).unwrap();
        fs::write(dir.path().join(SYNCHRONISED), "").unwrap();
        assert!(inspect(&roots, now).message.ends_with("by systemd-timesyncd"));
    }
}
