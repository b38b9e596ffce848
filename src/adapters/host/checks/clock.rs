//! Whether the clock can be believed. The kernel tells of its discipline only through adjtimex(2); the services that
//! discipline it leave a file, which is enough here.

use super::Roots;
use crate::api::finding::Finding;
use crate::api::time::Wall;

/// 2024-01-01T00:00:00Z in nanoseconds: older than this program is no clock's truth.
const OLDEST: i64 = 1_704_067_200 * 1_000_000_000;

/// systemd-timesyncd writes its file at the first synchronisation; the others leave one while they run.
const SYNCHRONISED: &str = "systemd/timesync/synchronized";
const AT_WORK: [(&str, &str); 4] =
    [("chronyd", "chrony/chronyd.pid"), ("chronyd", "chronyd.pid"), ("ntpd", "ntpd.pid"), ("openntpd", "openntpd.pid")];

pub(super) fn look(roots: &Roots, now: Wall) -> Finding {
    let time = jiff::Timestamp::from_second(now.0.div_euclid(1_000_000_000)).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    if now.0 < OLDEST {
        return Finding::error(
            "clock",
            format!("it says {time}: registries cannot be trusted (TLS), and times in logs are wrong"),
            "set it (date, hwclock), and have it synchronised (systemd-timesyncd, chrony)",
        );
    }
    if roots.run.join(SYNCHRONISED).exists() {
        return Finding::ok("clock", format!("{time}, synchronised by systemd-timesyncd"));
    }
    if let Some((name, _)) = AT_WORK.into_iter().find(|(_, file)| roots.run.join(file).exists()) {
        return Finding::ok("clock", format!("{time}, looked after by {name}"));
    }
    Finding::warning(
        "clock",
        format!("{time}, and nothing here says that it is synchronised"),
        "have systemd-timesyncd (timedatectl set-ntp true), chrony or ntpd run",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::finding::Level;
    use std::fs;

    #[test]
    fn a_clock_of_1970_is_an_error_and_one_that_nobody_looks_after_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots { run: dir.path().to_owned(), ..Roots::default() };
        let now = Wall(OLDEST + 5_000_000_000);
        let old = look(&roots, Wall(86_400_000_000_000));
        assert!(old.level == Level::Error && old.message.contains("1970-01-02T00:00:00Z"), "{old:?}");
        let alone = look(&roots, now);
        assert!(alone.level == Level::Warning && alone.message.starts_with("2024-01-01T00:00:05Z,"), "{alone:?}");
        fs::write(dir.path().join("ntpd.pid"), "7").unwrap();
        assert_eq!(look(&roots, now), Finding::ok("clock", "2024-01-01T00:00:05Z, looked after by ntpd"));
        fs::create_dir_all(dir.path().join("systemd/timesync")).unwrap();
        fs::write(dir.path().join(SYNCHRONISED), "").unwrap();
        assert!(look(&roots, now).message.ends_with("by systemd-timesyncd"));
    }
}
