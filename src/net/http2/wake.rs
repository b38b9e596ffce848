//! The list of futures to poll. `h2` wakes the waker of a call when data for it has arrived, and that of the
//! connection when it has data to write. Only woken futures are polled, so the cost of a drive does not depend on the
//! number of calls in flight.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};

/// The woken futures of one connection; a call has the key `K`. Only one thread ever takes the lock, which is needed
/// because `Waker` requires a `Sync` type.
pub struct Woken<K> {
    calls: Mutex<Vec<K>>,
    connection: AtomicBool,
}

impl<K> Default for Woken<K> {
    fn default() -> Woken<K> {
        Woken { calls: Mutex::new(Vec::new()), connection: AtomicBool::new(false) }
    }
}

impl<K: Copy> Woken<K> {
    pub fn any(&self) -> bool {
        self.connection.load(Ordering::Relaxed) || !self.calls.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Returns the calls woken since the last call of this function, each once.
    pub fn take_calls(&self) -> Vec<K> {
        std::mem::take(&mut self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn take_connection(&self) -> bool {
        self.connection.swap(false, Ordering::Relaxed)
    }

    pub fn call_waker(self: &Arc<Woken<K>>, key: K) -> Arc<CallWaker<K>> {
        Arc::new(CallWaker { key, listed: AtomicBool::new(false), woken: self.clone() })
    }
}

impl<K: Send + 'static> Wake for Woken<K> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.connection.store(true, Ordering::Relaxed);
    }
}

pub struct CallWaker<K> {
    key: K,
    listed: AtomicBool,
    woken: Arc<Woken<K>>,
}

impl<K: Copy + Send + Sync + 'static> CallWaker<K> {
    /// Clears the mark that the call is listed. Call this before polling the call, so that a later wake lists it
    /// again.
    pub fn reset(&self) {
        self.listed.store(false, Ordering::Relaxed);
    }

    pub fn waker(self: &Arc<Self>) -> Waker {
        self.clone().into()
    }
}

impl<K: Copy + Send + Sync + 'static> Wake for CallWaker<K> {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.listed.swap(true, Ordering::Relaxed) {
            self.woken.calls.lock().unwrap_or_else(PoisonError::into_inner).push(self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_woken_twice_is_listed_once_until_it_is_polled() {
        let woken = Arc::new(Woken::default());
        let call = woken.call_waker(7_u64);
        call.waker().wake();
        call.waker().wake_by_ref();
        assert_eq!(woken.take_calls(), [7]);
        call.waker().wake();
        assert_eq!(woken.take_calls(), Vec::<u64>::new());
        call.reset();
        call.waker().wake();
        assert_eq!(woken.take_calls(), [7]);
        assert!(!woken.take_connection());
        Waker::from(woken.clone()).wake();
        assert!(woken.take_connection());
        assert!(!woken.take_connection());
    }
}
