//! What the kernel reports about containers and the node: the end of processes (P8), memory pressure, and writes to
//! container logs.

use crate::adapters::host::memory_pressure::MemoryPressure;
use crate::adapters::logs::writes::LogWrites;
use crate::adapters::pidfds::Pidfds;
use crate::api::names::{ContainerId, Uid};
use crate::engine::event::Event;
use crate::event_loop::EventLoop;
use mio::{Registry, Token};

#[derive(Default)]
pub(super) struct KernelReports {
    pub(super) pidfds: Pidfds,
    pub(super) memory_pressure: Option<MemoryPressure>,
    pub(super) log_writes: LogWrites,
}

impl KernelReports {
    pub(super) fn watch_process(&mut self, uid: Uid, id: String, pid: u32, event_loop: &mut EventLoop) -> Event {
        let token = event_loop.token();
        let watched = self.pidfds.watch(event_loop.registry(), token, uid.clone(), &id, pid);
        if let Err(why) = &watched {
            log::debug!(
                "failed to watch the process; the next relist detects its exit id={id} pid={pid} error={why:?}"
            );
        }
        Event::Watched { uid, id, ok: watched.is_ok() }
    }

    /// Called when the process of this token may have ended.
    pub(super) fn process_ended(&mut self, token: Token, registry: &Registry) -> Option<Event> {
        self.pidfds.ended(registry, token).map(|(uid, id)| Event::Ended { uid, id })
    }

    /// E1: starts or stops watching for memory pressure. Without the kernel's reports, the engine measures more
    /// often.
    pub(super) fn watch_memory_pressure(&mut self, wanted: bool, event_loop: &mut EventLoop) -> Option<Event> {
        if let Some(watch) = self.memory_pressure.take() {
            watch.close(event_loop.registry());
        }
        if !wanted {
            return None;
        }
        let token = event_loop.token();
        match MemoryPressure::watch(event_loop.registry(), token) {
            Ok(watch) => self.memory_pressure = Some(watch),
            Err(e) => log::info!(
                "the kernel does not report memory pressure, so Wherry measures it every 10 s \
                 path=/proc/pressure/memory error={:?}",
                e.to_string()
            ),
        }
        Some(Event::MemoryWatched { works: self.memory_pressure.is_some() })
    }

    /// Starts watching a log. Returns an event if the log cannot be watched.
    pub(super) fn watch_log(&mut self, id: ContainerId, path: &str, event_loop: &mut EventLoop) -> Option<Event> {
        let token = event_loop.token();
        match self.log_writes.watch(event_loop.registry(), || token, id.clone(), path) {
            Ok(()) => None,
            Err(e) => {
                log::debug!("failed to watch the log; it is checked periodically path={path} error={e:?}");
                Some(Event::LogNotWatched { id })
            }
        }
    }

    /// Returns events for the logs that were written.
    pub(super) fn logs_written(&mut self) -> impl Iterator<Item = Event> + use<> {
        self.log_writes.take().into_iter().map(|id| Event::LogWritten { id })
    }
}
