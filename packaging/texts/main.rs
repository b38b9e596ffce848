//! `texts DIRECTORY` generates the man pages and shell completions of the packages. The man pages of the commands and the
//! completions come from the definition of the command line (`names` adds the names of pods). wherry-config(5) and
//! wherry-manifests(5) come from pages of the manual (`page`). SOURCE_DATE_EPOCH is the date of the pages.

// The restriction in clippy.toml applies only to the engine.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod names;
mod page;

use clap::Command;
use clap::builder::Resettable;
use clap_complete::Shell;
use clap_mangen::Man;
use page::Title;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

const SOURCE: &str = concat!("wherry ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "Wherry";

/// The pages of the manual that are also man pages: the name, the description under NAME, the text, the SEE ALSO section.
const PAGES: [(&str, &str, &str, &str); 2] = [
    (
        "wherry-config",
        "configuration of the node agent wherry",
        include_str!("../../docs/configuration.md"),
        ".BR wherry (1),\n.BR wherry-check (1),\n.BR wherry-manifests (5),\n.BR logind.conf (5)\n",
    ),
    (
        "wherry-manifests",
        "pods that the node agent wherry runs",
        include_str!("../../docs/manifests.md"),
        ".BR wherry (1),\n.BR wherry-check (1),\n.BR wherry-config (5)\n",
    ),
];

/// The sections of wherry(1) in addition to the command line's help.
const MORE: &str = r#".SH EXIT STATUS
0: success. 1: failure; stderr has the reason. 2: the command line is invalid, or a file cannot be read.
.SH SIGNALS
.TP
.B SIGTERM
stops the agent; pods keep running, and the next agent adopts them.
.TP
.B SIGHUP
reloads the configuration and the manifests.
.SH FILES
.TP
.I /etc/wherry/config.yaml
configuration, see
.BR wherry\-config (5);
drop\-ins in
.I /etc/wherry/config.d
.TP
.I /etc/wherry/manifests
pods, see
.BR wherry\-manifests (5)
.TP
.I /var/lib/wherry
state that survives a restart;
.I kubectl
in it has the certificates of the API for kubectl,
.I server
those of the server of a cluster's node
.TP
.I /var/log/pods
output of containers
.TP
.I /run/wherry/wherry.sock
control socket
.TP
.I /etc/systemd/logind.conf.d/99\-wherry.conf
written by the agent if logind's delay is too short for the pods
.SH SEE ALSO
.BR wherry\-config (5),
.BR wherry\-manifests (5),
.BR crictl (1),
.BR systemctl (1)
"#;

fn main() -> ExitCode {
    let Some(directory) = env::args_os().nth(1).map(PathBuf::from) else {
        let _ = writeln!(io::stderr(), "usage: texts DIRECTORY");
        return ExitCode::from(2);
    };
    match write_all(&directory, &date()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(io::stderr(), "texts: {}: {e}", directory.display());
            ExitCode::FAILURE
        }
    }
}

/// Returns the date of the sources, not of the build, so that two builds are identical.
fn date() -> String {
    let seconds = env::var("SOURCE_DATE_EPOCH").ok().and_then(|s| s.parse().ok()).unwrap_or(0);
    jiff::Timestamp::from_second(seconds).unwrap_or_default().strftime("%Y-%m-%d").to_string()
}

fn write_all(directory: &Path, date: &str) -> io::Result<()> {
    let man = directory.join("man");
    fs::create_dir_all(&man)?;
    for (name, text) in command_pages(date)? {
        fs::write(man.join(name), text)?;
    }
    for (name, about, text, see_also) in PAGES {
        let title = Title { name, about, date, source: SOURCE, manual: MANUAL };
        fs::write(man.join(format!("{name}.5")), page::roff(&title, text, see_also))?;
    }
    for (shell, path) in [(Shell::Bash, "bash/wherry"), (Shell::Zsh, "zsh/_wherry"), (Shell::Fish, "fish/wherry.fish")]
    {
        let path = directory.join(path);
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut wherry::commands::definition(), "wherry", &mut text);
        fs::write(path, names::with_names(shell, String::from_utf8_lossy(&text).into_owned()))?;
    }
    Ok(())
}

/// Returns the file name and the text of the man page of wherry and of each of its commands.
fn command_pages(date: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    // MORE describes the files, so omit that part of the help.
    let definition = wherry::commands::definition().disable_help_subcommand(true);
    let mut command = definition.after_help(Resettable::Reset);
    command.build();
    let mut pages = Vec::new();
    add_pages(&command, date, &mut pages)?;
    if let Some((_, own)) = pages.first_mut() {
        own.extend_from_slice(MORE.as_bytes());
    }
    Ok(pages)
}

fn add_pages(command: &Command, date: &str, pages: &mut Vec<(String, Vec<u8>)>) -> io::Result<()> {
    // The display name of the subcommand `check` is `wherry-check`, the name of its page.
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let man = Man::new(command.clone()).title(&name).section("1").date(date).source(SOURCE).manual(MANUAL);
    let mut text = Vec::new();
    man.render(&mut text)?;
    pages.push((format!("{name}.1"), text));
    command.get_subcommands().filter(|c| !c.is_hide_set()).try_for_each(|c| add_pages(c, date, pages))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_the_first_one_tells_of_files() {
        let pages = command_pages("2026-11-20").unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names[0], "wherry.1");
        let commands = wherry::commands::definition();
        for command in commands.get_subcommands() {
            assert!(names.contains(&format!("wherry-{}.1", command.get_name()).as_str()), "{}", command.get_name());
        }
        assert!(names.contains(&"wherry-debug-dump.1"), "{names:?}");
        let first = String::from_utf8(pages[0].1.clone()).unwrap();
        assert!(first.contains("2026-11-20") && first.contains(".SH FILES"), "{first}");
    }

    #[test]
    fn the_pages_have_every_heading_and_every_field_of_the_manual() {
        for (name, about, text, see_also) in PAGES {
            let title = Title { name, about, date: "2026-11-20", source: SOURCE, manual: MANUAL };
            let roff = page::roff(&title, text, see_also);
            for heading in text.lines().filter_map(|l| l.strip_prefix("## ")) {
                let heading = page::escaped(&page::plain(heading).to_uppercase());
                assert!(roff.contains(&format!(".SH {heading}")), "{name}: {heading}");
            }
            let rows = text.lines().filter(|l| l.starts_with("| `"));
            let fields: Vec<&str> = rows.filter_map(|l| l.split('`').nth(1)).collect();
            assert!(fields.len() > 5, "{name}");
            for field in fields {
                assert!(roff.contains(&page::escaped(field)), "{name}: {field}");
            }
        }
    }

    /// The manual names each field that this version refuses in manifests.
    #[test]
    fn the_manual_names_every_field_that_is_refused() {
        let source = include_str!("../../src/api/validate/unsupported.rs");
        let manual = include_str!("../../docs/manifests.md");
        let names: Vec<&str> = source
            .split('"')
            .skip(1)
            .step_by(2)
            .filter(|name| !name.is_empty() && name.chars().all(char::is_alphanumeric))
            .collect();
        assert!(names.contains(&"ephemeralContainers") && names.contains(&"resourceClaims"), "{names:?}");
        let missing: Vec<&&str> = names.iter().filter(|name| !manual.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "not in docs/manifests.md: {missing:?}");
    }
}
