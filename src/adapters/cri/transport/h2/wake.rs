//! Who wants to be polled. `h2` wakes a call's waker when something came for it, and the connection's when it has
//! something to write; only those are polled, so a turn costs what happened in it, not what is in flight.

use crate::adapters::cri::transport::CallId;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// Of one connection. Only one thread ever takes the lock; the type is what `Waker` asks for.
#[derive(Default)]
pub struct Woken {
    calls: Mutex<Vec<CallId>>,
    connection: AtomicBool,
}

impl Woken {
    pub fn any(&self) -> bool {
        self.connection.load(Ordering::Relaxed) || !self.calls.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// The calls woken since the last time, each once.
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
    /// It is about to be polled: a wake from now on is a new one.
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
