//! Commands that are killed, and commands that run at the same time.

use super::node::{Node, openssl};
use std::fs;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Each command is killed a little later than the one before, from its start to beyond its end.
#[test]
fn a_killed_command_leaves_a_state_that_the_next_one_completes() {
    let measured = Node::new("");
    let begin = Instant::now();
    measured.ok("--merge");
    let whole = begin.elapsed();
    const STEPS: u32 = 60;
    let mut completed = 0;
    for step in 0..STEPS {
        let node = Node::new("");
        let config = node.path("home/.kube/config");
        let run = |after: Duration| {
            let mut child = node.command(["--merge"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(after);
            let _ = child.kill();
            child.wait().unwrap().success()
        };
        completed += u32::from(run(whole * step * 3 / 2 / STEPS));
        // A kubeconfig is complete or missing.
        if let Ok(text) = fs::read_to_string(&config) {
            assert!(!node.decoded(&text, "client-key-data").is_empty(), "step {step}");
        }
        node.ok("--merge");
        let text = fs::read_to_string(&config).unwrap();
        let certificate = node.certificate(&text, "it.crt").display().to_string();
        let ca = node.path("root/kubectl/ca.crt").display().to_string();
        let (verified, output) = openssl(&["verify", "-CAfile", &ca, &certificate]);
        assert!(verified, "step {step}: {output}");
        assert_eq!(node.decoded(&text, "certificate-authority-data"), fs::read_to_string(&ca).unwrap());
        // The certificate that counts is recorded, whatever was recorded before.
        let (_, serial) = openssl(&["x509", "-in", &certificate, "-noout", "-serial"]);
        let serial = serial.trim().trim_start_matches("serial=").to_lowercase();
        assert!(node.list().iter().any(|c| c["serial"] == serial.as_str()), "step {step}: {serial}");
    }
    assert!(completed < STEPS, "no command was killed in time");
}

#[test]
fn concurrent_commands_lose_nothing() {
    let node = Node::new("");
    let config = node.path("config");
    // The first ones also race for the creation of the CA.
    let children: Vec<_> = (0..8)
        .map(|i| {
            let name = format!("user-{i}");
            let path = config.display().to_string();
            let mut command = node.command(["--merge", &path, "--for", &name, "--context", &name]);
            command.stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let text: serde_json::Value = serde_saphyr::from_str(&fs::read_to_string(&config).unwrap()).unwrap();
    for list in ["clusters", "users", "contexts"] {
        assert_eq!(text[list].as_array().unwrap().len(), 8, "{list}");
    }
    let ca = &text["clusters"][0]["cluster"]["certificate-authority-data"];
    let clusters = text["clusters"].as_array().unwrap();
    assert!(clusters.iter().all(|c| &c["cluster"]["certificate-authority-data"] == ca), "one CA");
    assert_eq!(node.list().len(), 8);
}
