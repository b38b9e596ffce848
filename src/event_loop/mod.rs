//! The event loop. The process waits only here. All wake-up sources are in one `mio::Poll`: descriptors, the sockets of
//! the signal handlers, the helpers' waker, and one timerfd armed with the earliest deadline. This module knows nothing
//! about pods. It has no periodic tick: without work it sleeps until the next deadline.
//!
//! - `poll`: one turn of the loop, tokens, the ready list;
//! - `registered`: the descriptors in the poll, as reported by the kernel;
//! - `clock`: the only code that reads the clocks;
//! - `signals`: signals as an enum;
//! - `helpers`: threads for blocking work.
//!
//! Example of a main loop with one adapter:
//!
//! ```no_run
//! # use mio::Token; use wherry::net::grpc::{Transport, h2::H2Transport};
//! use wherry::event_loop::{EventLoop, Helpers, Signal, Signals, clock};
//! const SIGNALS: Token = Token(1);
//! const HELPERS: Token = Token(2);
//! const RUNTIME: Token = Token(3);
//!
//! # fn main() -> std::io::Result<()> { let path = std::path::Path::new("/run/containerd/containerd.sock");
//! let mut event_loop = EventLoop::new()?;
//! let mut signals = Signals::new(event_loop.registry(), SIGNALS)?;
//! let mut helpers: Helpers<String> = Helpers::new(event_loop.registry(), HELPERS)?;
//! let mut runtime = H2Transport::connect(path, event_loop.registry(), RUNTIME)?;
//! let (mut ready, mut completions, mut finished) = (Vec::new(), Vec::new(), Vec::new());
//! loop {
//!     let deadlines = [runtime.next_deadline(), helpers.next_deadline()];
//!     event_loop.turn(deadlines.into_iter().flatten().min(), &mut ready)?;
//!     let now = clock::now();
//!     let due = |at: Option<_>| at.is_some_and(|at| at <= now.boot);
//!     if ready.contains(&SIGNALS) && signals.take().contains(&Signal::Terminate) {
//!         return Ok(());
//!     }
//!     // Calls made since the last `drive` make its deadline due at once.
//!     if (ready.contains(&RUNTIME) || due(runtime.next_deadline())) && runtime.drive(now.boot, &mut completions) {
//!         event_loop.again(RUNTIME);
//!     }
//!     if ready.contains(&HELPERS) || due(helpers.next_deadline()) {
//!         helpers.drive(now.boot, &mut finished);
//!     }
//!     // Completions and finished jobs become events. The engine's effects become calls and jobs.
//! }
//! # }
//! ```

pub mod clock;
pub mod helpers;
pub mod poll;
mod registered;
pub mod signals;

pub use helpers::{Class, Finished, Helpers, JobError, JobId, PendingJob};
pub use poll::EventLoop;
pub use signals::{Signal, Signals};
