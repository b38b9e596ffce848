//! The definition of the command line: its commands with their arguments, help texts and examples.

use super::output::Failure;
use super::select::{PodArgs, select};
use super::status_format::StatusFormat;
use super::{
    attach, cp, debug_pod, describe, drain, exec, join, keep, kubeconfig, leave, pods, port_forward, support, top,
};
use crate::api::selector::Selector;
use crate::config::{self, Flags};
use clap::{ArgGroup, Args, CommandFactory as _, Parser, Subcommand};
use jiff::Timestamp;
use std::path::PathBuf;
use std::time::Duration;

/// A Kubernetes node agent for small machines: runs the pods of a directory of manifests.
#[derive(Debug, Parser)]
#[command(name = "wherry", version, max_term_width = 100, after_help = AFTER_HELP)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

/// Returns the definition of the command line, for man pages and completions (packaging/texts).
pub fn definition() -> clap::Command {
    Cli::command()
}

const AFTER_HELP: &str = "\
Files:
  /etc/wherry/config.yaml   configuration (a KubeletConfiguration), drop-ins in /etc/wherry/config.d
  /etc/wherry/manifests     pods, one or more in a file
  /run/wherry/wherry.sock   control socket";

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the node agent
    ///
    /// Reads the configuration and the manifests, connects to the container runtime, and runs the pods. Pods keep
    /// running when the agent stops (SIGTERM); the agent adopts them when it starts again. On SIGHUP, it reads the
    /// configuration and the manifests again.
    Run(Flags),
    /// Check configuration and manifests, or the machine
    ///
    /// Checks FILES. Each is a configuration or a manifest; wherry detects which. Without FILES, checks the
    /// configuration and all manifests that `wherry run` would read. Prints a line for each problem with file, line,
    /// field and error. A FILE is a regular file or a directory; other kinds of files are not opened. `-` reads
    /// standard input.
    ///
    /// With --system, checks the machine instead: kernel, cgroups, container runtime and its network, logind,
    /// directories, disk, clock. Prints a line for each check: ok, warning or error, and what to do. Changes nothing.
    /// Takes at most 5 s, or a few seconds more if a file system hangs; the output then names the path that does not
    /// respond.
    ///
    /// With --join, takes the arguments of `wherry join`, and checks beforehand whether it can succeed: address,
    /// token, CA, clock, permissions, server version, pod network, node port. Changes nothing.
    ///
    /// Exit code: 0 no errors (with --system and --join there may be warnings), 1 at least one error, 2 a file cannot
    /// be read or the command line is invalid.
    #[command(group(ArgGroup::new("report").args(["system", "join"])))]
    Check {
        /// Files, directories of manifests, or - for standard input; with --join, the address of the API server
        #[arg(conflicts_with = "system")]
        files: Vec<PathBuf>,
        /// Check the machine instead of files
        #[arg(long)]
        system: bool,
        /// Check whether `wherry join` with the same arguments can succeed
        #[arg(long)]
        join: bool,
        #[command(flatten)]
        target: join::JoinTarget,
        /// Output format of --system or --join instead of text
        #[arg(short, long, value_enum, requires = "report")]
        output: Option<StatusFormat>,
        #[command(flatten)]
        config: Flags,
    },
    /// List the pods on this node
    Pods {
        #[command(flatten)]
        query: pods::PodQuery,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Show the details of a pod
    ///
    /// Shows a summary of the spec, the states of the containers, the conditions, what the pod waits for and for how
    /// long, and its last events. If a pod is being replaced, shows both the old and the new one.
    Describe {
        #[command(flatten)]
        pod: PodArgs,
        /// Output format instead of text: the pod as a document, with `wherry` and `events` added
        #[arg(short, long, value_enum)]
        output: Option<describe::Format>,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Show events
    ///
    /// Shows the events of pods and of the node, the latest last. Events survive a restart of wherry. Wherry keeps up
    /// to 50 events of each pod until an hour after the pod is removed, and events of the node for an hour.
    Events {
        /// Show only events of this pod: NAME, NAMESPACE/NAME, or a UID
        pod: Option<String>,
        /// Show only events of pods in this namespace
        #[arg(short, long)]
        namespace: Option<String>,
        /// Show the events of all namespaces (the default; accepted for compatibility with kubectl)
        #[arg(short = 'A', long, conflicts_with = "namespace")]
        all_namespaces: bool,
        /// Show only events of these types: Normal, Warning
        #[arg(long, value_delimiter = ',', value_name = "TYPE")]
        types: Vec<String>,
        /// Output format instead of the table; with --watch, one document per line
        #[arg(short, long, value_enum)]
        output: Option<StatusFormat>,
        /// After the list, print each new event and each repetition of an event
        #[arg(short, long)]
        watch: bool,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Print the logs of a pod's containers
    ///
    /// Prints the log of a container's newest run, including its rotated files. With --follow, continues when the
    /// container is restarted (kubectl does not), and ends when the pod is removed or the container is not restarted.
    /// If no agent is running, finds the files by their names.
    Logs(LogsArgs),
    /// Retry the admission of a rejected pod
    ///
    /// A pod that the node rejected (OutOfcpu, NodeAffinity, ...) stays rejected until its manifest changes. This
    /// command considers it for admission again, as if it were new, and prints the outcome. A pod that was rejected
    /// because the node is shutting down is retried automatically when the shutdown is over. A pod that waits for
    /// resources, or was preempted, does not need a retry.
    ///
    /// Exit code: 0 the pod was retried, 1 the pod is not rejected or does not exist.
    Retry {
        #[command(flatten)]
        pod: PodArgs,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Stop pods until `wherry undrain`
    ///
    /// Stops each pod with its grace period and its preStop hooks. The pod ends as Failed with the reason Drained and
    /// is not started again until `wherry undrain`: not by a restart of wherry, a reboot, or a new version of its
    /// manifest. Meanwhile it uses no resources of the node. To start the pod afresh, remove its manifest, wait until
    /// the pod is gone, and add the manifest again. The command waits until the pods have stopped; Ctrl-C ends the
    /// wait but not the drain. A pod that a PodDisruptionBudget protects is stopped as soon as the budget allows it,
    /// while the command waits.
    ///
    /// Exit code: 0 the pods have stopped, 1 they did not stop within the timeout, or a pod does not exist, 130 after
    /// Ctrl-C.
    #[command(after_help = DRAIN_EXAMPLES)]
    Drain(DrainArgs),
    /// Start no new pods on this node until `wherry uncordon`
    ///
    /// Pods that have started on this node continue, and their containers restart as usual, even after a restart of
    /// wherry and a reboot. A pod whose manifest appears meanwhile waits. This is the same as `kubectl cordon`; with
    /// `kubectl drain`, the pods of the node are evicted too, and wait for `wherry uncordon` or `kubectl uncordon`. A
    /// node of a cluster becomes unschedulable at its API server.
    Cordon {
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Let new and evicted pods start again
    ///
    /// Ends `wherry cordon`, `kubectl cordon` and `kubectl drain`. Pods that were drained with `wherry drain` wait for
    /// `wherry undrain`.
    Uncordon {
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Run a command in a container
    ///
    /// Runs the command in the container's own namespaces, without a shell. Without -i and -t, the command has no
    /// input, and its output is printed after it has ended: stdout, then stderr, at most 16 MiB. Ctrl-C or the
    /// timeout ends the command.
    ///
    /// With -i the command reads stdin, with -t it has a terminal. In both cases its output is printed immediately
    /// and without a limit. The session is connected to the runtime, so it survives a restart of wherry. With -it,
    /// Ctrl-C goes to the command. With -i alone, Ctrl-C ends only the session, and the command sees the end of its
    /// input.
    ///
    /// Exit code: that of the command; 124 the command exceeded the timeout and was killed, 126 it cannot be
    /// executed, 127 it was not found, 125 any other failure: no such pod or container, the container is not running,
    /// no agent.
    #[command(after_help = EXEC_EXAMPLES)]
    Exec {
        #[command(flatten)]
        query: exec::ExecArgs,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Attach to the process of a container
    ///
    /// Prints the output of the container's own process from now on, and with -i sends it input. Ends when the
    /// process ends. With -it all keys go to the process, including Ctrl-C. The detach keys (--detach-keys) or a
    /// signal to wherry attach end the session and leave the process running. The end of the input (-i) closes the
    /// stdin of the process only if the manifest has `stdinOnce: true`.
    ///
    /// Exit code: 0 the process has ended, 1 the container has no such stream or is not running, or the connection is
    /// lost.
    #[command(after_help = ATTACH_EXAMPLES)]
    Attach {
        #[command(flatten)]
        query: attach::AttachArgs,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Copy files between this machine and a container
    ///
    /// One of the paths is POD:PATH. Copies a file, or a directory and everything in it, and keeps the permissions.
    /// The copy belongs to the user who runs the command, or to the user of the container. The container must have
    /// the program tar. From a container, symbolic links that point outside the copy, devices, and the setuid and
    /// setgid permissions are not copied.
    ///
    /// Exit code: 0 everything was copied, 1 something was not copied; stderr lists it.
    #[command(after_help = CP_EXAMPLES)]
    Cp {
        #[command(flatten)]
        query: cp::CopyArgs,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Forward local ports to a pod
    ///
    /// Listens on this machine and forwards each connection to a port of the pod, even if the pod listens on its own
    /// localhost only. Runs until Ctrl-C. Each connection goes to the pod that runs at that time, so the command
    /// continues when the pod or wherry is restarted.
    ///
    /// Exit code: 1 the pod does not exist or is not running, or a local port is in use.
    #[command(after_help = PORT_FORWARD_EXAMPLES)]
    PortForward {
        #[command(flatten)]
        query: port_forward::PortForwardArgs,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Show the resource usage of pods and containers
    ///
    /// Shows CPU usage over one second (with --watch, over the interval; 1000m is one CPU), memory (the working set)
    /// and restarts, as the runtime reports them. The highest usage comes first. A `-` means that the value is not
    /// known yet, because the container has just started.
    #[command(after_help = TOP_EXAMPLES)]
    Top(TopArgs),
    /// Let drained pods run again
    ///
    /// Considers each pod for admission as if it were new: it starts if it fits, otherwise it waits or is rejected.
    ///
    /// Exit code: 0 the pods may run again, 1 none of the named pods was drained.
    #[command(after_help = UNDRAIN_EXAMPLES)]
    Undrain {
        #[command(flatten)]
        which: WhichArgs,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// List the images of the runtime
    ///
    /// Shows the size of each image, the time since its last use (since the start of wherry), the pods that use it,
    /// and why garbage collection keeps it, or its position in the order of removal.
    Images {
        /// Output format instead of the table
        #[arg(short, long, value_enum)]
        output: Option<describe::Format>,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// List the directories of claims
    ///
    /// Shows for each PersistentVolumeClaim its directory, its size on disk (those that cannot be measured within 20 s
    /// have none), the pods that use it, and what happens with it when the claim is deleted. A directory that is kept
    /// (Released) belongs to the next claim of its name.
    #[command(after_help = VOLUMES_EXAMPLES, args_conflicts_with_subcommands = true)]
    Volumes {
        #[command(subcommand)]
        command: Option<VolumesCommand>,
        /// Output format instead of the table
        #[arg(short, long, value_enum)]
        output: Option<describe::Format>,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Grant access with kubectl
    ///
    /// Issues a client certificate for the API for kubectl, and prints a kubeconfig with it. The kubeconfig contains
    /// the key: keep it private. Works on the files in the state directory, with or without a running agent; run it as
    /// root. The agent serves kubectl if kubectlPort is set in the configuration.
    ///
    /// --merge adds a cluster, a user and a context to an existing kubeconfig, or replaces those of the same name,
    /// and keeps everything else except comments. Under sudo, the default file is that of the user who called sudo,
    /// and a new file belongs to that user.
    ///
    /// If the host of --server is not in the serving certificate, as with a tunnel, the kubeconfig tells kubectl to
    /// expect the node's name.
    ///
    /// Exit code: 0 success, 1 failure; stderr has the reason.
    #[command(after_help = KUBECONFIG_EXAMPLES)]
    Kubeconfig(kubeconfig::KubeconfigArgs),
    /// Make this machine a node of a cluster
    ///
    /// Takes the arguments of `kubeadm join`, as `kubeadm token create --print-join-command` prints them, or a
    /// kubeconfig. Verifies the cluster, requests a client certificate for the node and waits until it is approved,
    /// and writes the certificate, a kubeconfig and a configuration drop-in. Then restarts the service if it is
    /// running. Pods keep running.
    ///
    /// A join that was interrupted can be repeated: it continues with the same key and request. If the machine is a
    /// node of the cluster already, the command changes nothing and succeeds.
    ///
    /// Exit code: 0 success, 1 failure, 2 the command line is invalid; stderr has the reason.
    #[command(after_help = JOIN_EXAMPLES)]
    Join(join::JoinArgs),
    /// Leave the cluster
    ///
    /// Removes the certificate, the kubeconfig and the drop-in of `wherry join`, and restarts the service if it
    /// is running. Pods of manifests keep running. Pods of the cluster stop when wherry starts again. If the node has
    /// such pods, the command requires --force: drain the node first (kubectl drain NODE --ignore-daemonsets). The Node
    /// object stays in the cluster until kubectl delete node NODE.
    ///
    /// Exit code: 0 success, 1 failure; stderr has the reason.
    Leave(leave::LeaveArgs),
    /// Write manifests for a pod of the cluster
    ///
    /// Writes a manifest of the pod and manifests of its ConfigMaps, Secrets and RuntimeClass, from the copies on
    /// this machine; the API server is not needed. The pod of the cluster keeps running. The pod of the manifest
    /// starts when the pod of the cluster is gone: after it is deleted, or after `wherry leave`. The manifests
    /// contain no service account tokens and no environment variables of services. Needs root.
    ///
    /// Exit code: 0 the manifests were written, 1 there is no such pod of the cluster, it already has a manifest, or
    /// a file cannot be written.
    Keep(keep::KeepArgs),
    /// Debug a running pod with an additional container, or wherry itself
    ///
    /// Adds an ephemeral container to the pod: a container with its own tools, in the pod's network and, with
    /// --target, in the process namespace of another container. The other containers are not restarted, and the pod's
    /// manifest does not change. The container is never restarted, and cannot be removed before the pod. This is
    /// `kubectl debug`, without the API.
    ///
    /// With -i or -t, attaches to the container as `wherry attach` does; otherwise returns when the container is
    /// running. Use `wherry exec`, `attach` and `logs` with -c NAME afterwards. If the pod has the name of a
    /// subcommand, write NAMESPACE/NAME.
    ///
    /// Exit code: 0 the container is running, or its process ended while the command was attached; that of the process
    /// if it ended before the attach; 1 the container was refused or does not start; 130 after Ctrl-C.
    #[command(
        after_help = DEBUG_EXAMPLES,
        args_conflicts_with_subcommands = true,
        subcommand_negates_reqs = true,
        flatten_help = false
    )]
    Debug(DebugArgs),
    /// Show the status of the node
    ///
    /// Shows the runtime and its version, the age of the last relist, the numbers of pods, the node's resources
    /// (capacity, allocatable and requested by pods), manifests with errors, whether a shutdown of the machine waits
    /// for the pods, and the reasons why the node or pods are not ready.
    Status {
        /// Output format instead of text
        #[arg(short, long, value_enum)]
        output: Option<StatusFormat>,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Show in which order and when a shutdown would stop the pods
    ///
    /// Shows the plan for a shutdown that starts now: a bar for each group of pods over the time that the machine
    /// waits, and for each pod when it is stopped and its grace period. "cut off" marks a pod whose own grace period
    /// is longer than the one it gets.
    ShutdownPlan {
        /// Output format instead of text
        #[arg(short, long, value_enum)]
        output: Option<StatusFormat>,
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// Write a file for a bug report
    ///
    /// Writes a compressed archive with the versions, the configuration, the output of `wherry check --system`, the
    /// status, pods, events, metrics and internal state of the running agent, its crash reports, the log of the
    /// service and the end of the kernel's log, the mounts, and the names and sizes of the manifests and of the files
    /// in the state directory. Changes nothing. Works without a running agent, and as any user: errors.txt in the
    /// archive lists what is missing.
    ///
    /// Contains no manifests, environment variables, commands, values of annotations, ConfigMaps, Secrets, keys or
    /// credentials, and no logs of containers (add them with `wherry logs`). Contains names of pods, images, hosts and
    /// files, and messages of the runtime and of the kernel. Look through it before you send it: tar -xzf FILE. Only
    /// its owner can read it.
    ///
    /// Exit code: 0 the file was written, even if parts are missing, 1 it cannot be written or exists, 2 the command
    /// line is invalid.
    #[command(after_help = SUPPORT_EXAMPLES)]
    Support(support::SupportArgs),
    /// Remove all pods of this node and all state of wherry
    ///
    /// For a machine on which wherry is no longer used. The agent must not be running. Without --yes, lists the pods
    /// and changes nothing. With --yes, stops the pods, each with its own grace period as far as --timeout allows,
    /// and removes them and their logs. Then removes the state directory, the logind drop-in and the drop-in of
    /// `wherry join`. Pods of other owners, the rest of the configuration and the manifests are kept.
    ///
    /// Exit code: 0 everything was removed, 1 something was not removed; stderr lists it.
    Purge {
        /// Remove everything; without this option, only list the pods
        #[arg(long)]
        yes: bool,
        /// Time limit of the whole purge, such as 90s or 5m
        #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = config::duration::parse)]
        timeout: Duration,
        #[command(flatten)]
        config: Flags,
    },
    /// Print the version
    Version,
}

const DRAIN_EXAMPLES: &str = "\
Examples:
  wherry drain default/db                   stop one pod and wait until it has stopped
  wherry drain -l app=web,tier!=cache       pods with these labels
  wherry drain --all --timeout 5m           all pods, with a limited wait
  wherry drain --all --grace-period 5 --no-wait";

const UNDRAIN_EXAMPLES: &str = "\
Examples:
  wherry undrain default/db
  wherry undrain --all                      all drained pods";

const VOLUMES_EXAMPLES: &str = "\
Examples:
  wherry volumes
  wherry volumes remove shop/data           its claim is gone, and its files are not needed any more";

const SUPPORT_EXAMPLES: &str = "\
Examples:
  sudo wherry support                       a file in the current directory
  sudo wherry support --since 48h -o /tmp/report.tar.gz
  ssh node sudo wherry support -o - > report.tar.gz";

const KUBECONFIG_EXAMPLES: &str = "\
Examples:
  sudo wherry kubeconfig --merge            access for the calling user, in ~/.kube/config
  sudo wherry kubeconfig --view --for dashboard --expires 30d --output dashboard.kubeconfig
  sudo wherry kubeconfig --for ann --server https://10.0.0.5:6443 --output ann.kubeconfig
  sudo wherry kubeconfig list
  sudo wherry kubeconfig revoke ann";

const JOIN_EXAMPLES: &str = "\
Examples:
  wherry join 10.0.0.1:6443 --token 07401b.f395accd246ae52d --discovery-token-ca-cert-hash sha256:...
  wherry join --kubeconfig bootstrap.kubeconfig --node-name pier-7
  wherry check --join 10.0.0.1:6443 --token ...      check first, with the same arguments";

const EXEC_EXAMPLES: &str = "\
Examples:
  wherry exec shop/web -- nginx -T
  wherry exec shop/web -c sidecar -- sh -c 'ls /tmp | wc -l'
  wherry exec -it shop/web -- sh
  wherry exec -i db -- psql < dump.sql
  wherry exec db --timeout 10m -- pg_dump -f /backup/db.sql";

const ATTACH_EXAMPLES: &str = "\
Examples:
  wherry attach shop/web                    output from now on
  wherry attach -it shop/console            a container with stdin and tty; ctrl-p ctrl-q detaches";

const CP_EXAMPLES: &str = "\
Examples:
  wherry cp shop/web:/var/log/app ./logs    to the new directory logs, or into it if it exists
  wherry cp site.conf shop/web:/etc/nginx/conf.d/
  wherry cp db:/data/dump.sql /dev/stdout -c postgres | gzip > dump.sql.gz";

const DEBUG_EXAMPLES: &str = "\
Examples:
  wherry debug shop/web --image busybox:1.36 -it
  wherry debug shop/web --image busybox:1.36 -it --target main -- sh
  wherry debug shop/web --image tcpdump:1 -c dump -- tcpdump -w /tmp/all.pcap
  wherry debug dump | jq .workers           the state of wherry itself";

const PORT_FORWARD_EXAMPLES: &str = "\
Examples:
  wherry port-forward shop/web 8080:80      http://localhost:8080
  wherry port-forward shop/web 8080:http    a port by its name in the manifest
  wherry port-forward shop/web :80          a free local port
  wherry port-forward shop/web 0.0.0.0:8080:80 8443:443";

const TOP_EXAMPLES: &str = "\
Examples:
  wherry top                                highest usage first
  wherry top --containers --sort-by memory
  wherry top -l app=web --watch
  wherry top -o json | jq '.pods[0]'";

#[derive(Debug, Args)]
pub(super) struct TopArgs {
    /// Show only this pod: NAME, NAMESPACE/NAME, or a UID
    pub(super) pod: Option<String>,
    /// Show only pods in this namespace
    #[arg(short, long)]
    pub(super) namespace: Option<String>,
    /// Show the pods of all namespaces (the default; accepted for compatibility with kubectl)
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub(super) all_namespaces: bool,
    /// Show only pods with these labels, as in `wherry drain`
    #[arg(short = 'l', long, value_parser = Selector::parse)]
    pub(super) selector: Option<Selector>,
    /// Also print a line for each container
    #[arg(long)]
    pub(super) containers: bool,
    /// Column to sort by
    #[arg(long, value_enum, default_value = "cpu")]
    pub(super) sort_by: top::SortBy,
    /// Output format instead of the table; with --watch, one document per line
    #[arg(short, long, value_enum)]
    pub(super) output: Option<StatusFormat>,
    /// Repeat until Ctrl-C
    #[arg(short, long)]
    pub(super) watch: bool,
    /// Time between updates with --watch
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval, requires = "watch")]
    pub(super) interval: Duration,
    #[command(flatten)]
    pub(super) socket: SocketArgs,
}

/// Parses an interval of at least one second: each update causes work in the runtime.
fn interval(text: &str) -> Result<Duration, String> {
    let every = config::duration::parse(text).map_err(|e| e.to_string())?;
    (every.as_secs() >= 1).then_some(every).ok_or_else(|| "must be at least 1s".to_owned())
}

#[derive(Debug, Args)]
#[group(skip)]
#[command(group(ArgGroup::new("which").args(["pods", "selector", "all"]).required(true).multiple(true)))]
pub(super) struct WhichArgs {
    /// NAME, NAMESPACE/NAME, or a UID
    #[arg(conflicts_with_all = ["selector", "all"])]
    pub(super) pods: Vec<String>,
    /// Select only pods in this namespace
    #[arg(short, long)]
    pub(super) namespace: Option<String>,
    /// Select pods with these labels: app=web,tier!=cache, 'env in (test,dev)', canary, '!canary'
    #[arg(short = 'l', long, conflicts_with = "all", value_parser = Selector::parse)]
    pub(super) selector: Option<Selector>,
    /// Select all pods
    #[arg(long)]
    pub(super) all: bool,
}

impl WhichArgs {
    pub(super) fn which(self) -> Result<drain::Which, Failure> {
        let targets = self.pods.iter().map(|pod| select(pod, self.namespace.as_deref())).collect::<Result<_, _>>()?;
        Ok(drain::Which { targets, namespace: self.namespace, selector: self.selector, all: self.all })
    }
}

#[derive(Debug, Args)]
pub(super) struct DrainArgs {
    #[command(flatten)]
    pub(super) which: WhichArgs,
    /// Grace period instead of the pods' own terminationGracePeriodSeconds; at least 1 s
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=604_800))]
    pub(super) grace_period: Option<u64>,
    /// Maximum time to wait, such as 90s or 5m [default: unlimited]
    #[arg(long, value_name = "DURATION", value_parser = config::duration::parse, conflicts_with = "no_wait")]
    pub(super) timeout: Option<Duration>,
    /// Do not wait until the pods have stopped
    #[arg(long)]
    pub(super) no_wait: bool,
    /// Also stop pods that a PodDisruptionBudget protects now
    #[arg(long)]
    pub(super) ignore_budgets: bool,
    #[command(flatten)]
    pub(super) socket: SocketArgs,
}

#[derive(Debug, Args)]
pub(super) struct LogsArgs {
    #[command(flatten)]
    pub(super) pod: PodArgs,
    /// Name of the container [default: the first]
    #[arg(short, long)]
    pub(super) container: Option<String>,
    /// Print the logs of all containers of the pod, one after another; with --follow, in the order of the lines
    #[arg(long, conflicts_with = "container")]
    pub(super) all_containers: bool,
    /// Continue with new lines as they are written
    #[arg(short, long)]
    pub(super) follow: bool,
    /// Print the log of the previous run of the container: the last run that ended
    #[arg(short, long, conflicts_with = "follow")]
    pub(super) previous: bool,
    /// Print only the last N lines, -1 for all
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(super) tail: Option<i64>,
    /// Print only lines newer than this duration, such as 90s, 5m or 1h30m
    #[arg(long, value_name = "DURATION", value_parser = config::duration::parse)]
    pub(super) since: Option<Duration>,
    /// Print only lines since this time, such as 2026-11-20T14:46:39Z
    #[arg(long, value_name = "TIME", conflicts_with = "since")]
    pub(super) since_time: Option<Timestamp>,
    /// Print the time before each line
    #[arg(long)]
    pub(super) timestamps: bool,
    /// Stop after N bytes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) limit_bytes: Option<u64>,
    /// Directory of pod logs, used if no agent is running [default: from the configuration, else /var/log/pods]
    #[arg(long, value_name = "DIR")]
    pub(super) log_dir: Option<PathBuf>,
    #[command(flatten)]
    pub(super) socket: SocketArgs,
}

#[derive(Debug, Args)]
pub(super) struct DebugArgs {
    #[command(subcommand)]
    pub(super) command: Option<DebugCommand>,
    #[command(flatten)]
    pub(super) query: debug_pod::DebugPodArgs,
    #[command(flatten)]
    pub(super) socket: SocketArgs,
}

#[derive(Debug, Subcommand)]
pub(super) enum DebugCommand {
    /// Print the state of the running agent as JSON
    ///
    /// Contains the worker of every pod, the runtime's last reported state, operations in flight, timers, queues and
    /// descriptors. The format changes between versions. It does not contain the specs of pods, which may hold secrets.
    Dump {
        #[command(flatten)]
        socket: SocketArgs,
    },
    /// List the descriptors of the running agent
    ///
    /// Shows the kind of each descriptor, the number of events that the loop has received for it, and what it waits
    /// for. Helps you read a trace of the agent's system calls (strace).
    Fds {
        /// Output format instead of the table
        #[arg(short, long, value_enum)]
        output: Option<StatusFormat>,
        #[command(flatten)]
        socket: SocketArgs,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum VolumesCommand {
    /// Remove the directories of claims that are gone
    ///
    /// Removes the directory with all files in it. Refuses if a claim has the directory, if pods use it, or if wherry
    /// has not created it. The removal goes on in the background; `wherry events` shows an error.
    ///
    /// Exit code: 0 success, 1 a directory stays; stderr has the reason.
    Remove {
        /// The claims: NAMESPACE/NAME, or NAME in the namespace default
        #[arg(required = true, value_name = "CLAIM")]
        claims: Vec<String>,
        #[command(flatten)]
        socket: SocketArgs,
    },
}

#[derive(Debug, Args)]
pub(super) struct SocketArgs {
    /// Control socket [default: from the configuration, else /run/wherry/wherry.sock]
    #[arg(long, value_name = "FILE")]
    pub(super) socket: Option<PathBuf>,
}

impl SocketArgs {
    /// Returns the path of the control socket: the option, or else the socket in the configuration. Configuration
    /// errors are ignored here; `check` reports them.
    pub(super) fn path(self) -> PathBuf {
        self.socket.unwrap_or_else(|| config::load(&Flags::default()).config.socket)
    }
}
