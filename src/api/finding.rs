//! The results of checking the machine: plain facts, one line each.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    Ok,
    /// Pods run, but some feature does not work fully.
    Warning,
    /// Some or all pods cannot run.
    Error,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warning => "warning",
            Level::Error => "error",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check, from a fixed list: `cgroups`, `runtime`, ...
    pub check: &'static str,
    pub level: Level,
    /// The result, in one line.
    pub message: String,
    /// The recommended action, if one is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    pub fn ok(check: &'static str, message: impl Into<String>) -> Finding {
        Finding { check, level: Level::Ok, message: message.into(), remedy: None }
    }

    pub fn warning(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { check, level: Level::Warning, message: message.into(), remedy: Some(remedy.into()) }
    }

    pub fn error(check: &'static str, message: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { check, level: Level::Error, message: message.into(), remedy: Some(remedy.into()) }
    }
}

/// Number of findings per level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    pub ok: usize,
    pub warnings: usize,
    pub errors: usize,
}

impl Count {
    pub fn add(&mut self, level: Level) {
        match level {
            Level::Ok => self.ok += 1,
            Level::Warning => self.warnings += 1,
            Level::Error => self.errors += 1,
        }
    }

    pub fn of(findings: &[Finding]) -> Count {
        findings.iter().fold(Count::default(), |mut count, f| {
            count.add(f.level);
            count
        })
    }
}

impl std::fmt::Display for Count {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        write!(f, "{} ok, {}, {}", self.ok, plural(self.warnings, "warning"), plural(self.errors, "error"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_counted_by_level() {
        let all = [Finding::ok("a", "x"), Finding::warning("b", "x", "y"), Finding::ok("c", "x")];
        let count = Count::of(&all);
        assert_eq!(count, Count { ok: 2, warnings: 1, errors: 0 });
        assert_eq!(count.to_string(), "2 ok, 1 warning, 0 errors");
        let json = serde_json::to_value(&all[1]).unwrap();
        assert_eq!(json, serde_json::json!({"check": "b", "level": "warning", "message": "x", "remedy": "y"}));
    }
}
