//! `wherry images`: shows the images of the runtime, which pods use them, and what garbage collection would remove.

use crate::api::control::{ImageState, ImageView, Images};
use crate::api::kube::pod_row::human;
use crate::api::ordered::OrderSlice;
use crate::api::resources::MEMORY;
use crate::commands::client;
use crate::commands::describe::Format;
use crate::commands::output::{Failure, document, print_message};
use crate::commands::screen::Screen;
use crate::commands::status::amount_of;
use crate::commands::table::Table;
use serde_json::json;
use std::io::Write;
use std::path::Path;

/// Prints the images. `format` is None for a table.
pub fn run(out: &mut dyn Write, socket: &Path, format: Option<Format>) -> Result<u8, Failure> {
    let value = client::get_json(socket, "/images")?;
    let mut answer: Images =
        serde_json::from_value(value).map_err(|e| Failure::message(format!("/images: invalid response: {e}")))?;
    answer.images.order_by(|a, b| (name(a), &a.id).cmp(&(name(b), &b.id)));
    match format {
        Some(format) => document(out, &json!(answer), format == Format::Yaml)?,
        None => show(out, &answer.images, Screen::stdout())?,
    }
    out.flush()?;
    Ok(0)
}

/// Returns the first tag or else the first digest, or None if the image has no name.
fn name(image: &ImageView) -> Option<&str> {
    image.tags.first().or(image.digests.first()).map(String::as_str)
}

fn show(out: &mut dyn Write, images: &[ImageView], screen: Screen) -> Result<(), Failure> {
    if images.is_empty() {
        print_message("the runtime has no images");
        return Ok(());
    }
    let mut rows: Vec<[String; 6]> = Vec::new();
    for image in images {
        let id = image.id.strip_prefix("sha256:").unwrap_or(&image.id);
        let last_use = image.seconds_since_use.and_then(|s| i64::try_from(s).ok());
        rows.push([
            name(image).unwrap_or("<none>").to_owned(),
            id.chars().take(12).collect(),
            amount_of(MEMORY, image.size_bytes),
            last_use.map_or_else(|| "-".to_owned(), human),
            if image.pods.is_empty() { "-".to_owned() } else { image.pods.join(",") },
            removable(image),
        ]);
        // Each further name gets a separate line.
        let more =
            |tag: &String| [tag.clone(), String::new(), String::new(), String::new(), String::new(), String::new()];
        rows.extend(image.tags.iter().skip(1).map(more));
    }
    let rows: Vec<&[String]> = rows.iter().map(<[String; 6]>::as_slice).collect();
    let mut table = Table::new(&["NAME", "IMAGE ID", "SIZE", "LAST USED", "USED BY", "REMOVABLE"]).on(
        screen,
        &["NAME", "USED BY"],
        |_, _| None,
    );
    table.print(out, true, &rows)?;
    Ok(())
}

fn removable(image: &ImageView) -> String {
    let why = match image.state {
        ImageState::InUse => "no, in use",
        ImageState::Named => "no, a manifest refers to it",
        ImageState::Pinned => "no, pinned",
        ImageState::Sandboxes => "no, used for sandboxes",
        ImageState::TooYoung => "no, too young",
        ImageState::Removable => {
            return image.removal_order.map_or_else(|| "yes".to_owned(), |place| format!("yes, number {place}"));
        }
    };
    why.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(names: &[&str], state: ImageState) -> ImageView {
        ImageView {
            id: "sha256:0123456789abcdef".into(),
            tags: names.iter().map(|name| (*name).to_owned()).collect(),
            digests: vec![],
            size_bytes: 3 << 20,
            pods: vec![],
            seconds_since_use: None,
            state,
            removal_order: None,
        }
    }

    #[test]
    fn the_table_shows_users_and_the_reason_to_keep() {
        let used = ImageView {
            pods: vec!["default/a".into(), "default/b".into()],
            seconds_since_use: Some(0),
            ..image(&["web:1", "web:2"], ImageState::InUse)
        };
        let next = ImageView { removal_order: Some(1), ..image(&[], ImageState::Removable) };
        let mut out = Vec::new();
        show(&mut out, &[used, image(&["old:1"], ImageState::TooYoung), next], Screen::default()).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<Vec<&str>> =
            text.lines().map(|l| l.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect();
        assert_eq!(lines[0], ["NAME", "IMAGE ID", "SIZE", "LAST USED", "USED BY", "REMOVABLE"]);
        assert_eq!(lines[1], ["web:1", "0123456789ab", "3Mi", "0s", "default/a,default/b", "no, in use"]);
        assert_eq!(lines[2], ["web:2"]);
        assert_eq!(lines[3], ["old:1", "0123456789ab", "3Mi", "-", "-", "no, too young"]);
        assert_eq!(lines[4], ["<none>", "0123456789ab", "3Mi", "-", "-", "yes, number 1"]);
    }
}
