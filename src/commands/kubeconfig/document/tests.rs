use super::*;

fn access(context: &str) -> KubeconfigEntries<'_> {
    KubeconfigEntries {
        context,
        server: "https://127.0.0.1:6443",
        tls_name: None,
        namespace: None,
        authority: "ca\n",
        certificate: "certificate\n",
        key: "key\n",
    }
}

fn merged(text: &str, access: &KubeconfigEntries<'_>, select: bool) -> Result<String, String> {
    super::text(&merge(parse(text)?, access, select)?)
}

const NEW: &str = "\
apiVersion: v1
kind: Config
clusters:
- name: wherry@boat-7
  cluster:
    server: https://127.0.0.1:6443
    certificate-authority-data: Y2EK
users:
- name: wherry@boat-7
  user:
    client-certificate-data: Y2VydGlmaWNhdGUK
    client-key-data: a2V5Cg==
contexts:
- name: wherry@boat-7
  context:
    cluster: wherry@boat-7
    user: wherry@boat-7
current-context: wherry@boat-7
";

#[test]
fn an_empty_file_becomes_a_kubeconfig_with_one_context() {
    for empty in ["", "\n", "# nothing\n", "---\n", "null\n", "{}", "clusters: []\nusers: null\ncontexts:\n"] {
        let text = merged(empty, &access("wherry@boat-7"), false).unwrap();
        let order = |text: &str| {
            let mut entries = parse(text).unwrap();
            entries.sort_by(|a, b| a.key.cmp(&b.key));
            super::text(&entries).unwrap()
        };
        assert_eq!(order(&text), order(NEW), "{empty:?}");
    }
    assert_eq!(merged("", &access("wherry@boat-7"), false).unwrap(), NEW);
    let full = KubeconfigEntries { tls_name: Some("boat-7"), namespace: Some("shop"), ..access("w") };
    let text = merged("", &full, false).unwrap();
    assert!(text.contains("    server: https://127.0.0.1:6443\n    tls-server-name: boat-7\n"), "{text}");
    assert!(text.contains("    user: w\n    namespace: shop\n"), "{text}");
}

const EXISTING: &str = "\
apiVersion: v1
kind: Config
preferences:
  colors: true
clusters:
- cluster:
    certificate-authority: /etc/ca.crt
    server: https://prod.example:6443
  name: prod
- name: wherry@boat-7
  cluster:
    server: https://old:1
    insecure-skip-tls-verify: true
    proxy-url: socks5://localhost:1080
    extensions:
    - name: mine
      extension:
        a: [1, 2.5, yes, null, \"0123\", ~]
  comment-of-mine: kept
users:
- name: prod
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: get-token
      args: [\"--x\", '10']
      interactiveMode: Never
- name: wherry@boat-7
  user:
    token: secret
contexts:
- name: prod
  context: {cluster: prod, user: prod}
- name: wherry@boat-7
  context: {cluster: other, user: other, namespace: shop}
current-context: prod
unknown:
  deep: {x: 1}
";

#[test]
fn everything_else_in_a_kubeconfig_stays_as_it_is() {
    let before = parse(EXISTING).unwrap();
    for (select, current) in [(false, "prod"), (true, "wherry@boat-7")] {
        let text = merged(EXISTING, &access("wherry@boat-7"), select).unwrap();
        let after = parse(&text).unwrap();
        let keys = |entries: &[MapEntry]| entries.iter().map(|e| e.key.clone()).collect::<Vec<_>>();
        assert_eq!(keys(&after), keys(&before), "{text}");
        let value = |entries: &[MapEntry], path: &[&str]| plain(at_path(entries, path));
        for path in [
            &["preferences"][..],
            &["unknown"],
            &["clusters", "prod"],
            &["users", "prod"],
            &["contexts", "prod"],
            &["clusters", "wherry@boat-7", "comment-of-mine"],
            &["clusters", "wherry@boat-7", "cluster", "extensions"],
            &["clusters", "wherry@boat-7", "cluster", "proxy-url"],
            &["contexts", "wherry@boat-7", "context", "namespace"],
        ] {
            assert_eq!(value(&after, path), value(&before, path), "{path:?}");
        }
        assert_eq!(value(&after, &["current-context"]), format!("{current:?}"));
        assert!(value(&after, &["clusters", "wherry@boat-7", "cluster", "server"]).contains("127.0.0.1"));
        for gone in ["insecure-skip-tls-verify", "secret", "https://old:1"] {
            assert!(!text.contains(gone), "{gone}: {text}");
        }
        // A repetition changes nothing but the values.
        assert_eq!(merged(&text, &access("wherry@boat-7"), false).unwrap(), text);
        let more = merged(&text, &access("second"), false).unwrap();
        assert_eq!(more.matches("name: second").count(), 3, "{more}");
        assert_eq!(more.matches("name: wherry@boat-7").count(), 3, "{more}");
    }
    let other = KubeconfigEntries { namespace: Some("dock"), ..access("wherry@boat-7") };
    let text = merged(EXISTING, &other, false).unwrap();
    assert!(text.contains("namespace: dock") && !text.contains("namespace: shop"), "{text}");
}

/// Returns the value at a path. An item of a list is selected by its name.
fn at_path<'a>(entries: &'a [MapEntry], path: &[&str]) -> &'a Value {
    let (first, rest) = path.split_first().unwrap();
    let mut value = &entries.iter().find(|e| e.key == *first).unwrap().node.value;
    for step in rest {
        value = match value {
            Value::List(items) => {
                let is_it = |n: &&Node| n.value.get("name").is_some_and(|n| n.value.text() == Some(step));
                &items.iter().find(is_it).unwrap().value
            }
            map => &map.get(step).unwrap_or_else(|| panic!("{step}")).value,
        };
    }
    value
}

/// Formats a value without its line numbers.
fn plain(value: &Value) -> String {
    match value {
        Value::List(items) => format!("{:?}", items.iter().map(|i| plain(&i.value)).collect::<Vec<_>>()),
        Value::Map(entries) => {
            format!("{:?}", entries.iter().map(|e| (&e.key, plain(&e.node.value))).collect::<Vec<_>>())
        }
        Value::Text(text) => format!("{text:?}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_file_that_is_not_a_kubeconfig_is_an_error_with_its_line() {
    for (text, error) in [
        ("a: 1\nb: [\n", "line "),
        ("a: 1\na: 2\n", "line 2: "),
        ("- a\n", "line 1: expected a kubeconfig, found a list"),
        ("just words\n", "line 1: expected a kubeconfig, found the string \"just words\""),
        ("kind: Config\n---\nkind: Config\n", "line 3: a second document"),
        ("apiVersion: v1\nkind: Pod\n", "line 2: kind: expected Config (a kubeconfig), found the string \"Pod\""),
        ("\napiVersion: 1\n", "line 2: apiVersion: expected v1 (a kubeconfig), found the number 1"),
        ("kind: Config\nclusters: {}\n", "line 2: clusters: expected a list, found a map"),
        ("kind: Config\nusers: none\n", "line 2: users: expected a list, found the string \"none\""),
        ("contexts:\n- name: a\n- b\n", "line 3: contexts: expected a map with the key name, found the string \"b\""),
    ] {
        let found = merged(text, &access("w"), false).unwrap_err();
        assert!(found.starts_with(error), "{text:?}: {found}");
    }
}

/// YAML 1.1 parsers (kubectl) interpret more words as booleans and numbers than YAML 1.2 parsers.
#[test]
fn names_with_a_meaning_in_yaml_are_quoted_and_keep_their_value() {
    for name in [
        "null",
        "~",
        "yes",
        "No",
        "on",
        "y",
        "true",
        "0123",
        "0x1f",
        "1e3",
        "1_000",
        "12:30:45",
        "2026-01-01",
        ".inf",
        "=",
        "<<",
        " a",
        "a ",
        "a: b",
        "a #b",
        "#a",
        "- a",
        "? a",
        "[a]",
        "{a}",
        "&a",
        "*a",
        "!a",
        "|",
        ">",
        "'a'",
        "\"a\"",
        "%a",
        "@a",
        "`a`",
        ",a",
        "a\\b",
        "größe",
        "-",
        "---",
        "...",
        "a:",
        "\u{1f6a2}",
    ] {
        let text = merged("", &access(name), false).unwrap();
        let read = parse(&text).unwrap();
        for path in [
            &["current-context"][..],
            &["clusters", name, "name"],
            &["contexts", name, "context", "cluster"],
            &["contexts", name, "context", "user"],
        ] {
            assert_eq!(at_path(&read, path), &Value::Text(name.to_owned()), "{text}");
        }
        let scalar = text.lines().last().unwrap().strip_prefix("current-context: ").unwrap();
        let is_quoted = scalar.starts_with(['"', '\'']);
        assert!(is_quoted || ["a\\b", "größe", "\u{1f6a2}"].contains(&name), "{scalar}");
    }
    // A long value stays on one line.
    let long = "x".repeat(5000);
    let text = merged("", &KubeconfigEntries { key: &long, ..access("w") }, false).unwrap();
    assert_eq!(text.lines().filter(|l| l.len() > 5000).count(), 1);
}
