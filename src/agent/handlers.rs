//! Starts the probes and hooks that do not need the runtime. The name of a host is looked up first, by a helper thread.

use super::Agent;
use super::effects::{Job, Work};
use crate::adapters::handlers;
use crate::api::time::{Boot, Now};
use crate::engine::effect::Target;
use crate::engine::handler::Handler;
use crate::engine::op::OpId;
use crate::event_loop::Class;
use mio::Token;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// A handler that waits for the address of its host.
pub struct Lookup {
    pub op: OpId,
    handler: Handler,
    target: Target,
    deadline: Boot,
}

impl Agent {
    pub(super) fn start_handler(&mut self, op: OpId, handler: Handler, timeout: Duration, now: Now) {
        let target = handler.target();
        let name = target.as_ref().ok().and_then(Target::name).map(str::to_owned);
        match (name, target) {
            (Some(name), Ok(target)) => {
                let deadline = now.boot + timeout;
                let of_thread = name.clone();
                let work = move || Work::Lookup(handlers::look_up(&of_thread));
                let helpers = &mut self.sources.helpers;
                let id = helpers.submit_for(Class::Names, "look up a host name", Path::new(&name), deadline, work);
                self.sources.jobs.insert(id, Job::Lookup(Box::new(Lookup { op, handler, target, deadline })));
            }
            (_, target) => self.connect_handler(op, &handler, target, timeout, now),
        }
    }

    /// The poll reported a socket of a probe or hook.
    pub(super) fn handler_ready(&mut self, token: Token) {
        if self.handlers.ready(token, self.event_loop.registry()) {
            self.event_loop.again(token);
        }
    }

    /// `address`: the result of the lookup.
    pub(super) fn host_looked_up(&mut self, lookup: Lookup, address: Result<IpAddr, String>, now: Now) {
        let Lookup { op, handler, mut target, deadline } = lookup;
        target.set_address(address);
        self.connect_handler(op, &handler, Ok(target), deadline.since(now.boot), now);
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
