//! Records the futures to poll. `h2` wakes the waker of a call when data for it has arrived, and that of the connection when it
//! has data to write. Only woken futures are polled, so the cost of a drive does not depend on the number of calls in flight.

use crate::net::grpc::CallId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// The woken futures of one connection. Only one thread ever takes the lock; `Waker` requires a type that is `Sync`.
#[derive(Default)]
pub struct Woken {
    calls: Mutex<Vec<CallId>>,
    connection: AtomicBool,
}

impl Woken {
    pub fn any(&self) -> bool {
        self.connection.load(Ordering::Relaxed) || !self.calls.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Returns the calls woken since the last call of this function, each once.
    pub fn take_calls(&self) -> Vec<CallId> {
        std::mem::take(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn take_connection(&self) -> bool {
        self.connection.swap(false, Ordering::Relaxed)
    }

    pub fn call_waker(self: &Arc<Woken>, id: CallId) -> Arc<CallWaker> {
        Arc::new(CallWaker { id, listed: AtomicBool::new(false), woken: self.clone() })
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.connection.store(true, Ordering::Relaxed);
    }
}

pub struct CallWaker {
    id: CallId,
    listed: AtomicBool,
    woken: Arc<Woken>,
}

impl CallWaker {
    /// Call this before polling the call: a later wake lists the call again.
    pub fn reset(&self) {
        self.listed.store(false, Ordering::Relaxed);
    }

    pub fn waker(self: &Arc<Self>) -> Waker {
        self.clone().into()
    }
}

impl Wake for CallWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.listed.swap(true, Ordering::Relaxed) {
            self.woken.calls.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_woken_twice_is_listed_once_until_it_is_polled() {
        let woken = Arc::new(Woken::default());
        let call = woken.call_waker(CallId(7));
        call.waker().wake();
        call.waker().wake_by_ref();
        assert_eq!(woken.take_calls(), [CallId(7)]);
        call.waker().wake();
        assert_eq!(woken.take_calls(), []);
        call.reset();
        call.waker().wake();
        assert_eq!(woken.take_calls(), [CallId(7)]);
        assert!(!woken.take_connection());
        Waker::from(woken.clone()).wake();
        assert!(woken.take_connection());
        assert!(!woken.take_connection());
    }
}
