//! Requests and answers of the Kubernetes API and of the node's server, which the secure listeners serve.

use super::http::Response;
use crate::api::kube::accept::Format;
use crate::api::kube::access::Role;
use crate::api::kube::bookmarks::Bookmarks;
use crate::api::kube::selection::Selection;
use crate::api::kube::status::Failure;
use crate::api::kube::table::Include;
use crate::api::kube::versions::{Key, Position};
use crate::api::names::Uid;
use crate::api::time::Boot;
use crate::net::http1::Head;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

/// The maximum length of a request body, in bytes (the limit of an API server).
pub const MAX_BODY: usize = 3 * 1024 * 1024;

/// The client of a connection, from its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The common name (CN).
    pub name: String,
    pub role: Role,
    /// The serial number of the certificate, in hexadecimal.
    pub serial: String,
    /// The end of the certificate's validity. (A clock that is set meanwhile counts from the next request on.)
    pub expires: Boot,
}

/// The parts of a request that only the API needs.
#[derive(Clone, Debug, PartialEq)]
pub struct ApiRequest {
    pub head: Head,
    /// The certificate is valid, but not one of the clients': the failure for the client.
    pub client: Result<Rc<Client>, Failure>,
}

/// The parts of a request that only the node's server needs.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeRequest {
    pub head: Head,
    /// The client's certificate in DER. TLS has verified it.
    pub certificate: Option<Vec<u8>>,
}

/// The position in a streamed answer.
pub enum ApiCursor {
    List(Box<List>),
    Watch(Box<Watch>),
    Log(Box<dyn Log>),
}

impl std::fmt::Debug for ApiCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ApiCursor::List(_) => "List",
            ApiCursor::Watch(_) => "Watch",
            ApiCursor::Log(_) => "Log",
        })
    }
}

/// A list in progress.
pub struct List {
    pub selection: Selection,
    pub format: Format,
    pub include: Include,
    /// The resource version of the list.
    pub version: u64,
    /// The last key that was written. None before the first piece.
    pub after: Option<Key>,
    pub begun: bool,
    pub any: bool,
}

/// A watch in progress.
pub struct Watch {
    pub selection: Selection,
    pub format: Format,
    pub include: Include,
    pub position: Position,
    /// The column definitions were sent.
    pub columns: bool,
    /// The initial state is sent, and the client is to learn of its end.
    pub initial: bool,
    /// None: the client wants none.
    pub bookmarks: Option<Bookmarks>,
    /// The objects that the client has, for a selection that objects can leave.
    pub selected: Option<BTreeSet<Key>>,
    /// The watch ends at this time.
    pub until: Option<Boot>,
}

impl Watch {
    /// The next time at which the watch has something to send, or ends, without a change.
    pub fn next_deadline(&self) -> Option<Boot> {
        self.until.into_iter().chain(self.bookmarks.map(Bookmarks::next)).min()
    }
}

/// A log that is sent. The poll reports its source when a followed log has grown.
pub trait Log {
    /// The pod, the name of the container and its instance.
    fn container(&self) -> (&Uid, &str, u32);

    /// Appends the next bytes. Returns the state after them. `runs`: the instance of the container is running.
    fn read(&mut self, runs: bool, out: &mut Vec<u8>) -> Part;

    /// The descriptor to wait for.
    fn source(&self) -> Option<BorrowedFd<'_>>;
}

/// The state of a streamed body after a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    More,
    /// There is no more data now. `Server::wake` or the cursor's source reports more.
    Wait,
    End,
}

/// A connection to the runtime's streaming server, to which the client's connection is passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    pub address: SocketAddr,
    /// The request head for the streaming server.
    pub request: Vec<u8>,
}

pub fn failure(failure: &Failure) -> Response {
    let mut response = Response::json(serde_json::to_vec(&failure.to_value()).unwrap_or_default());
    response.status = failure.code;
    if failure.code == 429 {
        response.headers.push(("Retry-After", "1".to_owned()));
    }
    response
}
