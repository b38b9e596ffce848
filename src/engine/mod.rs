//! The pure heart: given an event and the time, it returns effects. It never reads a clock, a file or a
//! socket. Read `event`, `effect` and `op` first, then `node`.

pub mod effect;
pub mod event;
pub mod op;
