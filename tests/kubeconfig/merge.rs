//! `--merge`.

use super::node::Node;
use std::fs;
use std::os::unix::fs::PermissionsExt;

const EXISTING: &str = "\
apiVersion: v1
kind: Config
# a comment
clusters:
- name: prod
  cluster: {server: \"https://prod.example\"}
users: []
contexts:
- name: prod
  context: {cluster: prod, user: prod}
current-context: prod
extensions:
- {name: mine, extension: {deep: [1, yes, '1']}}
";

fn read(path: &std::path::Path) -> serde_json::Value {
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn the_default_file_is_created_and_a_second_merge_replaces_the_entries() {
    let node = Node::new("kubectlPort: 7443\n");
    let config = node.path("home/.kube/config");
    let first = node.ok("--merge");
    assert!(first.stdout.is_empty() && first.stderr.contains("home/.kube/config has the context wherry@boat-7"));
    assert_eq!(fs::metadata(&config).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(config.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    let before = read(&config);
    node.ok("--merge --view --namespace shop");
    let after = read(&config);
    for list in ["clusters", "users", "contexts"] {
        assert_eq!(after[list].as_array().unwrap().len(), 1, "{after}");
    }
    assert_ne!(before["users"], after["users"]);
    assert_eq!(
        (before["clusters"][0].clone(), "shop"),
        (after["clusters"][0].clone(), after["contexts"][0]["context"]["namespace"].as_str().unwrap())
    );
    // $KUBECONFIG has precedence.
    let other = node.path("other");
    fs::write(&other, "").unwrap();
    let list = format!("{}:/nowhere", other.display());
    assert!(node.command(["--merge"]).env("KUBECONFIG", list).output().unwrap().status.success());
    assert_eq!(read(&other)["current-context"], "wherry@boat-7");
    assert_eq!(read(&config), after);
}

#[test]
fn other_clusters_and_the_current_context_stay() {
    let node = Node::new("");
    let path = node.path("config");
    fs::write(&path, EXISTING).unwrap();
    let before = read(&path);
    for (arguments, current) in [("", "prod"), ("--use", "wherry@boat-7"), ("", "wherry@boat-7")] {
        node.ok(&format!("--merge {} {arguments}", path.display()));
        let after = read(&path);
        assert_eq!(after["current-context"], current);
        assert_eq!(after["extensions"], before["extensions"]);
        assert_eq!(after["clusters"][0], before["clusters"][0]);
        assert_eq!(after["contexts"][0], before["contexts"][0]);
        assert_eq!(after["contexts"].as_array().unwrap().len(), 2);
    }
}

#[test]
fn an_invalid_file_is_unchanged_and_no_certificate_is_issued() {
    let node = Node::new("");
    let path = node.path("config");
    for (text, line) in [
        (&b"kind: Config\nclusters: [\n"[..], "config: line "),
        (b"kind: Config\nclusters: none\n", "config: line 2: clusters: expected a list"),
        (b"kind: Pod\n", "config: line 1: kind: expected Config"),
        (b"\xff\xfe", "config: not UTF-8 text"),
    ] {
        fs::write(&path, text).unwrap();
        let failed = node.run(&format!("--merge {}", path.display()));
        assert_eq!(failed.code, 1);
        assert!(failed.stderr.contains(line), "{}", failed.stderr);
        assert!(failed.stderr.contains("the file is unchanged"), "{}", failed.stderr);
        assert_eq!(fs::read(&path).unwrap(), text);
    }
    // One that is parsed, but is not as deep as it should be.
    fs::write(&path, "clusters:\n- 7\n").unwrap();
    assert!(node.run(&format!("--merge {}", path.display())).stderr.contains("line 2: clusters: expected a map"));
    assert_eq!(fs::read_to_string(&path).unwrap(), "clusters:\n- 7\n");
    for entry in fs::read_dir(node.path("")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.ends_with(".new"), "{name}");
    }
    assert_eq!(node.list().len(), 0);
}
