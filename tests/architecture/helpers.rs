//! The numbers of helper threads in docs/architecture.md are those of the code.

use std::fs;
use std::path::Path;
use wherry::event_loop::Class;

#[test]
fn the_table_of_helper_classes_is_that_of_the_code() {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/architecture.md")).unwrap();
    let table = text.lines().skip_while(|line| !line.starts_with("| class | jobs |")).skip(2);
    let rows: Vec<Vec<&str>> = table.take_while(|line| line.starts_with('|')).map(|l| l.split('|').collect()).collect();
    let mut documented: Vec<(String, String)> =
        rows.iter().map(|row| (row[1].trim().trim_matches('`').to_owned(), row[3].trim().to_owned())).collect();
    let mut of_code: Vec<(String, String)> =
        Class::ALL.iter().map(|class| (class.name().to_owned(), class.at_work().to_string())).collect();
    documented.sort();
    of_code.sort();
    assert_eq!(documented, of_code);

    let active: usize = Class::ALL.iter().map(|class| class.at_work()).sum();
    let replaced: usize = Class::ALL.iter().map(|class| class.replaced()).sum();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let limits = format!("at most 1 + {active} active threads, and {replaced} more that hang");
    assert!(words.contains(&limits), "docs/architecture.md does not say: {limits}");
}
