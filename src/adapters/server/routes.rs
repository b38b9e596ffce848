//! The node's listeners: the control socket, the health port, the read-only port, and (over TLS) the server of a
//! cluster's node and the Kubernetes API; and the routes of each. GET and HEAD read, POST changes something.

use super::api;
use crate::net::http1::Accepts;
use crate::net::server::listeners::{ListenerId, ListenerRules};
use std::time::Duration;

/// The maximum length of a request body, in bytes: enough for a command line with a script, or for 1,000 ids.
pub const MAX_BODY: usize = 128 * 1024;

/// The listeners, by `ListenerKind::id`.
pub static LISTENERS: [ListenerRules; 5] = [
    // A watch costs nothing, and the kernel reports the end of a client on the same machine.
    ListenerRules { watches: 16, watches_of_root: 4, watch_stall_timeout: None, ..local("Control", "socket") },
    local("Health", "healthzBindAddress:healthzPort"),
    local("ReadOnly", "address:readOnlyPort"),
    // For users who follow logs, and for sessions.
    ListenerRules { connections: 256, ..secure("Node", "address:port") },
    // For 1,000 watches and for commands. A request with a large body can be refused before the body arrives.
    ListenerRules {
        connections: 1_200,
        drain: (api::MAX_BODY, Duration::from_secs(5)),
        ..secure("Kubectl", "kubectlAddress:kubectlPort")
    },
];

/// A listener for tools and monitoring of this node.
const fn local(name: &'static str, field: &'static str) -> ListenerRules {
    ListenerRules {
        name,
        field,
        connections: 32,
        is_secure: false,
        watches: 0,
        watches_of_root: 0,
        stream_timeout: Duration::from_secs(30),
        stall_timeout: Duration::from_secs(10),
        watch_stall_timeout: Some(Duration::from_secs(10)),
        drain: (64 * 1024, Duration::from_secs(1)),
    }
}

/// A listener for clients of Kubernetes, who may read a list or log slowly, with a pager. Such clients cost no
/// memory.
const fn secure(name: &'static str, field: &'static str) -> ListenerRules {
    ListenerRules {
        is_secure: true,
        watches: usize::MAX,
        stream_timeout: Duration::from_secs(3600),
        stall_timeout: Duration::from_secs(600),
        watch_stall_timeout: Some(Duration::from_secs(600)),
        ..local(name, field)
    }
}

/// The listener that received a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// The control socket: all routes.
    Control,
    /// The health port: `/healthz`, `/livez`, `/readyz`.
    Health,
    /// `readOnlyPort`: `/healthz`, `/metrics`, `/metrics/probes`, `/pods`.
    ReadOnly,
    /// `port`: the server of a cluster's node over TLS, like that of a kubelet. A client certificate is optional.
    Node,
    /// `kubectlPort`: the Kubernetes API over TLS, for clients with a certificate.
    Kubectl,
}

impl ListenerKind {
    const ALL: [ListenerKind; LISTENERS.len()] = [
        ListenerKind::Control,
        ListenerKind::Health,
        ListenerKind::ReadOnly,
        ListenerKind::Node,
        ListenerKind::Kubectl,
    ];

    /// Returns the index of this listener in `LISTENERS`.
    pub fn id(self) -> ListenerId {
        ListenerId(match self {
            ListenerKind::Control => 0,
            ListenerKind::Health => 1,
            ListenerKind::ReadOnly => 2,
            ListenerKind::Node => 3,
            ListenerKind::Kubectl => 4,
        })
    }

    /// Returns the listener with this index.
    pub fn of(ListenerId(index): ListenerId) -> Option<ListenerKind> {
        ListenerKind::ALL.get(index).copied()
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    Page(Page),
    Ask(Ask),
    /// Closes the connections of clients whose certificates were revoked.
    KubectlReload,
    /// All paths of the node's server, including those that do not exist (`api::kube::kubelet_request`).
    Node,
    /// All paths of the Kubernetes API, including those that do not exist (`api::kube::path`).
    Api,
}

/// A page that shows data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    Healthz,
    Livez,
    Readyz,
    Metrics,
    /// Only the metrics of probes.
    ProbeMetrics,
    /// A `PodList`. As a watch, one line of JSON for each pod, in the format of the API server:
    /// `{"type":"ADDED","object": <pod>}` for each existing pod, then `{"type":"BOOKMARK","object":{}}`, then `ADDED`,
    /// `MODIFIED` and `DELETED` for each change.
    Pods,
    /// A `status::NodeStatus`.
    Status,
    /// A `control::Volumes`: the directories of claims.
    Volumes,
    /// A `PlanView`: the order and times in which a shutdown would stop the pods now.
    ShutdownPlan,
    /// An `EventList`. As a watch, lines in the format of `Pods`, and `{"type":"LOST","count":n}` in place of n lines
    /// that were dropped for a slow reader.
    Events,
    /// The complete internal state of the agent, for debugging.
    Dump,
    /// All descriptors of the process and their purpose.
    Descriptors,
}

/// Passes a request to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Removes the directory of the claim with this `?namespace=` and `&name=`, which is gone. The answer is sent when
    /// that is durable.
    RemoveVolume,
    /// A3: retries the rejected pod with this `?uid=`. The answer is a sentence about the outcome.
    Retry,
    /// W27: takes a `control::DrainRequest`. The answer, a `control::Drained`, is sent when the drain is durable.
    Drain,
    /// W27: ends a drain. Has the same request and answer as `Drain`.
    Undrain,
    /// A10: cordons the node. The answer is a sentence, sent when the cordon is durable.
    Cordon,
    /// A10: ends the cordon.
    Uncordon,
    /// W29: takes a `control::EphemeralRequest`. The answer, a `control::EphemeralNames`, is sent when the containers
    /// are durable.
    Ephemeral,
    /// Takes a `control::ExecRequest`: runs a command in a container. The answer is sent when the command has ended.
    Exec,
    /// Takes a `control::StreamRequest`: requests the URL of a stream from the runtime. The answer is a
    /// `control::StreamUrl`.
    Stream,
    /// A `control::Usage`: the resource usage of containers, as reported by the runtime.
    Usage,
    /// A `control::Images`: the images of the runtime and their users.
    Images,
}

/// A path of the local listeners.
struct LocalPath {
    path: &'static str,
    route: Route,
    accepts: Accepts,
    listeners: &'static [ListenerKind],
}

const GET: Accepts = Accepts { methods: &["GET", "HEAD"], body: 0, fields: false };
const POST: Accepts = Accepts { methods: &["POST"], body: 0, fields: false };
const POST_WITH_BODY: Accepts = Accepts { body: MAX_BODY, ..POST };

const CONTROL: &[ListenerKind] = &[ListenerKind::Control];
const HEALTH: &[ListenerKind] = &[ListenerKind::Control, ListenerKind::Health];
const READ_ONLY: &[ListenerKind] = &[ListenerKind::Control, ListenerKind::ReadOnly];
const LOCAL: &[ListenerKind] = &[ListenerKind::Control, ListenerKind::Health, ListenerKind::ReadOnly];

static PATHS: [LocalPath; 24] = [
    page("/healthz", Page::Healthz, LOCAL),
    page("/livez", Page::Livez, HEALTH),
    page("/readyz", Page::Readyz, HEALTH),
    page("/metrics", Page::Metrics, READ_ONLY),
    page("/metrics/probes", Page::ProbeMetrics, READ_ONLY),
    page("/pods", Page::Pods, READ_ONLY),
    page("/status", Page::Status, CONTROL),
    page("/shutdown-plan", Page::ShutdownPlan, CONTROL),
    page("/volumes", Page::Volumes, CONTROL),
    page("/events", Page::Events, CONTROL),
    page("/debug/dump", Page::Dump, CONTROL),
    page("/debug/fds", Page::Descriptors, CONTROL),
    ask("/retry", Ask::Retry, POST),
    ask("/drain", Ask::Drain, POST_WITH_BODY),
    ask("/undrain", Ask::Undrain, POST_WITH_BODY),
    ask("/cordon", Ask::Cordon, POST),
    ask("/uncordon", Ask::Uncordon, POST),
    ask("/ephemeral", Ask::Ephemeral, POST_WITH_BODY),
    ask("/exec", Ask::Exec, POST_WITH_BODY),
    ask("/stream", Ask::Stream, POST_WITH_BODY),
    ask("/usage", Ask::Usage, GET),
    ask("/images", Ask::Images, GET),
    ask("/volumes/remove", Ask::RemoveVolume, POST),
    LocalPath { path: "/kubectl/reload", route: Route::KubectlReload, accepts: POST, listeners: CONTROL },
];

const fn page(path: &'static str, page: Page, listeners: &'static [ListenerKind]) -> LocalPath {
    LocalPath { path, route: Route::Page(page), accepts: GET, listeners }
}

const fn ask(path: &'static str, ask: Ask, accepts: Accepts) -> LocalPath {
    LocalPath { path, route: Route::Ask(ask), accepts, listeners: CONTROL }
}

impl LocalPath {
    fn find(listener_kind: ListenerKind, path: &str) -> Option<&'static LocalPath> {
        PATHS.iter().find(|local| local.path == path && local.listeners.contains(&listener_kind))
    }
}

impl Route {
    /// Returns the route of `path` at this listener, if there is one.
    pub fn find(listener_kind: ListenerKind, path: &str) -> Option<Route> {
        match listener_kind {
            ListenerKind::Kubectl => Some(Route::Api),
            ListenerKind::Node => Some(Route::Node),
            ListenerKind::Control | ListenerKind::Health | ListenerKind::ReadOnly => {
                LocalPath::find(listener_kind, path).map(|local| local.route)
            }
        }
    }

    /// Returns the methods of `path` at this listener, and whether its requests have a body. An unknown path accepts
    /// GET and HEAD, so that such requests get a 404.
    pub fn accepts(listener_kind: ListenerKind, path: &str) -> Accepts {
        match listener_kind {
            ListenerKind::Kubectl => {
                let methods = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
                Accepts { methods, body: api::MAX_BODY, fields: true }
            }
            ListenerKind::Node => Accepts { methods: &["GET", "HEAD", "POST"], body: 0, fields: true },
            ListenerKind::Control | ListenerKind::Health | ListenerKind::ReadOnly => {
                LocalPath::find(listener_kind, path).map_or(GET, |local| local.accepts)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::http1::{Parsed, parse};

    #[test]
    fn each_route_has_its_methods() {
        let at = |listener_kind: ListenerKind, method: &str, path: &str, more: &str| {
            let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n");
            parse(head.as_bytes(), |path| Route::accepts(listener_kind, path))
        };
        let parsed = |method: &str, path: &str, more: &str| at(ListenerKind::Control, method, path, more);
        let reads: &[&str] = &["GET", "HEAD"];
        for (method, path) in [("POST", "/pods"), ("PUT", "/pods"), ("POST", "/nothing"), ("POST", "/retry/")] {
            assert_eq!(parsed(method, path, ""), Parsed::WrongMethod(reads), "{method} {path}");
        }
        // The method is checked before the body.
        assert_eq!(parsed("POST", "/pods", "Content-Length: 3\r\n"), Parsed::WrongMethod(reads));
        for method in ["GET", "HEAD", "PUT", "post"] {
            assert_eq!(parsed(method, "/retry?uid=u", ""), Parsed::WrongMethod(&["POST"]), "{method}");
        }
        // A listener without this route treats it as an unknown path.
        for listener_kind in [ListenerKind::Health, ListenerKind::ReadOnly] {
            assert_eq!(at(listener_kind, "POST", "/retry?uid=u", ""), Parsed::WrongMethod(reads), "{listener_kind:?}");
            assert!(matches!(at(listener_kind, "GET", "/retry?uid=u", ""), Parsed::Head(_)), "{listener_kind:?}");
        }
        for more in ["", "Content-Length: 0\r\n"] {
            let Parsed::Head(head) = parsed("POST", "/retry?uid=u", more) else { panic!("{more}") };
            assert_eq!((head.path.as_str(), head.query.as_str(), head.is_head), ("/retry", "uid=u", false));
        }
        for more in ["Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n"] {
            assert!(matches!(parsed("POST", "/retry?uid=u", more), Parsed::Refused(413, _)), "{more}");
        }
    }

    #[test]
    fn each_listener_has_its_place_in_the_table() {
        for (index, kind) in ListenerKind::ALL.into_iter().enumerate() {
            assert_eq!((kind.id(), ListenerKind::of(kind.id())), (ListenerId(index), Some(kind)));
            assert_eq!(LISTENERS[index].name, format!("{kind:?}"));
        }
        assert_eq!(ListenerKind::of(ListenerId(LISTENERS.len())), None);
        assert!(LISTENERS.is_sorted_by_key(|rules| rules.is_secure), "those with TLS are last");
    }

    #[test]
    fn each_listener_has_its_own_routes() {
        assert_eq!(Route::find(ListenerKind::Health, "/metrics"), None);
        assert_eq!(Route::find(ListenerKind::Health, "/readyz"), Some(Route::Page(Page::Readyz)));
        assert_eq!(Route::find(ListenerKind::ReadOnly, "/status"), None);
        assert_eq!(Route::find(ListenerKind::ReadOnly, "/shutdown-plan"), None);
        assert_eq!(Route::find(ListenerKind::Health, "/shutdown-plan"), None);
        assert_eq!(Route::find(ListenerKind::Control, "/shutdown-plan"), Some(Route::Page(Page::ShutdownPlan)));
        assert_eq!(Route::find(ListenerKind::ReadOnly, "/events"), None);
        assert_eq!(Route::find(ListenerKind::ReadOnly, "/debug/dump"), None);
        assert_eq!(Route::find(ListenerKind::Control, "/debug/dump"), Some(Route::Page(Page::Dump)));
        assert_eq!(Route::find(ListenerKind::Health, "/debug/fds"), None);
        assert_eq!(Route::find(ListenerKind::Control, "/debug/fds"), Some(Route::Page(Page::Descriptors)));
        assert_eq!(Route::find(ListenerKind::ReadOnly, "/pods"), Some(Route::Page(Page::Pods)));
        assert_eq!(Route::find(ListenerKind::Control, "/status"), Some(Route::Page(Page::Status)));
        assert_eq!(Route::find(ListenerKind::Control, "/"), None);
        // Only the control socket has routes that change something.
        assert_eq!(Route::find(ListenerKind::Control, "/retry"), Some(Route::Ask(Ask::Retry)));
        assert_eq!(Route::find(ListenerKind::ReadOnly, "/retry"), None);
        assert_eq!(Route::find(ListenerKind::Health, "/retry"), None);
        for path in
            ["/drain", "/undrain", "/cordon", "/uncordon", "/ephemeral", "/exec", "/stream", "/usage", "/images"]
        {
            assert!(Route::find(ListenerKind::Control, path).is_some(), "{path}");
            assert_eq!(Route::find(ListenerKind::ReadOnly, path), None, "{path}");
            assert_eq!(Route::find(ListenerKind::Health, path), None, "{path}");
        }
        assert_eq!(Route::find(ListenerKind::ReadOnly, "/metrics"), Some(Route::Page(Page::Metrics)));
        assert_eq!(Route::find(ListenerKind::ReadOnly, "/metrics/probes"), Some(Route::Page(Page::ProbeMetrics)));
        assert_eq!(Route::find(ListenerKind::Health, "/metrics/probes"), None);
        assert_eq!(Route::find(ListenerKind::Control, "/metrics/cadvisor"), None);
    }
}
