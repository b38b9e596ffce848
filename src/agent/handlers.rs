//! Starts the probes and hooks that do not need the runtime. A helper thread first looks up the name of a host.

use super::jobs::{JobSpec, Jobs};
use crate::adapters::handlers::{self, Handlers};
use crate::api::time::{Boot, Now};
use crate::engine::effect::Target;
use crate::engine::event::Event;
use crate::engine::handler::Handler;
use crate::engine::op::OpId;
use crate::event_loop::{Class, EventLoop};
use mio::Token;
use std::path::Path;
use std::time::Duration;

#[derive(Default)]
pub(super) struct LocalHandlers {
    handlers: Handlers,
}

impl LocalHandlers {
    pub(super) fn owns(&self, token: Token) -> bool {
        self.handlers.owns(token)
    }

    pub(super) fn next_deadline(&self) -> Option<Boot> {
        self.handlers.next_deadline()
    }

    pub(super) fn start(
        &mut self,
        op: OpId,
        handler: Handler,
        timeout: Duration,
        event_loop: &mut EventLoop,
        jobs: &mut Jobs,
        now: Now,
    ) -> Vec<Event> {
        let target = handler.target();
        let name = target.as_ref().ok().and_then(Target::name).map(str::to_owned);
        let (name, mut target) = match (name, target) {
            (Some(name), Ok(target)) => (name, target),
            (_, target) => return self.connect(op, &handler, target, timeout, event_loop, now),
        };
        let deadline = now.boot + timeout;
        let of_thread = name.clone();
        let spec = JobSpec::new(Class::Names, "look up a host name", deadline).on(Path::new(&name));
        let id = jobs.run(
            spec,
            move || handlers::look_up(&of_thread),
            move |agent, address, now| {
                // The handler fails if the lookup has no result.
                target.set_address(address.unwrap_or_else(|_| Err("i/o timeout".to_owned())));
                let (timeout, event_loop) = (deadline.since(now.boot), &mut agent.event_loop);
                agent.events.extend(agent.handlers.connect(op, &handler, Ok(target), timeout, event_loop, now));
            },
        );
        jobs.make_cancellable(id, op);
        Vec::new()
    }

    fn connect(
        &mut self,
        op: OpId,
        handler: &Handler,
        target: Result<Target, String>,
        timeout: Duration,
        event_loop: &mut EventLoop,
        now: Now,
    ) -> Vec<Event> {
        let token = event_loop.token();
        let registry = event_loop.registry();
        match handler {
            Handler::Probe(_) => self.handlers.probe(op, target, timeout, now.boot, registry, token),
            Handler::Hook(_) => self.handlers.hook(op, target, timeout, now.boot, registry, token),
        }
        self.take_events()
    }

    /// Called when the poll reports a socket of a probe or hook.
    pub(super) fn ready(&mut self, token: Token, event_loop: &mut EventLoop) -> Vec<Event> {
        if self.handlers.ready(token, event_loop.registry()) {
            event_loop.again(token);
        }
        self.take_events()
    }

    /// Ends the probes and hooks whose deadlines have passed.
    pub(super) fn expire(&mut self, now: Boot) -> Vec<Event> {
        self.handlers.expire(now);
        self.take_events()
    }

    /// Cancels the operation. Returns true if it was one of these probes or hooks; `take_events` then returns its
    /// result.
    pub(super) fn cancel(&mut self, op: OpId) -> bool {
        self.handlers.cancel(op)
    }

    pub(super) fn take_events(&mut self) -> Vec<Event> {
        self.handlers.take_done().into_iter().map(|(op, result)| Event::Done { op, result }).collect()
    }
}
