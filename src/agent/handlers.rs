//! Starts the probes and hooks that do not need the runtime. The name of a host is looked up first, by a helper thread.

use super::Agent;
use super::jobs::JobSpec;
use crate::adapters::handlers;
use crate::api::time::Now;
use crate::engine::effect::Target;
use crate::engine::handler::Handler;
use crate::engine::op::OpId;
use crate::event_loop::Class;
use mio::Token;
use std::path::Path;
use std::time::Duration;

impl Agent {
    pub(super) fn start_handler(&mut self, op: OpId, handler: Handler, timeout: Duration, now: Now) {
        let target = handler.target();
        let name = target.as_ref().ok().and_then(Target::name).map(str::to_owned);
        match (name, target) {
            (Some(name), Ok(mut target)) => {
                let deadline = now.boot + timeout;
                let of_thread = name.clone();
                let spec = JobSpec::new(Class::Names, "look up a host name", deadline).on(Path::new(&name));
                let id = self.jobs.run(
                    spec,
                    move || handlers::look_up(&of_thread),
                    move |agent, address, now| {
                        // The handler fails if the lookup has no result.
                        target.set_address(address.unwrap_or_else(|_| Err("i/o timeout".to_owned())));
                        agent.connect_handler(op, &handler, Ok(target), deadline.since(now.boot), now);
                    },
                );
                self.jobs.make_cancellable(id, op);
            }
            (_, target) => self.connect_handler(op, &handler, target, timeout, now),
        }
    }

    /// The poll reported a socket of a probe or hook.
    pub(super) fn handler_ready(&mut self, token: Token) {
        if self.handlers.ready(token, self.event_loop.registry()) {
            self.event_loop.again(token);
        }
        self.take_handled();
    }

    /// Ends the probes and hooks whose deadlines have passed.
    pub(super) fn expire_handlers(&mut self, now: Now) {
        self.handlers.expire(now.boot);
        self.take_handled();
    }

    fn connect_handler(
        &mut self,
        op: OpId,
        handler: &Handler,
        target: Result<Target, String>,
        timeout: Duration,
        now: Now,
    ) {
        let token = self.event_loop.token();
        let registry = self.event_loop.registry();
        match handler {
            Handler::Probe(_) => self.handlers.probe(op, target, timeout, now.boot, registry, token),
            Handler::Hook(_) => self.handlers.hook(op, target, timeout, now.boot, registry, token),
        }
        self.take_handled();
    }
}
