//! Counts that may only fall: each row has the pattern, where it is counted, and the number of today. A lower count has
//! to be written here, so that it does not rise again. A goal of 0 has an example that the pattern finds.

use super::room;

struct Count {
    /// What is counted.
    what: &'static str,
    room: &'static str,
    counts: fn(&str) -> bool,
    today: usize,
    /// A line that the pattern finds.
    example: &'static str,
}

const COUNTS: [Count; 5] = [
    Count {
        what: "files and places that extend the agent",
        room: "agent",
        counts: |line| line.starts_with("impl Agent"),
        today: 5,
        example: "impl Agent {",
    },
    Count {
        what: "variants of jobs that are matched again when they end",
        room: "agent",
        counts: |line| ["Job::", "Work::"].iter().any(|name| line.contains(&format!(" {name}"))),
        today: 0,
        example: "        let work = move || Work::Files(result);",
    },
    Count {
        what: "reads of the list of effects inside the engine",
        room: "engine",
        counts: |line| line.contains("outbox.effects"),
        today: 0,
        example: "        for effect in &self.outbox.effects {",
    },
    Count {
        what: "timers that are set and cleared by hand",
        room: "engine",
        counts: |line| line.contains("TimerKey") || line.contains("armed: Option"),
        today: 0,
        example: "    armed: Option<Boot>,",
    },
    Count {
        what: "uses of accepted objects by the reader of manifests, which only reads, reports and stores",
        room: "adapters/manifests",
        counts: |line| line.contains("AcceptedPod") || line.contains("PodDocument") || line.contains("Objects"),
        today: 0,
        example: "    pub fn accept(&mut self, pods: &[AcceptedPod]) {",
    },
];

/// The lines of the blocks that begin with `head` at the margin.
fn lines_of_blocks(text: &str, head: &str) -> Vec<String> {
    let mut inside = false;
    let within = |line: &&str| {
        inside = line.starts_with(head) || inside && *line != "}";
        inside
    };
    text.lines().filter(within).map(str::to_owned).collect()
}

fn is_method(line: &str) -> bool {
    ["    fn ", "    pub fn ", "    pub(super) fn "].iter().any(|start| line.starts_with(start))
}

fn is_field(line: &str) -> bool {
    let line = line.strip_prefix("    ").unwrap_or_default();
    let restricted = || line.strip_prefix("pub(").and_then(|rest| rest.split_once(") "));
    let line = line.strip_prefix("pub ").or_else(|| restricted().map(|(_, field)| field)).unwrap_or(line);
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    line.split_once(": ").is_some_and(|(name, _)| is_name(name))
}

/// The structs at the margin, each with the number of its fields.
fn fields_of_structs(text: &str) -> Vec<(String, usize)> {
    let mut all: Vec<(String, usize)> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match line.strip_suffix(" {").and_then(|head| head.split_once("struct ")) {
            Some((before, name)) if !before.starts_with(' ') => {
                all.push((name.to_owned(), 0));
                inside = true;
            }
            _ if line == "}" => inside = false,
            _ if inside && is_field(line) => all.last_mut().unwrap().1 += 1,
            _ => {}
        }
    }
    all
}

#[test]
fn the_worker_of_a_pod_does_not_grow() {
    let example =
        "impl Worker {\n    pub fn step(&mut self) {\n    }\n}\n\npub struct Worker {\n    pub uid: Uid,\n}\n";
    let count = |text: &str, head: &str, is: fn(&str) -> bool| {
        lines_of_blocks(text, head).iter().filter(|line| is(line)).count()
    };
    let counts = |text: &str| (count(text, "impl Worker {", is_method), count(text, "pub struct Worker {", is_field));
    assert_eq!(counts(example), (1, 1), "the patterns do not find their example");
    let of_files: Vec<(usize, usize)> = room("engine/pod/worker").iter().map(|(_, text)| counts(text)).collect();
    let methods: usize = of_files.iter().map(|(methods, _)| methods).sum();
    let fields: usize = of_files.iter().map(|(_, fields)| fields).sum();
    // A machine gets what it needs as arguments. Lower these numbers when you have moved something to one.
    assert_eq!((methods, fields), (85, 20), "methods and fields of the worker: more than before, or fewer");
}

#[test]
fn the_largest_structs_do_not_grow() {
    let example = "pub(super) struct View<'a> {\n    pub(in crate::engine) pod: &'a Pod,\n    name: String,\n}\n\nfn a() {\n    b: c;\n}\n";
    assert_eq!(fields_of_structs(example), [("View<'a>".to_owned(), 2)], "the pattern does not find its example");
    let of_file = |(path, text): (String, String)| {
        let named = fields_of_structs(&text).into_iter().map(|(name, fields)| (format!("{path}: {name}"), fields));
        named.collect::<Vec<_>>()
    };
    let all: Vec<(String, usize)> = ["engine", "agent"].into_iter().flat_map(room).flat_map(of_file).collect();
    assert!(all.len() > 300, "only {} structs", all.len());
    let large: Vec<(String, usize)> = all.into_iter().filter(|(_, fields)| *fields > 20).collect();
    // Fields that belong together are a struct with functions of its own.
    assert_eq!(large, [], "structs with more than 20 fields");
}

#[test]
fn counts_of_the_redesign_do_not_rise() {
    for Count { what, room: name, counts, today, example } in COUNTS {
        assert!(counts(example), "{what}: the pattern does not find its example");
        let found = room(name).into_iter().flat_map(|(path, text)| {
            let of_file = text.lines().filter(|line| counts(line)).map(|line| format!("{path}: {}", line.trim()));
            of_file.collect::<Vec<String>>()
        });
        let found: Vec<String> = found.collect();
        assert_eq!(found.len(), today, "{what}: more than before, or fewer: then lower the number: {found:#?}");
    }
}
