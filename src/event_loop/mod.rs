//! The one place where the process waits. Everything that can wake it is in one `mio::Poll`: descriptors, the signals'
//! sockets, the helpers' waker, and one timerfd armed with the earliest deadline. Nothing here knows of pods, and
//! nothing ticks: a turn with no work sleeps until the next real deadline.
//!
//! - `poll`: the turn, tokens, the ready list;
//! - `timers`: named deadlines, pure;
//! - `clock`: the only reader of clocks;
//! - `signals`: signals as an enum;
//! - `helpers`: threads for work that blocks whatever one does.
//!
//! A main loop is: the earliest deadline of `Timers`, `Helpers` and the adapters goes into [`EventLoop::turn`]; the
//! tokens that come out are driven, each within a budget; what stopped for its budget is given to
//! [`EventLoop::again`]; due timers are popped.

pub mod clock;
pub mod helpers;
pub mod poll;
pub mod signals;
pub mod timers;

pub use helpers::Helpers;
pub use poll::EventLoop;
pub use signals::{Signal, Signals};
pub use timers::Timers;
