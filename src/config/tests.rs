use super::files::Text;
use super::table::{Field, FieldType, Use};
use super::*;
use crate::engine::image_gc_policy::ImageGcPolicy;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

fn read(texts: &[(&str, &str)], flags: &Flags) -> (Config, Problems) {
    let texts: Vec<Text> = texts.iter().map(|(p, t)| Text { path: PathBuf::from(p), text: (*t).to_owned() }).collect();
    let mut problems = Problems::default();
    let (config, _) = assemble(&texts, flags, "Boat-7", &mut problems);
    (config, problems)
}

fn lines(problems: &[problem::Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

fn one(body: &str) -> (Config, Problems) {
    read(&[("/c.yaml", &format!("{HEAD}{body}"))], &Flags::default())
}

#[test]
fn without_a_file_there_are_defaults_and_the_hosts_name() {
    let (config, problems) = read(&[], &Flags::default());
    assert_eq!(problems, Problems::default());
    assert_eq!(config, Config { node_name: "boat-7".into(), ..Config::default() });
    assert_eq!(config.healthz(), Some("127.0.0.1:10248".parse().unwrap()));
    assert_eq!(config.read_only(), None);
    assert_eq!(config.kubectl(), None);
    assert_eq!(config.parallel_image_pulls(), Some(1));
}

#[test]
fn honoured_fields_are_set() {
    let (c, problems) = one("staticPodPath: /m\nsyncFrequency: 1m30s\nhealthzPort: 0\ncgroupDriver: systemd\n\
         clusterDNS: [10.0.0.10]\nclusterDomain: cluster.local.\nresolvConf: \"\"\nserializeImagePulls: false\n\
         crashLoopBackOff: {maxContainerRestartPeriod: 10s}\nlogging: {verbosity: 4}\ncgroupRoot: edge/\n\
         containerRuntimeEndpoint: unix:///run/crio/crio.sock\nallowedUnsafeSysctls: [\"net.*\", kernel.sem]\n");
    assert_eq!(problems, Problems::default());
    assert_eq!(c.manifests, PathBuf::from("/m"));
    assert_eq!(c.sync_frequency, Duration::from_secs(90));
    assert_eq!(c.healthz(), None);
    assert_eq!(c.cgroup_driver, CgroupDriver::Systemd);
    assert_eq!(c.cluster_dns, vec!["10.0.0.10".parse::<IpAddr>().unwrap()]);
    assert_eq!(c.cluster_domain, "cluster.local");
    assert_eq!(c.resolv_conf, None);
    assert_eq!(c.parallel_image_pulls(), None);
    assert_eq!(c.max_container_restart_period, Duration::from_secs(10));
    assert_eq!(c.verbosity, 4);
    assert_eq!(c.cgroup_root, "/edge");
    assert_eq!(c.runtime_socket, PathBuf::from("/run/crio/crio.sock"));
}

#[test]
fn all_errors_are_reported_together_with_file_line_and_field() {
    let (_, problems) = one("syncFrequenzy: 10s\n\
         healthzPort: 70000\n\
         fileCheckFrequency: 20\n\
         maxPods: many\n\
         logging:\n  verbositty: 4\n  flushFrequency: often\n\
         clusterDNS:\n- 10.0.0.10\n- 7\n\
         evictionHard:\n  memory.available: [1]\n\
         address: here\n\
         cpuCFSQuotaPeriod: 2s\n");
    assert_eq!(
        lines(&problems.errors),
        [
            "/c.yaml:3: syncFrequenzy: unknown field; did you mean syncFrequency?",
            "/c.yaml:4: healthzPort: must be between 1 and 65535, or 0 to turn it off",
            "/c.yaml:5: fileCheckFrequency: expected a duration like \"20s\" or \"1m30s\", found the number 20",
            "/c.yaml:6: maxPods: expected a whole number, found the string \"many\"",
            "/c.yaml:8: logging.verbositty: unknown field; did you mean verbosity?",
            "/c.yaml:9: logging.flushFrequency: \"often\" is not a duration; write one like \"90s\", \"1m30s\" or \
             \"500ms\"",
            "/c.yaml:12: clusterDNS[1]: expected a string, found the number 7 (quote it)",
            "/c.yaml:14: evictionHard.memory.available: expected a string, found a list",
            "/c.yaml:15: address: \"here\" is not an IP address",
            "/c.yaml:16: cpuCFSQuotaPeriod: must be between 1ms and 1s",
        ]
    );
}

#[test]
fn a_known_field_without_effect_is_a_warning_once() {
    let (_, problems) = one("maxOpenFiles: 30\nfailSwapOn: false\nrotateCertificates: true\n");
    assert!(problems.errors.is_empty(), "{problems:?}");
    assert_eq!(
        lines(&problems.warnings),
        [
            "/c.yaml:3: maxOpenFiles: known, but not honoured by wherry: it has no effect",
            "/c.yaml:4: failSwapOn: known, but not honoured by wherry: it has no effect",
            "/c.yaml:5: rotateCertificates: known, but not honoured by wherry: it has no effect",
        ]
    );
}

#[test]
fn default_values_written_by_kubeadm_cause_no_warning() {
    let (config, problems) =
        one("cpuManagerReconcilePeriod: 0s\nfileCheckFrequency: 0s\nlogging:\n  flushFrequency: 0\n  \
         options:\n    json:\n      infoBufferSize: \"0\"\n    text:\n      infoBufferSize: \"0\"\n  verbosity: 0\n\
         memorySwap: {}\nsyncFrequency: 0s\nstaticPodURL: null\nimageMinimumGCAge: 0s\n");
    assert_eq!(problems, Problems::default());
    assert_eq!(config.file_check_frequency, Duration::from_secs(20));
    assert_eq!(config.sync_frequency, Duration::from_secs(60));
}

#[test]
fn drop_ins_are_merged_field_by_field_and_flags_win() {
    let main = format!(
        "{HEAD}staticPodPath: /a\nsyncFrequency: 2m\nclusterDNS: [10.0.0.1]\n---\n\
         apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nrootDir: /r\nnodeName: pier\n\
         logindConfDir: /l\n"
    );
    let drop_in = format!("{HEAD}staticPodPath: /b\nclusterDNS: [10.0.0.2]\n");
    let flags = Flags { root_dir: Some("/flag".into()), verbosity: Some(6), ..Flags::default() };
    let (c, problems) = read(&[("/c.yaml", &main), ("/d/10.conf", &drop_in)], &flags);
    assert_eq!(problems, Problems::default());
    assert_eq!((c.manifests, c.root_dir), (PathBuf::from("/b"), PathBuf::from("/flag")));
    assert_eq!((c.sync_frequency, c.verbosity), (Duration::from_secs(120), 6));
    assert_eq!(c.cluster_dns, vec!["10.0.0.2".parse::<IpAddr>().unwrap()]);
    assert_eq!((c.node_name.as_str(), c.logind_conf_dir), ("pier", PathBuf::from("/l")));
}

#[test]
fn documents_that_are_no_configuration_are_errors() {
    let text = "kind: Pod\napiVersion: v1\n---\n- 1\n---\nkind: WherryConfiguration\nrootDir: relative\n";
    let (_, problems) = read(&[("/c.yaml", text)], &Flags::default());
    assert_eq!(
        lines(&problems.errors),
        [
            "/c.yaml:1: kind: is \"Pod\"; it must be KubeletConfiguration or WherryConfiguration",
            "/c.yaml:4: expected a document with apiVersion and kind, found a list",
            "/c.yaml:6: apiVersion: is \"\"; for a WherryConfiguration it must be wherry.io/v1alpha1",
            "/c.yaml:7: rootDir: \"relative\" is not an absolute path",
        ]
    );
}

#[test]
fn broken_yaml_names_its_line_and_other_files_are_read_all_the_same() {
    let other = format!("{HEAD}nope: 1\n");
    let (_, problems) = read(
        &[("/a.yaml", "a: 1\nb: [1\n"), ("/b.yaml", "kind: x\nkind: y\n"), ("/c.yaml", &other)],
        &Flags::default(),
    );
    let lines = lines(&problems.errors);
    assert_eq!(lines.len(), 3, "{lines:#?}");
    assert!(lines[0].starts_with("/a.yaml:"), "{lines:#?}");
    assert!(lines[1].starts_with("/b.yaml:2: ") && lines[1].contains("duplicate"), "{lines:#?}");
    assert_eq!(lines[2], "/c.yaml:3: nope: unknown field");
}

#[test]
fn fields_are_checked_together_across_files() {
    let a = format!("{HEAD}serializeImagePulls: true\nreadOnlyPort: 10248\n");
    let b = format!("{HEAD}\nmaxParallelImagePulls: 3\nimageServiceEndpoint: unix:///other\n");
    let (_, problems) = read(&[("/a", &a), ("/b", &b)], &Flags::default());
    assert_eq!(
        lines(&problems.errors),
        [
            "/b:4: maxParallelImagePulls: cannot be more than 1 while serializeImagePulls is true",
            "/a:4: readOnlyPort: must not be the same as healthzPort",
        ]
    );
    assert_eq!(problems.warnings.len(), 1);
}

#[test]
fn the_kubectl_port_has_an_address_and_differs_from_the_other_ports() {
    let wherry = |body: &str| {
        let head = format!("apiVersion: {}\nkind: {}\n", wherry::API_VERSION, wherry::KIND);
        read(&[("/k", &format!("{HEAD}readOnlyPort: 10255\n")), ("/w", &format!("{head}{body}"))], &Flags::default())
    };
    for (body, address) in [
        ("kubectlPort: 6443\n", Some("127.0.0.1:6443")),
        ("kubectlPort: 1\nkubectlAddress: 0.0.0.0\n", Some("0.0.0.0:1")),
        ("kubectlPort: 65535\nkubectlAddress: \"::\"\n", Some("[::]:65535")),
        ("kubectlPort: 0\nkubectlAddress: 10.0.0.5\n", None),
    ] {
        let (config, problems) = wherry(body);
        assert_eq!(problems, Problems::default(), "{body}");
        assert_eq!(config.kubectl(), address.map(|a| a.parse().unwrap()), "{body}");
    }
    for (body, error) in [
        ("kubectlPort: 10255\n", "/w:3: kubectlPort: must not be the same as readOnlyPort"),
        ("kubectlPort: 10248\n", "/w:3: kubectlPort: must not be the same as healthzPort"),
        ("kubectlPort: 65536\n", "/w:3: kubectlPort: must be between 1 and 65535, or 0 to turn it off"),
        ("kubectlPort: -1\n", "/w:3: kubectlPort: must be between 1 and 65535, or 0 to turn it off"),
        ("kubectlAddress: localhost\n", "/w:3: kubectlAddress: \"localhost\" is not an IP address"),
    ] {
        assert_eq!(lines(&wherry(body).1.errors), [error]);
    }
}

#[test]
fn the_nodes_server_exists_only_on_a_node_of_a_cluster() {
    let of_wherry = |body: &str| format!("apiVersion: {}\nkind: {}\n{body}", wherry::API_VERSION, wherry::KIND);
    let member = of_wherry("kubeconfig: /k\nkubectlPort: 6443\n");
    let with = |body: &str, other: &str| read(&[("/k", &format!("{HEAD}{body}")), ("/w", other)], &Flags::default());
    assert_eq!(with("", &of_wherry("")).0.node_server(), None);
    assert_eq!(with("port: 0\n", &member).0.node_server(), None);
    let (config, problems) = with("address: 10.0.0.5\n", &member);
    assert_eq!((config.node_server(), problems), (Some("10.0.0.5:10250".parse().unwrap()), Problems::default()));
    let (config, problems) = with(
        "authentication: {anonymous: {enabled: true}, webhook: {enabled: false, cacheTTL: 0s}}\n\
         authorization: {mode: '', webhook: {cacheAuthorizedTTL: 1m}}\n",
        &member,
    );
    assert_eq!(problems, Problems::default());
    let NodeServer { anonymous, tokens, token_ttl, always_allow, authorized_ttl, .. } = config.node_server;
    assert_eq!((anonymous, tokens, always_allow), (true, false, false));
    assert_eq!((token_ttl, authorized_ttl), (Duration::from_secs(120), Duration::from_secs(60)));
    for (body, error) in [
        ("tlsCertFile: /c\n", "/k:3: tlsCertFile: needs tlsPrivateKeyFile; set both, or none"),
        ("tlsPrivateKeyFile: /c\n", "/k:3: tlsPrivateKeyFile: needs tlsCertFile; set both, or none"),
        ("port: 6443\n", "/k:3: port: must not be the same as kubectlPort"),
        ("port: 10248\n", "/k:3: port: must not be the same as healthzPort"),
        ("port: 70000\n", "/k:3: port: must be between 1 and 65535, or 0 to turn it off"),
    ] {
        assert_eq!(lines(&with(body, &member).1.errors), [error]);
    }
    let (config, problems) = with("serverTLSBootstrap: true\n", &member);
    assert_eq!((config.node_server.source(), problems), (CertificateSource::Cluster, Problems::default()));
    let (config, problems) = with("tlsCertFile: /c\ntlsPrivateKeyFile: /k\nserverTLSBootstrap: true\n", &member);
    assert!(matches!(config.node_server.source(), CertificateSource::Files { .. }));
    let warning = "/k:5: serverTLSBootstrap: has no effect together with tlsCertFile; set it to false, or remove \
                   tlsCertFile and tlsPrivateKeyFile";
    assert_eq!((lines(&problems.warnings), problems.errors), (vec![warning.to_owned()], vec![]));
    assert_eq!(with("", &member).0.node_server.source(), CertificateSource::Own);
    let open = "authentication: {anonymous: {enabled: true}}\nauthorization: {mode: AlwaysAllow}\n";
    let errors = lines(&with(open, &member).1.errors);
    assert!(errors.len() == 1 && errors[0].starts_with("/k:3: authentication.anonymous.enabled: with "), "{errors:?}");
}

#[test]
fn a_host_name_that_is_no_valid_node_name_is_an_error() {
    let mut problems = Problems::default();
    assemble(&[], &Flags::default(), "my_host", &mut problems);
    assert!(lines(&problems.errors)[0].contains("set nodeName or --hostname"), "{problems:?}");
    let flags = Flags { hostname: Some("Bad".into()), ..Flags::default() };
    let (_, problems) = read(&[], &flags);
    assert!(lines(&problems.errors)[0].starts_with("--hostname: "), "{problems:?}");
}

#[test]
fn files_that_cannot_be_read_are_errors_that_name_them() {
    let dir = tempfile::tempdir().unwrap();
    let d = dir.path();
    std::fs::create_dir(d.join("drop.d")).unwrap();
    std::fs::write(d.join("drop.d/b.yaml"), format!("{HEAD}syncFrequency: 3m\n")).unwrap();
    std::fs::write(d.join("drop.d/a.conf"), format!("{HEAD}syncFrequency: 2m\n")).unwrap();
    std::fs::write(d.join("drop.d/.c.yaml"), "junk: [").unwrap();
    std::fs::write(d.join("drop.d/d.yml"), "junk: [").unwrap();
    std::fs::create_dir(d.join("drop.d/e.yaml")).unwrap();
    std::fs::write(d.join("drop.d/f.yaml"), "x".repeat(yaml::MAX_BYTES as usize + 1)).unwrap();
    let flags = Flags {
        config: Some(d.join("missing.yaml")),
        config_dir: Some(d.join("drop.d")),
        hostname: Some("lab".into()),
        ..Flags::default()
    };
    let loaded = load(&flags);
    assert!(!loaded.is_ok());
    assert_eq!(loaded.config.sync_frequency, Duration::from_secs(180), "drop-ins apply in the order of their names");
    let errors = lines(&loaded.problems.errors).join("\n");
    for part in ["missing.yaml: cannot be read: No such file", "e.yaml: cannot be read", "f.yaml: cannot be read"] {
        assert!(errors.contains(part), "{errors}");
    }
    assert!(lines(&loaded.problems.warnings)[0].contains("d.yml: is not read"));
}

#[test]
fn hostile_yaml_is_an_error_and_quick() {
    let deep = "[".repeat(100_000);
    let keys: String = (0..30_000).map(|i| format!("k{i}: 1\n")).collect();
    let long = format!("{HEAD}{}: 1\n", "x".repeat(900_000));
    for text in [deep, keys, long, "\u{0}".into(), "a: &a [*a]".into()] {
        let (_, problems) = read(&[("/c.yaml", &text)], &Flags::default());
        assert!(!problems.errors.is_empty());
    }
}

fn groups(config: &Config) -> Vec<(i32, u64)> {
    config.shutdown.iter().map(|g| (g.priority, g.period.as_secs())).collect()
}

#[test]
fn s1_shutdown_is_off_until_a_period_is_configured() {
    for body in [
        "",
        "shutdownGracePeriod: 0s\nshutdownGracePeriodCriticalPods: 0s\n",
        "shutdownGracePeriodByPodPriority: []\n",
        "shutdownGracePeriodByPodPriority: null\nshutdownGracePeriod: \"0\"\n",
    ] {
        let (c, problems) = one(body);
        assert_eq!((problems, c.shutdown.is_off()), (Problems::default(), true), "{body}");
    }
    let (c, problems) = one("shutdownGracePeriod: 30.9s\nshutdownGracePeriodCriticalPods: 10s\n");
    assert_eq!((problems, groups(&c)), (Problems::default(), vec![(0, 20), (2_000_000_000, 10)]));
    let (c, problems) = one("shutdownGracePeriod: 1h\nshutdownGracePeriodCriticalPods: 1h\n");
    assert_eq!((problems, groups(&c)), (Problems::default(), vec![(0, 0), (2_000_000_000, 3600)]));
    let (c, problems) = one("shutdownGracePeriodByPodPriority:\n\
         - {priority: 2147483647, shutdownGracePeriodSeconds: 3600}\n\
         - {priority: -2147483648, shutdownGracePeriodSeconds: 3600}\n\
         - {shutdownGracePeriodSeconds: 0, priority: 100}\n");
    assert_eq!((problems, groups(&c)), (Problems::default(), vec![(i32::MIN, 3600), (100, 0), (i32::MAX, 3600)]));
}

#[test]
fn s1_each_invalid_period_is_named_with_a_remedy() {
    for (value, message) in [
        ("-5s", "\"-5s\" is negative; it must be 0s or more"),
        ("900ms", "900ms is shorter than a second; it must be 1s or more, or 0s for none"),
        ("1h0m1s", "1h0m1s is longer than an hour; it must be at most 1h0m0s"),
        ("30", "expected a duration like \"20s\" or \"1m30s\", found the number 30"),
    ] {
        let (_, problems) = one(&format!("shutdownGracePeriod: {value}\n"));
        assert_eq!(lines(&problems.errors), [format!("/c.yaml:3: shutdownGracePeriod: {message}")]);
        let (_, problems) = one(&format!("shutdownGracePeriod: 40s\nshutdownGracePeriodCriticalPods: {value}\n"));
        assert_eq!(lines(&problems.errors), [format!("/c.yaml:4: shutdownGracePeriodCriticalPods: {message}")]);
    }
    let (_, problems) = one("shutdownGracePeriod: 2h\nshutdownGracePeriodCriticalPods: 10s\n");
    assert_eq!(problems.errors.len(), 1, "only the first value is wrong: {problems:?}");
}

#[test]
fn s1_each_invalid_entry_is_named_with_a_remedy() {
    let (_, problems) = one("shutdownGracePeriodByPodPriority:\n\
         - {priority: 100, shutdownGracePeriodSeconds: -1}\n\
         - priority: 200\n\
         \x20 shutdownGracePeriodSeconds: 3601\n\
         - shutdownGracePeriodSeconds: 5\n\
         - priority: 300\n\
         - shutdownGracePeriodSeconds: 5\n\
         \x20 priority: 100\n\
         - {priority: 200, shutdownGracePeriodSeconds: null}\n");
    let field = "shutdownGracePeriodByPodPriority";
    assert_eq!(
        lines(&problems.errors),
        [
            format!("/c.yaml:4: {field}[0].shutdownGracePeriodSeconds: -1 is negative; it must be 0 or more"),
            format!(
                "/c.yaml:6: {field}[1].shutdownGracePeriodSeconds: 3601 is longer than an hour; it must be at most 3600"
            ),
            format!("/c.yaml:7: {field}[2].priority: is missing; set the lowest priority of the pods in this entry"),
            format!(
                "/c.yaml:8: {field}[3].shutdownGracePeriodSeconds: is missing; set the period in seconds, or 0 \
                 for the minimum grace period"
            ),
            format!("/c.yaml:10: {field}[4].priority: 100 is also the priority of entry [0]; remove one of them"),
            format!("/c.yaml:11: {field}[5].priority: 200 is also the priority of entry [1]; remove one of them"),
            format!(
                "/c.yaml:11: {field}[5].shutdownGracePeriodSeconds: is missing; set the period in seconds, or 0 \
                 for the minimum grace period"
            ),
        ]
    );
    let (_, problems) = one("shutdownGracePeriodByPodPriority:\n\
         - {priority: 2147483648, shutdownGracePeriodSeconds: 1}\n\
         - {priority: high, shutdownGracePeriodSeconds: 1s}\n\
         - {priority: 1, shutdownGracePeriodSecond: 1}\n\
         - 7\n");
    assert_eq!(
        lines(&problems.errors),
        [
            format!(
                "/c.yaml:4: {field}[0].priority: 2147483648 is out of range; it must be between -2147483648 and \
                 2147483647"
            ),
            format!("/c.yaml:5: {field}[1].priority: expected a whole number, found the string \"high\""),
            format!(
                "/c.yaml:5: {field}[1].shutdownGracePeriodSeconds: expected a whole number, found the string \"1s\""
            ),
            format!("/c.yaml:6: {field}[2].shutdownGracePeriodSecond: unknown field"),
            format!("/c.yaml:7: {field}[3]: expected a map, found the number 7"),
        ]
    );
}

#[test]
fn s1_critical_pods_cannot_have_more_than_all() {
    let (_, problems) = one("shutdownGracePeriodCriticalPods: 30s\nshutdownGracePeriod: 20s\n");
    assert_eq!(
        lines(&problems.errors),
        ["/c.yaml:3: shutdownGracePeriodCriticalPods: 30s exceeds shutdownGracePeriod (20s), which includes it; \
          increase shutdownGracePeriod"]
    );
    let (_, problems) = one("shutdownGracePeriodCriticalPods: 30s\n");
    assert_eq!(
        lines(&problems.errors),
        ["/c.yaml:3: shutdownGracePeriodCriticalPods: is the last part of shutdownGracePeriod, which is not set; set \
          shutdownGracePeriod to 30s or more"]
    );
}

#[test]
fn s1_the_two_forms_exclude_each_other_across_files() {
    let two = format!("{HEAD}shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n");
    let groups_of = |more: &str| {
        let by = "shutdownGracePeriodByPodPriority:\n- {priority: 5, shutdownGracePeriodSeconds: 7}\n";
        read(&[("/a", &two), ("/b", &format!("{HEAD}{by}{more}"))], &Flags::default())
    };
    let (_, problems) = groups_of("");
    assert_eq!(
        lines(&problems.errors),
        ["/b:3: shutdownGracePeriodByPodPriority: cannot be used together with shutdownGracePeriod (/a:3); keep one \
             of them (a drop-in resets an earlier value with [] or 0s)"]
    );
    let (c, problems) = groups_of("shutdownGracePeriod: 0s\nshutdownGracePeriodCriticalPods: 0s\n");
    assert_eq!((problems, groups(&c)), (Problems::default(), vec![(5, 7)]));
    let (_, problems) = groups_of("shutdownGracePeriod: 0s\n");
    assert_eq!(problems.errors.len(), 2, "{problems:?}");
    // A drop-in changes one of the two values. A list is replaced as a whole.
    let (c, problems) = read(&[("/a", &two), ("/b", &format!("{HEAD}shutdownGracePeriod: 1m\n"))], &Flags::default());
    assert_eq!((problems, groups(&c)), (Problems::default(), vec![(0, 50), (2_000_000_000, 10)]));
}

/// Calls `f` with the path of each field that has no inner fields.
fn walk(fields: &'static [Field], path: &str, f: &mut impl FnMut(String, &'static Field)) {
    for field in fields {
        let full = if path.is_empty() { field.name.to_owned() } else { format!("{path}.{}", field.name) };
        match (&field.what, &field.kind) {
            (Use::Inner, FieldType::Object(inner)) => walk(inner, &full, f),
            _ => f(full, field),
        }
    }
}

#[test]
fn the_manual_documents_every_honoured_field() {
    let manual = include_str!("../../docs/configuration.md");
    let mut missing = Vec::new();
    for fields in [kubelet::FIELDS, wherry::FIELDS] {
        walk(fields, "", &mut |path, field| {
            if matches!(field.what, Use::Honoured(_) | Use::Parts(_)) && !manual.contains(&format!("`{path}`")) {
                missing.push(path);
            }
        });
    }
    assert!(missing.is_empty(), "not in docs/configuration.md: {missing:?}");
}

#[test]
fn the_tables_are_in_the_order_of_the_alphabet_and_name_nothing_twice() {
    for fields in [kubelet::FIELDS, wherry::FIELDS] {
        assert!(fields.is_sorted_by(|a, b| a.name < b.name));
    }
}

#[test]
fn a2_the_nodes_size_is_as_in_a_kubelet_by_default() {
    let (c, problems) = one("");
    assert_eq!(problems, Problems::default());
    let sizing = c.sizing();
    assert_eq!((sizing.name.as_str(), sizing.max_pods, sizing.pods_per_core), ("boat-7", 110, None));
    assert_eq!(sizing.memory_available.unwrap().of(u64::MAX), 100 << 20);
    assert_eq!(sizing.nodefs_available.unwrap().of(1000), 100);
    assert!(sizing.system_reserved.is_empty() && sizing.kube_reserved.is_empty() && sizing.extended.is_empty());
    assert_eq!((c.node.pod_pids_limit, c.node.enforces_pods(), c.node.reserved_pids()), (None, true, 0));
}

#[test]
fn a2_the_nodes_size_is_set_and_maps_are_merged_key_by_key() {
    let a = format!(
        "{HEAD}maxPods: 30\npodsPerCore: 4\npodPidsLimit: 1024\nenforceNodeAllocatable: [none]\n\
         systemReserved: {{cpu: 500m, memory: 1Gi, pid: \"100\"}}\nkubeReserved: {{memory: 0.5Gi, \
         ephemeral-storage: 1G, pid: \"50\"}}\n\
         evictionHard: {{memory.available: 5%, nodefs.available: 1Gi}}\n---\n\
         apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\n\
         nodeLabels: {{zone: b, example.com/kind: \"\"}}\nextendedResources: {{example.com/gpu: 2}}\n"
    );
    let b = format!(
        "{HEAD}systemReserved: {{cpu: \"1\"}}\nevictionHard: {{nodefs.available: \"0%\"}}\n---\n\
         apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nnodeLabels: {{zone: c}}\n"
    );
    let (c, problems) = read(&[("/a", &a), ("/b", &b)], &Flags::default());
    assert_eq!(problems, Problems::default());
    let s = c.sizing();
    assert_eq!((s.max_pods, s.pods_per_core, c.node.pod_pids_limit), (30, Some(4), Some(1024)));
    assert_eq!(s.system_reserved.iter().collect::<Vec<_>>(), [("cpu", 1000), ("memory", 1 << 30)]);
    assert_eq!(s.kube_reserved.iter().collect::<Vec<_>>(), [("ephemeral-storage", 1_000_000_000), ("memory", 1 << 29)]);
    assert_eq!((c.node.reserved_pids(), c.node.enforces_pods()), (150, false));
    assert_eq!((s.memory_available.unwrap().of(1000), s.nodefs_available), (50, None));
    let labels: Vec<_> = s.labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(labels, [("example.com/kind", ""), ("zone", "c")]);
    assert_eq!(s.extended, BTreeMap::from([("example.com/gpu".to_owned(), 2)]));
    // A missing signal is off, unless `mergeDefaultEvictionSettings` is set.
    let off = "evictionHard: {memory.available: 1Gi}\n";
    let (c, _) = one(off);
    assert_eq!(c.sizing().nodefs_available, None);
    let (c, problems) = one(&format!("{off}mergeDefaultEvictionSettings: true\n"));
    assert_eq!((problems, c.sizing().nodefs_available.map(|t| t.of(1000))), (Problems::default(), Some(100)));
    let (c, problems) = one("maxPods: 0\npodPidsLimit: -1\nevictionHard: {}\n");
    assert_eq!((problems, c.sizing().max_pods, c.sizing().memory_available), (Problems::default(), 110, None));
}

#[test]
fn a2_each_invalid_reservation_is_named_with_a_remedy() {
    let (_, problems) = one("maxPods: -1\npodsPerCore: -2\npodPidsLimit: -2\nenforceNodeAllocatable: [pods, nodes]\n\
         systemReserved:\n  cpu: 1 core\n  memory: -1Gi\n  hugepages-2Mi: 1Gi\n  pid: 5\n\
         kubeReserved: {memory: \"1e30\"}\n\
         evictionHard:\n  memory.available: 101%\n  memory.free: 1Gi\n  nodefs.available: \"0\"\n");
    let signals = "allocatableMemory.available, containerfs.available, containerfs.inodesFree, imagefs.available, \
         imagefs.inodesFree, memory.available, nodefs.available, nodefs.inodesFree, pid.available";
    assert_eq!(
        lines(&problems.errors),
        [
            "/c.yaml:3: maxPods: -1 is negative; it must be 0 or more".to_owned(),
            "/c.yaml:4: podsPerCore: -2 is negative; it must be 0 or more".to_owned(),
            "/c.yaml:5: podPidsLimit: -2 is negative; it must be 1 or more, or -1 for no limit".to_owned(),
            "/c.yaml:6: enforceNodeAllocatable: \"nodes\" is not one of kube-reserved, none, pods, system-reserved"
                .to_owned(),
            // After a wrong type, no other errors in the map are reported.
            "/c.yaml:11: systemReserved.pid: expected a string, found the number 5 (quote it)".to_owned(),
            "/c.yaml:12: kubeReserved.memory: \"1e30\": 1e30 is too large".to_owned(),
            "/c.yaml:14: evictionHard.memory.available: \"101%\": eviction percentage threshold 101% must be <= 100%"
                .to_owned(),
            format!("/c.yaml:15: evictionHard.memory.free: unknown eviction signal; it must be one of {signals}"),
            "/c.yaml:16: evictionHard.nodefs.available: \"0\": eviction threshold 0 must be positive; omit the signal \
             or write \"0%\" for no threshold"
                .to_owned(),
        ]
    );
    let (_, problems) = one("enforceNodeAllocatable: [none, pods]\n\
         systemReserved:\n  cpu: 1 core\n  memory: -1Gi\n  hugepages-2Mi: 1Gi\n");
    let syntax = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    assert_eq!(
        lines(&problems.errors),
        [
            "/c.yaml:3: enforceNodeAllocatable: may not contain additional enforcements when \"none\" is specified"
                .to_owned(),
            format!("/c.yaml:5: systemReserved.cpu: \"1 core\": {syntax}"),
            "/c.yaml:6: systemReserved.memory: \"-1Gi\" is negative; it must be 0 or more".to_owned(),
            "/c.yaml:7: systemReserved.hugepages-2Mi: cannot reserve \"hugepages-2Mi\"; it must be cpu, memory, \
             ephemeral-storage or pid"
                .to_owned(),
        ]
    );
}

#[test]
fn a2_known_eviction_and_enforcement_fields_without_effect_are_warnings() {
    let (_, problems) = one("enforceNodeAllocatable: [pods, system-reserved, kube-reserved]\n\
         evictionHard: {memory.available: 1Gi, pid.available: 5%, containerfs.available: 15%}\n");
    let nothing = "known, but not honoured by wherry: it has no effect";
    assert_eq!(problems.errors, []);
    assert_eq!(
        lines(&problems.warnings),
        [
            format!("/c.yaml:4: evictionHard.containerfs.available: {nothing}"),
            format!("/c.yaml:3: enforceNodeAllocatable[1]: {nothing}"),
            format!("/c.yaml:3: enforceNodeAllocatable[2]: {nothing}"),
        ]
    );
}

#[test]
fn a2_labels_and_extended_resources_are_checked() {
    let head = "apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\n";
    let body = "nodeLabels:\n  kubernetes.io/os: linux\n  a b: c\n  a: b c\n  d: yes\n\
                extendedResources:\n  gpu: 1\n  node.kubernetes.io/gpu: 1\n  example.com/gpu: -1\n";
    let (_, problems) = read(&[("/c.yaml", &format!("{head}{}", body.replace("  d: yes\n", "")))], &Flags::default());
    let found = lines(&problems.errors);
    let begins = [
        "/c.yaml:4: nodeLabels.kubernetes.io/os: wherry sets this label itself; leave it out",
        "/c.yaml:5: nodeLabels.a b: name part must consist of",
        "/c.yaml:6: nodeLabels.a: a valid label must be",
        "/c.yaml:8: extendedResources.gpu: \"gpu\" doesn't follow extended resource name standard",
        "/c.yaml:9: extendedResources.node.kubernetes.io/gpu: \"node.kubernetes.io/gpu\" doesn't follow",
        "/c.yaml:10: extendedResources.example.com/gpu: -1 is negative; it must be 0 or more",
    ];
    assert_eq!(found.len(), begins.len(), "{found:#?}");
    assert!(found.iter().zip(begins).all(|(found, begin)| found.starts_with(begin)), "{found:#?}");
    let (_, problems) =
        read(&[("/c.yaml", &format!("{head}extendedResources: {{example.com/gpu: 1.5}}\n"))], &Flags::default());
    assert_eq!(
        lines(&problems.errors),
        ["/c.yaml:3: extendedResources.example.com/gpu: expected a whole number, found the number 1.5"]
    );
}

#[test]
fn the_limits_of_parallel_starts_are_at_least_one() {
    let head = "apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\n";
    let load = |sandboxes: i32, containers: i32| {
        let text = format!("{head}maxParallelSandboxStarts: {sandboxes}\nmaxParallelContainerStarts: {containers}\n");
        read(&[("/a", &text)], &Flags::default())
    };
    let (c, problems) = load(2, 9);
    assert_eq!(problems, Problems::default());
    assert_eq!((c.max_parallel_sandbox_starts, c.max_parallel_container_starts), (2, 9));
    let (_, problems) = load(0, -1);
    assert_eq!(
        lines(&problems.errors),
        ["/a:3: maxParallelSandboxStarts: must be 1 or more", "/a:4: maxParallelContainerStarts: must be 1 or more"]
    );
}

#[test]
fn the_file_of_credential_providers_is_read_with_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let load_with = |wherry: &str| {
        let text = format!("apiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\n{wherry}");
        std::fs::write(at("c.yaml"), text).unwrap();
        load(&Flags { config: Some(at("c.yaml")), config_dir: Some(PathBuf::new()), ..Flags::default() })
    };
    let bin = format!("imageCredentialProviderBinDir: {}\n", dir.path().display());
    let file = format!("imageCredentialProviderConfig: {}\n", at("p.yaml").display());
    let provider = "- {name: cloud, matchImages: [r.io], defaultCacheDuration: 1m, apiVersion: \
                    credentialprovider.kubelet.k8s.io/v1}";
    let good =
        format!("apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n{provider}\n");
    std::fs::write(at("p.yaml"), &good).unwrap();
    let loaded = load_with(&format!("dockerConfig: /etc/docker.json\n{bin}{file}"));
    assert!(loaded.is_ok(), "{:?}", loaded.problems);
    let warning = "is not a program; the provider cloud will fail";
    assert!(lines(&loaded.problems.warnings)[0].contains(warning), "{:?}", loaded.problems);
    let names: Vec<&str> = loaded.config.credential_providers.iter().map(|p| p.name.as_str()).collect();
    assert_eq!(
        (names.as_slice(), loaded.config.docker_config),
        (&["cloud"][..], Some(PathBuf::from("/etc/docker.json")))
    );
    std::fs::write(at("cloud"), "").unwrap();
    assert_eq!(load_with(&format!("{bin}{file}")).problems, Problems::default());

    let errors = |wherry: &str| lines(&load_with(wherry).problems.errors);
    let c = at("c.yaml").display().to_string();
    assert_eq!(
        [errors(&bin), errors(&file)].concat(),
        [
            format!("{c}:3: imageCredentialProviderBinDir: needs imageCredentialProviderConfig too"),
            format!("{c}:3: imageCredentialProviderConfig: needs imageCredentialProviderBinDir too"),
        ]
    );
    std::fs::write(at("p.yaml"), good.replace("cloud", "a/b")).unwrap();
    assert!(
        errors(&format!("{bin}{file}"))[0].starts_with(&format!("{}:4: providers[0].name: ", at("p.yaml").display()))
    );
    std::fs::remove_file(at("p.yaml")).unwrap();
    assert!(errors(&format!("{bin}{file}"))[0].contains("p.yaml: cannot be read: No such file"));
}

#[test]
fn the_thresholds_of_the_garbage_collection_of_images_are_those_of_a_kubelet() {
    let (c, problems) =
        one("imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\nimageMinimumGCAge: 0s\n\
         imageMaximumGCAge: 121s\n---\napiVersion: wherry.io/v1alpha1\nkind: WherryConfiguration\nimageGCPeriod: 1s\n");
    assert_eq!(problems, Problems::default());
    let expected = ImageGcPolicy {
        high_percent: 100,
        low_percent: 99,
        min_age: Duration::from_secs(120),
        max_age: Some(Duration::from_secs(121)),
        period: Duration::from_secs(1),
    };
    assert_eq!(c.image_gc, expected);
    assert_eq!(one("imageMaximumGCAge: 0s\nimageGCLowThresholdPercent: 0\n").0.image_gc.max_age, None);
    let low = "imageGCLowThresholdPercent";
    for (text, error) in [
        ("imageGCHighThresholdPercent: 101", "/c.yaml:3: imageGCHighThresholdPercent: must be between 0 and 100"),
        (
            "imageGCHighThresholdPercent: 80",
            "/c.yaml:3: imageGCHighThresholdPercent: must be more than imageGCLowThresholdPercent (80); it is 80",
        ),
        (
            &format!("{low}: 85"),
            "/c.yaml:3: imageGCLowThresholdPercent: must be less than imageGCHighThresholdPercent (85); it is 85",
        ),
        (
            "imageMaximumGCAge: 2m",
            "/c.yaml:3: imageMaximumGCAge: must be more than imageMinimumGCAge (2m0s), or 0s to turn it off",
        ),
    ] {
        assert_eq!(lines(&one(text).1.errors), [error]);
    }
}

#[test]
fn a_node_registers_with_the_default_taint_unless_others_are_configured() {
    let (c, problems) = one("port: 10250\n");
    assert_eq!((c.registration.taints().len(), c.registration.taints()[0].key.as_str()), (1, "wherry.io/limited"));
    assert_eq!(problems.errors, []);
    let (c, _) = one("registerWithTaints: []\nproviderID: dock://7\n");
    assert_eq!((c.registration.taints(), c.registration.provider_id.as_str()), (Vec::new(), "dock://7"));
    let (c, _) = one("registerWithTaints: [{key: quay, value: east, effect: NoExecute}]\n");
    let taint = &c.registration.taints()[0];
    assert_eq!((taint.key.as_str(), taint.value.as_str(), taint.effect.as_str()), ("quay", "east", "NoExecute"));
    let (_, problems) = one("registerWithTaints:\n- {value: east, effect: NoExecute}\n- {key: quay}\n\
                             - {key: a, effect: NoSchedule}\n- {key: a, value: b, effect: NoSchedule}\n");
    assert_eq!(
        lines(&problems.errors),
        [
            "/c.yaml:4: registerWithTaints[0].key: Required value: the key of the taint",
            "/c.yaml:5: registerWithTaints[1].effect: Required value: NoSchedule, PreferNoSchedule or NoExecute",
            "/c.yaml:7: registerWithTaints[3]: Duplicate value: a:NoSchedule; remove one of them",
        ]
    );
}
