//! The bodies of `/healthz`, `/livez` and `/readyz`, in the format of the Kubernetes components.

use crate::adapters::server::routes::Page;
use crate::api::printable;
use crate::net::server::exchange::Response;

/// One health check and its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub name: &'static str,
    /// The reason for the failure; None if the check passes.
    pub failure: Option<String>,
}

/// Returns `ok`, or one line for each check if `verbose` is set or a check fails (status 500).
pub fn response<S>(page: Page, checks: &[Check], verbose: bool) -> Response<S> {
    let name = match page {
        Page::Livez => "livez",
        Page::Readyz => "readyz",
        _ => "healthz",
    };
    let failed = checks.iter().any(|c| c.failure.is_some());
    if !failed && !verbose {
        return Response::text(200, "ok");
    }
    let mut body = String::new();
    for check in checks {
        match &check.failure {
            None => body.push_str(&format!("[+]{} ok\n", check.name)),
            // Escape the text: it may come from the container runtime, and the client may print it on a terminal.
            Some(why) => body.push_str(&format!("[-]{} failed: {}\n", check.name, printable::line(why))),
        }
    }
    body.push_str(name);
    body.push_str(if failed { " check failed\n" } else { " check passed\n" });
    Response::text(if failed { 500 } else { 200 }, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::server::exchange::Body;

    #[test]
    fn a_failed_check_is_500_with_the_reason() {
        let ok = Check { name: "ping", failure: None };
        let bad = Check { name: "pleg", failure: Some("not yet relisted\n\x1b[2J".into()) };
        let shown = |page, checks: &[Check], verbose| match response::<()>(page, checks, verbose) {
            Response { status, body: Body::Full(text), .. } => (status, String::from_utf8(text.to_vec()).unwrap()),
            other => panic!("{other:?}"),
        };
        assert_eq!(shown(Page::Healthz, std::slice::from_ref(&ok), false), (200, "ok".to_owned()));
        let verbose = "[+]ping ok\nlivez check passed\n";
        assert_eq!(shown(Page::Livez, std::slice::from_ref(&ok), true), (200, verbose.to_owned()));
        let failed = "[+]ping ok\n[-]pleg failed: not yet relisted\\n\\x1b[2J\nreadyz check failed\n";
        assert_eq!(shown(Page::Readyz, &[ok, bad], false), (500, failed.to_owned()));
    }
}
