//! The applications of tests/applications with kubectl: each is checked, applied, compared, used, changed, applied by the
//! server, and deleted.

use crate::services::{self, rules};
use crate::support::agent::{Agent, patience};
use crate::support::kubectl::Kubectl;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// An agent that runs a file of tests/applications.
struct Application {
    agent: Agent,
    k: Kubectl,
    /// The namespace of its objects.
    namespace: String,
    /// The path of a copy of the file.
    file: String,
}

impl Application {
    /// Checks and applies the file. Its Services have addresses of the network `10.99.NETWORK.0`, as all agents of the
    /// tests share the rules of the kernel.
    fn start(name: &str, network: u8, text: &str) -> Application {
        let (agent, k) = services::agent(name, &format!("10.99.{network}.0/24"));
        let file = k.file(&format!("{name}.yaml"), text);
        let checked = agent.command_of("check").arg(&file).output().expect("wherry");
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
        k.ok(&["apply", "-f", &file]);
        let of_file = text.lines().find_map(|line| line.strip_prefix("  namespace: "));
        let namespace = of_file.unwrap_or(&agent.namespace).to_owned();
        let application = Application { agent, k, namespace, file };
        application.wait_same(&[]);
        application
    }

    /// Waits until the objects are those of the file. kubectl reads each object twice, and also shows a status that
    /// changes meanwhile.
    fn wait_same(&self, options: &[&str]) {
        let words = [&["diff", "-f", &self.file], options].concat();
        self.wait("kubectl finds no difference", |app| {
            let printed = app.k.run_words(&words, b"");
            assert!(matches!(printed.code, 0 | 1), "{}", printed.err);
            printed.code == 0 && printed.out.is_empty()
        });
    }

    /// Applies another version of the file.
    fn apply(&self, text: &str) {
        self.k.ok(&["apply", "-f", &self.k.file("changed.yaml", text)]);
    }

    /// Runs kubectl in the namespace of the application. The command must succeed.
    fn run(&self, words: &[&str]) -> String {
        self.k.ok(&[&["-n", &self.namespace], words].concat())
    }

    fn cells(&self, words: &[&str]) -> Vec<String> {
        let line = self.run(&[words, &["--no-headers"]].concat());
        line.split_whitespace().map(str::to_owned).collect()
    }

    /// Returns one field of an object.
    fn field(&self, object: &str, path: &str) -> String {
        self.run(&["get", object, "-o", &format!("jsonpath={{{path}}}")])
    }

    fn rolled_out(&self, workloads: &[&str]) {
        let timeout = format!("--timeout={}s", patience(120).as_secs());
        for workload in workloads {
            self.run(&["rollout", "status", workload, &timeout]);
        }
    }

    /// Waits until a Job is complete. Returns its output.
    fn output_of_job(&self, job: &str) -> String {
        let timeout = format!("--timeout={}s", patience(120).as_secs());
        self.run(&["wait", "--for=condition=complete", job, &timeout]);
        self.run(&["logs", job])
    }

    fn wait(&self, what: &str, condition: impl Fn(&Application) -> bool) {
        self.agent.wait(what, |_| condition(self));
    }

    /// The names of the pods with a label that are not being deleted.
    fn pods(&self, label: &str) -> BTreeSet<String> {
        let path = "jsonpath={range .items[*]}{.metadata.name}{\" \"}{.metadata.deletionTimestamp}{\"\\n\"}{end}";
        let lines = self.run(&["get", "pods", "-l", label, "-o", path]);
        let names = lines.lines().filter_map(|line| line.strip_suffix(' '));
        names.map(str::to_owned).collect()
    }

    /// The output of a shell command in a pod. Empty if it fails.
    fn shell(&self, pod: &str, command: &str) -> String {
        let words = ["-n", &self.namespace, "exec", pod, "--", "sh", "-c", command];
        self.k.run_words(&words, b"").out
    }

    /// What a server says to a pod that sends it a line. Empty if it cannot be reached.
    fn said(&self, pod: &str, server: &str, line: &str) -> String {
        self.shell(pod, &format!("echo '{line}' | timeout 5 nc {server}"))
    }

    /// The page that a pod gets from a server. `server`: its name and its port. Empty if it cannot be reached.
    fn page(&self, pod: &str, server: &str, path: &str) -> String {
        let request = format!("printf 'GET {path} HTTP/1.0\\r\\n\\r\\n' | timeout 5 nc {server}");
        body(&self.shell(pod, &request))
    }

    /// The page that this machine gets from its own port.
    fn page_here(&self, port: u16, path: &str) -> String {
        body(&self.said_here(port, &format!("GET {path} HTTP/1.0\r\n\r\n")))
    }

    /// What the server at a port of this machine answers. Empty if it cannot be reached.
    fn said_here(&self, port: u16, text: &str) -> String {
        let mut answer = Vec::new();
        let server = SocketAddr::new(self.address_of_node().parse().expect("an address"), port);
        let limit = Duration::from_secs(60);
        let mut ask = || -> std::io::Result<usize> {
            let mut stream = TcpStream::connect_timeout(&server, limit)?;
            stream.set_read_timeout(Some(limit))?;
            stream.write_all(text.as_bytes())?;
            stream.read_to_end(&mut answer)
        };
        let _ = ask();
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn address_of_node(&self) -> String {
        self.k.ok(&["get", "node", "-o", "jsonpath={.items[0].status.addresses[0].address}"])
    }

    /// The directory of a claim.
    fn claim(&self, name: &str) -> PathBuf {
        self.agent.root().join("claims").join(&self.namespace).join(name)
    }

    /// Deletes the objects of the file. Neither pods nor rules of its Services are left.
    fn remove(&self) {
        let addresses = self.run(&["get", "services", "-o", "jsonpath={.items[*].spec.clusterIP}"]);
        let addresses: Vec<&str> = addresses.split_whitespace().filter(|address| *address != "None").collect();
        let have_rules = || addresses.iter().filter(|address| rules().contains(**address)).count();
        self.wait("each Service has rules", |_| have_rules() == addresses.len());
        // The server applies the whole file, so nothing of a later version is left.
        let applied = self.k.ok(&["apply", "--server-side", "-f", &self.file]);
        assert_eq!(applied.lines().filter(|line| !line.ends_with(" serverside-applied")).count(), 0, "{applied}");
        self.wait_same(&["--server-side"]);
        self.k.ok(&["delete", "-f", &self.file, "--ignore-not-found"]);
        self.agent.wait("no pod is left", |agent| agent.pods().is_empty());
        assert_eq!(self.k.ok(&["get", "services,endpoints,endpointslices", "-A", "-o", "name"]), "");
        self.wait("no rules of its Services are left", |_| have_rules() == 0);
    }
}

fn body(answer: &str) -> String {
    answer.split_once("\r\n\r\n").map_or_else(String::new, |(_, body)| body.to_owned())
}

/// The content of a file. Empty if there is none.
fn content(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn owner(path: &Path) -> u32 {
    fs::metadata(path).expect("a file").uid()
}

#[test]
fn a_compose_file_that_kompose_has_converted() {
    let app = Application::start("kompose", 1, include_str!("../applications/kompose.yaml"));
    app.rolled_out(&["deploy/db", "deploy/web", "deploy/worker"]);
    let front = |app: &Application| app.page("deploy/worker", "web 8080", "/");
    app.wait("the front page shows what the worker stores", |app| front(app).starts_with("All tallies\ntally 1\n"));
    let claim = app.cells(&["get", "pvc", "-l", "io.kompose.service=db-data"]);
    assert_eq!([&claim[0], &claim[1], &claim[3]], ["db-data", "Bound", "100Mi"]);
    assert_eq!(app.cells(&["get", "svc", "web"])[4], "8080/TCP");

    // A new database has the rows of the old one, and the worker finds it under the same name.
    let rows = content(&app.claim("db-data").join("rows"));
    app.run(&["rollout", "restart", "deploy/db"]);
    app.rolled_out(&["deploy/db"]);
    app.wait("further rows are added", |app| {
        front(app).strip_prefix("All tallies\n").is_some_and(|now| now.starts_with(&rows) && now.len() > rows.len())
    });
    app.run(&["set", "env", "deploy/web", "TITLE=Tallies of today"]);
    app.rolled_out(&["deploy/web"]);
    app.wait("the title has changed", |app| front(app).starts_with("Tallies of today\ntally 1\n"));
    app.remove();
}

#[test]
fn a_release_of_a_helm_chart() {
    let text = include_str!("../applications/helm-chart.yaml");
    let app = Application::start("helm", 2, text);
    let deployment = "deploy/shop-storefront";
    app.rolled_out(&[deployment]);
    let labels = "app.kubernetes.io/instance=shop,app.kubernetes.io/managed-by=Helm";
    assert_eq!(app.run(&["get", "deploy", "-l", labels, "-o", "name"]), "deployment.apps/shop-storefront\n");
    let front = |app: &Application| app.page(deployment, "shop-storefront 80", "/");
    app.wait("the Service leads to the named port", |app| front(app) == "storefront 1.16.0\n");
    app.run(&["scale", deployment, "--replicas=2"]);
    app.rolled_out(&[deployment]);
    let slices = "endpointslices";
    app.wait("both pods are endpoints", |app| {
        app.field(slices, ".items[0].endpoints[*].conditions.ready") == "true true"
    });

    // The file does not set the number of replicas, so an upgrade keeps it.
    app.apply(&text.replace("1.16.0", "1.17.0"));
    app.rolled_out(&[deployment]);
    app.wait("all pods have the new version", |app| {
        app.pods("app.kubernetes.io/version=1.17.0").len() == 2
            && app.pods("app.kubernetes.io/version=1.16.0").is_empty()
    });
    app.wait("the new version answers", |app| front(app) == "storefront 1.17.0\n");
    app.wait("the old pods are gone", |app| app.cells(&["get", "pods", "-o", "name"]).len() == 2);
    assert_eq!(app.field("pods", ".items[*].status.containerStatuses[0].restartCount"), "0 0");
    app.remove();
}

#[test]
fn home_assistant_publishes_to_mosquitto() {
    let app = Application::start("homeassistant", 3, include_str!("../applications/home-assistant.yaml"));
    app.rolled_out(&["deploy/mosquitto", "deploy/home-assistant"]);
    let messages = app.claim("mosquitto-data").join("messages");
    app.wait("the broker has the messages", |_| content(&messages).contains("homeassistant/status online\n"));
    assert_eq!(owner(&messages), 1883);
    let publish = |login: &str| app.said("deploy/home-assistant", "mosquitto 1883", &format!("{login} door/bell once"));
    assert_eq!((publish("doorbell:dong"), publish("doorbell:ding")), ("refused\n".into(), "accepted\n".into()));
    assert_eq!(content(&messages).matches("door/bell once\n").count(), 1);

    // The configuration in the claim belongs to the user: a new pod does not copy the defaults again.
    let front = |app: &Application| app.page("deploy/mosquitto", "home-assistant 8123", "/");
    app.wait("the front page has the default name", |app| front(app) == "Boathouse\n");
    app.shell("deploy/home-assistant", "sed -i s/Boathouse/Lighthouse/ /config/configuration.yaml");
    app.run(&["rollout", "restart", "deploy/home-assistant"]);
    app.rolled_out(&["deploy/home-assistant"]);
    app.wait("the front page has the new name", |app| front(app) == "Lighthouse\n");
    app.remove();
}

#[test]
fn node_exporter_serves_the_metrics_of_the_machine() {
    let app = Application::start("nodeexporter", 4, include_str!("../applications/node-exporter.yaml"));
    app.rolled_out(&["ds/node-exporter"]);
    let cells = app.cells(&["get", "ds", "node-exporter"]);
    assert_eq!(cells[1..7], ["1", "1", "1", "1", "1", "kubernetes.io/os=linux"]);
    let metrics = app.page_here(9100, "/metrics");
    let stat = content(Path::new("/proc/stat"));
    let boot = stat.lines().find_map(|line| line.strip_prefix("btime ")).expect("a time");
    assert!(metrics.contains(&format!("node_boot_time_seconds {boot}\n")), "{metrics}");
    assert!(metrics.contains("{node=\"node\",version=\"1.9.1\"}"), "{metrics}");
    let node = app.address_of_node();
    app.wait("the headless Service has the address of the machine", |app| {
        app.cells(&["get", "endpoints", "node-exporter"])[1] == format!("{node}:9100")
    });
    let mounts = app.shell("ds/node-exporter", "grep -E ' /host/(proc|sys) ' /proc/mounts");
    let options: Vec<&str> = mounts.lines().filter_map(|line| line.split(' ').nth(3)).collect();
    assert!(options.len() == 2 && options.iter().all(|option| option.starts_with("ro,")), "{mounts}");

    // The new pod needs the same port of the machine.
    app.run(&["set", "env", "ds/node-exporter", "VERSION=1.10.0"]);
    app.rolled_out(&["ds/node-exporter"]);
    app.wait("the new version answers", |app| app.page_here(9100, "/metrics").contains("version=\"1.10.0\""));
    app.remove();
}

#[test]
fn postgres_keeps_its_rows_when_its_pod_is_deleted() {
    let app = Application::start("postgres", 5, include_str!("../applications/postgres.yaml"));
    app.rolled_out(&["sts/postgres"]);
    let ask = |app: &Application, server: &str, line: &str| app.said("postgres-0", &format!("{server} 5432"), line);
    let rows = |app: &Application| ask(app, "postgres", "starboard select");
    app.wait("the first start has filled the database", |app| rows(app) == "berth 1: Marlin\nberth 2: Heron\n");
    let pod = "postgres-0.postgres-headless";
    assert_eq!(ask(&app, pod, "starboard insert berth 3: Tern"), "INSERT 0 1\n");
    assert_eq!(ask(&app, "postgres", "larboard select"), "FATAL: password authentication failed\n");
    let file = app.claim("data-postgres-0").join("postgres/pgdata/rows");
    assert_eq!((owner(&file), content(&file).lines().count()), (999, 3));

    let uid = app.field("pod/postgres-0", ".metadata.uid");
    app.run(&["delete", "pod", "postgres-0"]);
    app.wait("another pod has the rows", |app| rows(app) == "berth 1: Marlin\nberth 2: Heron\nberth 3: Tern\n");
    assert_ne!(app.field("pod/postgres-0", ".metadata.uid"), uid);
    assert_eq!(app.run(&["logs", "postgres-0"]), "ready to accept connections\n");
    app.remove();
    // As in a cluster, the claim of the StatefulSet stays.
    assert_eq!(app.run(&["get", "pvc", "-o", "name"]), "persistentvolumeclaim/data-postgres-0\n");
    app.run(&["delete", "pvc", "data-postgres-0"]);
}

#[test]
fn a_nightly_backup_saves_the_files_and_keeps_the_newest_archives() {
    let app = Application::start("backup", 6, include_str!("../applications/backup.yaml"));
    app.rolled_out(&["deploy/logbook"]);
    let cells = app.cells(&["get", "cronjob", "logbook-backup"]);
    assert_eq!(cells[..10], ["logbook-backup", "30", "2", "*", "*", "*", "Europe/Berlin", "False", "0", "<none>"]);
    let backups = app.claim("logbook-backups");
    let archives = || {
        let entries = fs::read_dir(&backups).expect("a directory").flatten();
        entries.map(|entry| entry.path()).collect::<BTreeSet<PathBuf>>()
    };
    for (job, said) in [
        ("run-1", "saved 2 files\n"),
        ("run-2", "saved 2 files\n"),
        ("run-3", "saved 2 files\nremoved an old archive\n"),
    ] {
        app.run(&["create", "job", job, "--from=cronjob/logbook-backup"]);
        assert_eq!(app.output_of_job(&format!("job/{job}")), said);
    }
    assert_eq!(archives().len(), 2);
    let newest = archives().pop_last().expect("an archive");
    assert!(newest.to_string_lossy().contains("run-3"), "{}", newest.display());
    let unpacked = Command::new("tar").arg("-xzOf").arg(&newest).arg("./2026/june.txt").output().expect("tar");
    assert_eq!(String::from_utf8_lossy(&unpacked.stdout), "fair wind from the west\n");
    // Jobs that a user creates stay when their CronJob is deleted.
    app.run(&["delete", "job", "run-1", "run-2", "run-3"]);
    app.remove();
}

#[test]
fn wordpress_keeps_its_posts_and_uploads() {
    let app = Application::start("wordpress", 7, include_str!("../applications/wordpress.yaml"));
    app.rolled_out(&["deploy/wordpress-mysql", "deploy/wordpress"]);
    let cells = app.cells(&["get", "svc", "wordpress"]);
    assert_eq!(
        (cells[1].as_str(), cells[3].as_str(), cells[4].as_str()),
        ("LoadBalancer", "<pending>", "80:30081/TCP")
    );
    app.wait("the site answers on the port of the machine", |app| {
        app.page_here(30081, "/") == "Letters from the quay\n"
    });
    assert_eq!(app.page_here(30081, "/cgi-bin/post?Ebb-and-flow"), "ok\n");
    assert_eq!(app.page_here(30081, "/"), "Letters from the quay\nEbb-and-flow\n");
    app.shell("deploy/wordpress", "echo photo > /var/www/html/wp-content/uploads/quay.txt");

    app.run(&["set", "env", "deploy/wordpress", "BLOG_TITLE=Letters from the pier"]);
    app.rolled_out(&["deploy/wordpress"]);
    let front = "Letters from the pier\nEbb-and-flow\n";
    app.wait("the new site has the post", |app| app.page_here(30081, "/") == front);
    assert_eq!(app.page_here(30081, "/wp-content/uploads/quay.txt"), "photo\n");
    // The name of a headless Service leads to the new pod.
    app.run(&["delete", "pod", "-l", "tier=mysql"]);
    app.rolled_out(&["deploy/wordpress-mysql"]);
    app.wait("the new database has the post", |app| app.page_here(30081, "/") == front);
    assert_eq!(content(&app.claim("mysql-pv-claim").join("posts")), "Ebb-and-flow\n");
    app.remove();
}

#[test]
fn the_guestbook_finds_its_databases_by_variables_and_by_name() {
    let app = Application::start("guestbook", 8, include_str!("../applications/guestbook.yaml"));
    app.rolled_out(&["deploy/redis-leader", "deploy/redis-follower", "deploy/frontend"]);
    let leader = app.field("svc/redis-leader", ".spec.clusterIP");
    let variables = app.shell("deploy/frontend", "echo $REDIS_LEADER_SERVICE_HOST:$REDIS_LEADER_SERVICE_PORT");
    assert_eq!(variables, format!("{leader}:6379\n"));
    app.wait("a visitor signs", |app| app.page("deploy/redis-leader", "frontend 80", "/cgi-bin/sign?Ann") == "OK\n");
    let visits = |app: &Application| {
        let visit = "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | timeout 5 nc frontend 80";
        let pages = app.shell("deploy/redis-leader", &format!("for n in $(seq 60); do {visit}; done"));
        let pages: Vec<String> = pages.split("HTTP/1.1 200 OK").map(body).filter(|page| !page.is_empty()).collect();
        pages.into_iter().collect::<BTreeSet<_>>()
    };
    let signed = |app: &Application| {
        let frontends = app.pods("tier=frontend").into_iter();
        frontends.map(|pod| format!("Guestbook, served by {pod}\nAnn\n")).collect::<BTreeSet<_>>()
    };
    app.wait("all three frontends show the entry", |app| signed(app).len() == 3 && visits(app) == signed(app));

    // New followers copy the entries, and a single frontend is enough.
    app.run(&["delete", "pod", "-l", "role=follower"]);
    app.run(&["scale", "deploy/frontend", "--replicas=1"]);
    app.rolled_out(&["deploy/redis-follower", "deploy/frontend"]);
    app.wait("the last frontend shows the entry", |app| signed(app).len() == 1 && visits(app) == signed(app));
    app.remove();
}

#[test]
fn the_output_of_kustomize_is_rolled_out_with_a_new_config_map() {
    let text = include_str!("../applications/kustomize.yaml");
    let app = Application::start("kustomize", 9, text);
    let deployment = "deploy/staging-orders";
    app.rolled_out(&[deployment]);
    assert_eq!(
        app.k.ok(&["get", "pods,deploy,svc,cm", "-o", "name"]),
        "",
        "all objects have the namespace of the file"
    );
    let front = |app: &Application| app.page(deployment, "staging-orders.orders-staging.svc.cluster.local 80", "/");
    app.wait("the Service answers", |app| front(app) == "Welcome aboard\n");
    assert_eq!(app.run(&["logs", deployment]), "log level info, token anchor\n");

    app.apply(&text.replace("7hf2m9gkt4", "m8t5k2ck6f").replace("Welcome aboard", "Ahoy"));
    app.rolled_out(&[deployment]);
    app.wait("the new ConfigMap is used", |app| front(app) == "Ahoy\n");
    assert_eq!(app.cells(&["get", "cm", "-o", "name"]).len(), 2);
    app.run(&["rollout", "undo", deployment]);
    app.rolled_out(&[deployment]);
    app.wait("the old ConfigMap is used again", |app| front(app) == "Welcome aboard\n");
    app.run(&["delete", "cm", "staging-orders-config-m8t5k2ck6f"]);
    app.remove();
}

#[test]
fn prometheus_scrapes_and_follows_its_configuration() {
    let text = include_str!("../applications/prometheus.yaml");
    let app = Application::start("prometheus", 10, text);
    app.rolled_out(&["deploy/prometheus", "deploy/pushgateway"]);
    let samples = app.claim("prometheus-storage").join("samples");
    app.wait("it has samples", |_| content(&samples).contains("boats_moored{job=\"quay\"} 7\n"));
    assert_eq!(owner(&samples), 65534);
    let ready = |app: &Application| app.page("deploy/pushgateway", "prometheus 9090", "/-/ready");
    app.wait("its Service answers", |app| ready(app) == "Prometheus Server is Ready.\n");
    assert_eq!(app.shell("deploy/prometheus", "id -u; touch /new || echo read-only"), "65534\nread-only\n");

    // The file of the ConfigMap changes in the running container.
    let before = app.pods("app.kubernetes.io/name=prometheus");
    app.apply(&text.replace("job_name: quay", "job_name: harbour"));
    app.wait("it has samples of the new job", |_| content(&samples).contains("boats_moored{job=\"harbour\"} 7\n"));
    assert_eq!(app.pods("app.kubernetes.io/name=prometheus"), before);
    app.run(&["set", "env", "deploy/pushgateway", "BOATS=9"]);
    app.rolled_out(&["deploy/pushgateway"]);
    app.wait("it scrapes the new pod", |_| content(&samples).ends_with("boats_moored{job=\"harbour\"} 9\n"));
    app.remove();
}

#[test]
fn workers_take_each_job_out_of_the_queue_once() {
    let app = Application::start("queue", 11, include_str!("../applications/queue.yaml"));
    app.rolled_out(&["deploy/queue", "deploy/queue-worker"]);
    let label = "app.kubernetes.io/name=queue";
    assert_eq!(app.cells(&["get", "pods", "-l", label])[1], "2/2", "the queue and its sidecar");
    assert_eq!(app.run(&["get", "pods", "-l", label, "-o", "jsonpath={.items[0].spec.priority}"]), "100000");
    let pushed = |app: &Application, jobs: &str| {
        app.shell("deploy/queue", &format!("for n in {jobs}; do echo \"push job $n\" | timeout 5 nc queue 6379; done"))
    };
    app.wait("the queue takes a job", |app| pushed(app, "1") == "queued\n");
    assert_eq!(pushed(&app, "2 3 4 5 6"), "queued\n".repeat(5));
    let done = |app: &Application| {
        let lines = app.run(&["logs", "-l", "app.kubernetes.io/name=queue-worker", "--tail=-1"]);
        let mut done: Vec<String> =
            lines.lines().filter(|line| line.starts_with("done: ")).map(str::to_owned).collect();
        done.sort();
        done
    };
    app.wait("all jobs are done", |app| done(app).len() >= 6);
    let each_once: Vec<String> = (1..=6).map(|n| format!("done: job {n}")).collect();
    assert_eq!(done(&app), each_once);
    let metrics = |app: &Application| app.page("deploy/queue", "queue 9121", "/metrics");
    assert_eq!(metrics(&app), "queue_jobs_waiting 0\nqueue_jobs_taken 6\n");

    // Without workers, a job waits in the queue.
    app.run(&["scale", "deploy/queue-worker", "--replicas=0"]);
    app.wait("the workers are gone", |app| app.cells(&["get", "pods", "-o", "name"]).len() == 1);
    assert_eq!(pushed(&app, "7"), "queued\n");
    assert_eq!(metrics(&app), "queue_jobs_waiting 1\nqueue_jobs_taken 6\n");
    app.run(&["scale", "deploy/queue-worker", "--replicas=1"]);
    app.rolled_out(&["deploy/queue-worker"]);
    app.wait("a new worker does the job", |app| done(app) == ["done: job 7"]);
    app.remove();
}

#[test]
fn gitea_starts_when_a_job_has_prepared_its_claim() {
    let text = include_str!("../applications/gitea.yaml");
    let app = Application::start("gitea", 12, text);
    assert_eq!(app.output_of_job("job/gitea-migrate"), "migrated to schema 299\n");
    app.rolled_out(&["deploy/gitea"]);
    assert_eq!(app.run(&["logs", "deploy/gitea", "-c", "wait-for-migration"]), "schema 299 is there\n");
    assert_eq!(app.cells(&["get", "svc", "gitea"])[4], "3000:30030/TCP,22:30022/TCP");
    app.wait("the page comes from the claim", |app| app.page_here(30030, "/") == "schema 299\n");
    assert_eq!(app.said_here(30022, "boats\n"), "created boats\n");
    assert_eq!(owner(&app.claim("gitea-data").join("git/boats.git")), 1000);

    app.run(&["delete", "pod", "-l", "app=gitea"]);
    app.rolled_out(&["deploy/gitea"]);
    app.wait("the new pod has the repository", |app| app.page_here(30030, "/") == "schema 299\nboats.git\n");
    // The migration can run again.
    app.run(&["delete", "job", "gitea-migrate"]);
    app.wait("its pod is gone", |app| app.pods("app=gitea-migrate").is_empty());
    app.apply(text);
    assert_eq!(app.output_of_job("job/gitea-migrate"), "the schema is 299 already\n");
    app.remove();
}
