//! `wherry kubeconfig list`: lists the issued client certificates.

use crate::adapters::pki::{self, IssuedClient, Revocation};
use crate::commands::output::{Failure, document, print_message};
use crate::commands::screen::Screen;
use crate::commands::table::Table;
use crate::config::Config;
use jiff::Timestamp;
use serde_json::json;
use std::io::Write;

pub(super) fn run(out: &mut dyn Write, config: &Config, json: bool) -> Result<u8, Failure> {
    let directory = pki::directory(&config.root_dir);
    let (clients, damaged) = pki::clients(&directory).map_err(Failure::message)?;
    let revoked = pki::revocations(&directory).map_err(Failure::message)?;
    for problem in &damaged {
        print_message(&format!("{problem}; its certificate cannot be listed or revoked"));
    }
    show(out, &clients, &revoked, Timestamp::now(), json)?;
    out.flush()?;
    // The list is incomplete if records are damaged.
    Ok(u8::from(!damaged.is_empty()))
}

fn show(
    out: &mut dyn Write,
    clients: &[IssuedClient],
    revoked: &[Revocation],
    now: Timestamp,
    json: bool,
) -> Result<(), Failure> {
    let revocation = |c: &IssuedClient| revoked.iter().find(|r| r.serial == c.serial).map(|r| r.revoked);
    if json {
        let items: Vec<_> = clients
            .iter()
            .map(|c| {
                json!({
                    "name": c.name,
                    "role": c.role.name(),
                    "serial": c.serial,
                    "issued": c.issued.to_string(),
                    "expires": c.expires.to_string(),
                    "expired": now > c.expires,
                    "revoked": revocation(c).map(|t| t.to_string()),
                })
            })
            .collect();
        return document(out, &json!({ "clients": items }), false);
    }
    if clients.is_empty() {
        print_message("no client certificate has been issued; `wherry kubeconfig` issues one");
        return Ok(());
    }
    let rows: Vec<[String; 6]> = clients
        .iter()
        .map(|c| {
            let expired = if now > c.expires { " (expired)" } else { "" };
            [
                c.name.clone(),
                c.role.name().to_owned(),
                c.serial.clone(),
                format!("{:.0}", c.issued),
                format!("{:.0}{expired}", c.expires),
                revocation(c).map_or_else(|| "-".to_owned(), |t| format!("{t:.0}")),
            ]
        })
        .collect();
    let rows: Vec<&[String]> = rows.iter().map(<[String; 6]>::as_slice).collect();
    let mut table = Table::new(&["NAME", "ROLE", "SERIAL", "ISSUED", "EXPIRES", "REVOKED"]).on(
        Screen::stdout(),
        &["NAME"],
        |_, _| None,
    );
    table.print(out, true, &rows)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::pki::Role;

    #[test]
    fn the_state_of_each_certificate_is_shown() {
        let time = |text: &str| text.parse::<Timestamp>().unwrap();
        let client = |name: &str, role, serial: &str, expires: &str| IssuedClient {
            name: name.into(),
            role,
            serial: serial.into(),
            issued: time("2026-11-24T12:00:00Z"),
            expires: time(expires),
        };
        let clients = [
            client("ann", Role::Edit, "4a", "2027-11-24T12:00:00Z"),
            client("ci\x1b[2J", Role::View, "4b", "2026-11-24T13:00:00Z"),
        ];
        let revoked = [Revocation {
            serial: "4a".into(),
            name: "ann".into(),
            revoked: time("2026-11-25T00:00:00Z"),
            expires: clients[0].expires,
        }];
        let shown = |at: &str, json| {
            let mut out = Vec::new();
            show(&mut out, &clients, &revoked, time(at), json).unwrap();
            String::from_utf8(out).unwrap()
        };
        let rows = [
            "NAME        ROLE   SERIAL   ISSUED                 EXPIRES                          REVOKED",
            "ann         edit   4a       2026-11-24T12:00:00Z   2027-11-24T12:00:00Z             2026-11-25T00:00:00Z",
            "ci\\x1b[2J   view   4b       2026-11-24T12:00:00Z   2026-11-24T13:00:00Z (expired)   -",
        ];
        let table = shown("2026-11-25T00:00:00Z", false);
        assert_eq!(table.lines().map(str::trim_end).collect::<Vec<_>>(), rows);
        let json: serde_json::Value = serde_json::from_str(&shown("2026-11-24T13:00:00Z", true)).unwrap();
        assert_eq!(json["clients"][0]["revoked"], "2026-11-25T00:00:00Z");
        assert_eq!(
            json["clients"][1],
            json!({
                "name": "ci\x1b[2J", "role": "view", "serial": "4b", "issued": "2026-11-24T12:00:00Z",
                "expires": "2026-11-24T13:00:00Z", "expired": false, "revoked": null,
            })
        );
    }
}
