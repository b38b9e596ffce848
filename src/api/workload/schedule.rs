//! The schedule of a CronJob: the times of a crontab, or one interval. The syntax, and the times around a change of
//! daylight-saving time, are those of robfig/cron v3, which the controller of a cluster uses.

use crate::api::duration;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};
use std::time::Duration;

/// A schedule without a time within these years has none. The 29th of February is at most eight years away.
const YEARS: i16 = 8;
const DAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
/// The names of common schedules.
const NAMED: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    Times(Crontab),
    /// Whole seconds, at least one.
    Every(Duration),
}

/// The times of a crontab. Each set has a bit for each number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crontab {
    minutes: u64,
    hours: u64,
    days: DaySet,
    months: u64,
}

/// The days on which a crontab is due.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DaySet {
    of_month: u64,
    of_week: u64,
    /// One of the two fields begins with a star: a day must be in both. Otherwise it must be in one.
    both: bool,
}

/// A field of a crontab.
struct Field {
    name: &'static str,
    least: u32,
    most: u32,
    names: &'static [&'static str],
    /// The number of the first name.
    first: u32,
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", least: 0, most: 59, names: &[], first: 0 },
    Field { name: "hour", least: 0, most: 23, names: &[], first: 0 },
    Field { name: "day of the month", least: 1, most: 31, names: &[], first: 0 },
    Field { name: "month", least: 1, most: 12, names: &MONTHS, first: 1 },
    Field { name: "day of the week", least: 0, most: 6, names: &DAYS, first: 0 },
];

impl Schedule {
    /// Parses `30 6 * * mon-fri`, `@daily` or `@every 1h30m`.
    ///
    /// # Errors
    /// The text says what is wrong, and what is expected.
    pub fn parse(text: &str) -> Result<Schedule, String> {
        let text = text.trim();
        if let Some(interval) = text.strip_prefix("@every ") {
            let interval = duration::parse(interval.trim()).map_err(|why| format!("@every: {why}"))?;
            return Ok(Schedule::Every(Duration::from_secs(interval.as_secs().max(1))));
        }
        if text.starts_with('@') {
            let named = NAMED.iter().find(|(name, _)| *name == text);
            let Some((_, fields)) = named else {
                let names: Vec<&str> = NAMED.iter().map(|(name, _)| *name).collect();
                return Err(format!("unknown name; use {}, @every, or five fields", names.join(", ")));
            };
            return Crontab::parse(fields).map(Schedule::Times);
        }
        Crontab::parse(text).map(Schedule::Times)
    }

    /// Returns the first time after `after`. None: there is none.
    pub fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Schedule::Times(times) => times.next(after, zone),
            Schedule::Every(interval) => {
                let second = Timestamp::from_second(after.as_second()).ok()?;
                second.checked_add(*interval).ok()
            }
        }
    }

    /// Returns the last time after `after` and not after `now`.
    pub fn last(&self, after: Timestamp, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let first = self.next(after, zone).filter(|first| *first <= now)?;
        match self {
            Schedule::Every(interval) => {
                let interval = i64::try_from(interval.as_secs()).ok()?;
                let elapsed = now.as_second() - first.as_second();
                Timestamp::from_second(now.as_second() - elapsed % interval).ok()
            }
            Schedule::Times(_) => self.bisect(first, now, zone),
        }
    }

    /// Returns the last time from `first`, which is one, to `now`: a time follows a moment within the span exactly if
    /// the moment is before the last one.
    fn bisect(&self, first: Timestamp, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let (mut last, mut end) = (first, now.as_second());
        while end > last.as_second() {
            let middle = Timestamp::from_second(last.as_second() + (end - last.as_second()) / 2).ok()?;
            match self.next(middle, zone).filter(|next| *next <= now) {
                Some(next) => last = next,
                None => end = middle.as_second(),
            }
        }
        Some(last)
    }
}

impl Crontab {
    fn parse(text: &str) -> Result<Crontab, String> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, week] = fields[..] else {
            let count = fields.len();
            return Err(format!("expected five fields (minute, hour, day, month, weekday), found {count}"));
        };
        let [of_minutes, of_hours, of_days, of_months, of_week] = &FIELDS;
        let ((of_month, all_days), (of_week, all_week)) = (of_days.set(days)?, of_week.set(week)?);
        Ok(Crontab {
            minutes: of_minutes.set(minutes)?.0,
            hours: of_hours.set(hours)?.0,
            days: DaySet { of_month, of_week, both: all_days || all_week },
            months: of_months.set(months)?.0,
        })
    }

    fn next(&self, after: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let minute = after.as_second().div_euclid(60) + 1;
        let mut at = Timestamp::from_second(minute * 60).ok()?.to_zoned(zone.clone());
        let end = at.year() + YEARS;
        while at.year() <= end {
            if !has(self.months, at.month()) {
                let month = at.date().first_of_month().checked_add(1.month()).ok()?;
                at = start_of(month, zone)?;
            } else if !self.days.contains(at.date()) {
                at = start_of(at.date().tomorrow().ok()?, zone)?;
            } else if !has(self.hours, at.hour()) {
                at = at.checked_add((60 - i64::from(at.minute())).minutes()).ok()?;
            } else if !has(self.minutes, at.minute()) {
                at = at.checked_add(self.to_minute(at.minute()).minutes()).ok()?;
            } else {
                return Some(at.timestamp());
            }
        }
        None
    }

    /// Returns the number of minutes to the next minute that is due, or to the end of the hour.
    fn to_minute(&self, now: i8) -> i64 {
        let next = (now..60).find(|minute| has(self.minutes, *minute)).unwrap_or(60);
        i64::from(next - now)
    }
}

impl DaySet {
    fn contains(&self, day: Date) -> bool {
        let of_month = has(self.of_month, day.day());
        let of_week = has(self.of_week, day.weekday().to_sunday_zero_offset());
        if self.both { of_month && of_week } else { of_month || of_week }
    }
}

impl Field {
    /// Returns the numbers of a comma-separated list, and whether one of its parts is a star.
    fn set(&self, text: &str) -> Result<(u64, bool), String> {
        let wrong = |why: String| format!("{}: {why}", self.name);
        let (mut set, mut is_star) = (0, false);
        for part in text.split(',') {
            let (numbers, star) = self.part(part).map_err(wrong)?;
            set |= numbers;
            is_star |= star;
        }
        Ok((set, is_star))
    }

    /// Parses `*`, `?`, `NUMBER`, `FROM-TO`, each with an optional `/STEP`.
    fn part(&self, text: &str) -> Result<(u64, bool), String> {
        let (range, step) = match text.split_once('/') {
            None => (text, None),
            Some((range, step)) => {
                let number = step.parse::<u32>().ok().filter(|step| *step > 0);
                (range, Some(number.ok_or_else(|| format!("the step {step:?} is not a positive number"))?))
            }
        };
        let is_star = matches!(range, "*" | "?");
        let (from, to) = match range.split_once('-') {
            _ if is_star => (self.least, self.most),
            Some((from, to)) => (self.number(from)?, self.number(to)?),
            None => {
                let number = self.number(range)?;
                (number, if step.is_some() { self.most } else { number })
            }
        };
        if from > to {
            return Err(format!("the range {range:?} ends before it begins"));
        }
        let step = step.unwrap_or(1);
        let numbers = (from..=to).step_by(usize::try_from(step).unwrap_or(usize::MAX));
        // As in a cluster, a star with a step does not count as a star.
        Ok((numbers.fold(0, |set, number| set | 1 << number), is_star && step == 1))
    }

    fn number(&self, text: &str) -> Result<u32, String> {
        let lower = text.to_ascii_lowercase();
        let named = self.names.iter().zip(self.first..).find(|(name, _)| **name == lower);
        let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = named.map(|(_, number)| number).or_else(|| text.parse().ok().filter(|_| is_number));
        let number = number.ok_or_else(|| format!("{text:?} is not a number"))?;
        if (self.least..=self.most).contains(&number) {
            return Ok(number);
        }
        Err(format!("{number} is not from {} to {}", self.least, self.most))
    }
}

fn has(set: u64, number: i8) -> bool {
    u32::try_from(number).is_ok_and(|number| set & 1 << number != 0)
}

/// Returns the first moment of a day.
fn start_of(day: Date, zone: &TimeZone) -> Option<Zoned> {
    day.to_zoned(zone.clone()).ok()?.start_of_day().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A zone with the rules of Berlin.
    fn berlin() -> TimeZone {
        TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").expect("a time zone")
    }

    fn schedule(text: &str) -> Schedule {
        Schedule::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    /// The next times after a time, in the zone.
    fn times(text: &str, after: &str, zone: &TimeZone, number: usize) -> Vec<String> {
        let (schedule, mut at) = (schedule(text), after.parse().expect("a time"));
        let mut times = Vec::new();
        for _ in 0..number {
            let Some(next) = schedule.next(at, zone) else { break };
            at = next;
            times.push(at.to_zoned(zone.clone()).strftime("%d.%m. %H:%M").to_string());
        }
        times
    }

    fn utc(text: &str, number: usize) -> Vec<String> {
        times(text, "2026-01-30T22:10:30Z", &TimeZone::UTC, number)
    }

    #[test]
    fn times_of_a_crontab() {
        for (text, expected) in [
            ("* * * * *", ["30.01. 22:11", "30.01. 22:12", "30.01. 22:13"]),
            ("*/20 * * * *", ["30.01. 22:20", "30.01. 22:40", "30.01. 23:00"]),
            ("5/30 23 * * *", ["30.01. 23:05", "30.01. 23:35", "31.01. 23:05"]),
            ("0,30 8-9 * * mon", ["02.02. 08:00", "02.02. 08:30", "02.02. 09:00"]),
            ("0 0 31 * *", ["31.01. 00:00", "31.03. 00:00", "31.05. 00:00"]),
            ("0 12 29 feb ?", ["29.02. 12:00", "29.02. 12:00", "29.02. 12:00"]),
            ("@weekly", ["01.02. 00:00", "08.02. 00:00", "15.02. 00:00"]),
            ("@yearly", ["01.01. 00:00", "01.01. 00:00", "01.01. 00:00"]),
            ("@every 90m", ["30.01. 23:40", "31.01. 01:10", "31.01. 02:40"]),
        ] {
            assert_eq!(utc(text, 3), expected, "{text}");
        }
        assert_eq!(utc("0 0 30 2 *", 1), [""; 0], "the day does not exist");
    }

    #[test]
    fn a_day_must_be_in_one_of_two_fields_or_in_both_if_one_is_a_star() {
        // The 13th, and each Friday.
        assert_eq!(utc("0 0 13 * fri", 3), ["06.02. 00:00", "13.02. 00:00", "20.02. 00:00"]);
        assert_eq!(utc("0 0 13 * *", 2), ["13.02. 00:00", "13.03. 00:00"]);
        // A star with a step is a list of days.
        assert_eq!(utc("0 0 */31 * fri", 2), ["01.02. 00:00", "06.02. 00:00"]);
    }

    #[test]
    fn an_hour_that_the_clock_skips_has_no_times_and_one_that_it_repeats_has_them_twice() {
        let of = |text, after, number| times(text, after, &berlin(), number);
        let spring = "2026-03-28T12:00:00Z";
        assert_eq!(of("30 2 * * *", spring, 2), ["30.03. 02:30", "31.03. 02:30"]);
        assert_eq!(of("0 3 * * *", spring, 2), ["29.03. 03:00", "30.03. 03:00"]);
        assert_eq!(of("30 2 * * *", "2026-10-24T12:00:00Z", 3), ["25.10. 02:30", "25.10. 02:30", "26.10. 02:30"]);
        assert_eq!(of("0 0 * * *", spring, 2), ["29.03. 00:00", "30.03. 00:00"]);
    }

    #[test]
    fn the_last_time_is_the_one_before_the_next() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let since = at("2020-02-29T12:00:00Z");
        for (text, now, expected) in [
            ("* * * * *", "2026-01-30T22:10:30Z", Some("2026-01-30T22:10:00Z")),
            ("30 6 * * mon-fri", "2026-02-02T05:00:00Z", Some("2026-01-30T06:30:00Z")),
            ("0 0 29 2 *", "2026-02-02T05:00:00Z", Some("2024-02-29T00:00:00Z")),
            ("0 0 29 2 *", "2024-02-28T05:00:00Z", None),
            ("0 0 30 2 *", "2026-02-02T05:00:00Z", None),
            ("@every 7h", "2020-03-01T12:00:00Z", Some("2020-03-01T09:00:00Z")),
        ] {
            let last = schedule(text).last(since, at(now), &TimeZone::UTC);
            assert_eq!(last.map(|last| last.to_string()).as_deref(), expected, "{text}");
        }
        let every_minute = schedule("* * * * *");
        let now = at("2026-01-30T22:10:00Z");
        assert_eq!(every_minute.last(at("2026-01-30T22:09:59Z"), now, &TimeZone::UTC), Some(now));
        assert_eq!(every_minute.last(now, now, &TimeZone::UTC), None);
    }

    #[test]
    fn an_error_says_which_field_is_wrong() {
        for (text, why) in [
            ("", "found 0"),
            ("* * * *", "expected five fields (minute, hour, day, month, weekday), found 4"),
            ("60 * * * *", "minute: 60 is not from 0 to 59"),
            ("* * 0 * *", "day of the month: 0 is not from 1 to 31"),
            ("* * * * 7", "day of the week: 7 is not from 0 to 6"),
            ("* 9-5 * * *", "hour: the range \"9-5\" ends before it begins"),
            ("*/0 * * * *", "minute: the step \"0\" is not a positive number"),
            ("* * * jnu *", "month: \"jnu\" is not a number"),
            ("1,,2 * * * *", "minute: \"\" is not a number"),
            ("+1 * * * *", "minute: \"+1\" is not a number"),
            ("99999999999 * * * *", "is not a number"),
            ("@fortnightly", "unknown name; use @yearly,"),
            ("@every x", "@every: \"x\" is not a duration"),
        ] {
            let error = Schedule::parse(text).expect_err(text);
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
